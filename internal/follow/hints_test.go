package follow_test

import (
	"context"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/follow"
)

func TestHints(t *testing.T) {
	t.Parallel()
	bubble(t, "go to the queue they are about, over one subscription", func(t *testing.T, store *sick) {
		counted := &wakes{Store: store}
		hints := follow.NewHints(counted)
		go hints.Run(t.Context())
		a, b := wake(t, t.Context(), hints.Of("a")), wake(t, t.Context(), hints.Of("b"))
		pass(0)
		due := schedule(t, store, "a")
		pass(0)
		if got := <-a; got.Queue != "a" || !got.Due.Equal(due) {
			t.Errorf("got %+v, want a and %v", got, due)
		}
		if len(a)+len(b) != 0 {
			t.Errorf("%d and %d hints more", len(a), len(b))
		}
		if counted.n != 1 {
			t.Errorf("%d subscriptions, want 1", counted.n)
		}
	})
	bubble(t, "end with their context, and others go on", func(t *testing.T, store *sick) {
		hints := follow.NewHints(store)
		go hints.Run(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		first, second := wake(t, ctx, hints.Of("a")), wake(t, t.Context(), hints.Of("a"))
		cancel()
		pass(0)
		schedule(t, store, "a")
		pass(0)
		if hint, open := <-first; open {
			t.Errorf("got %+v after the end", hint)
		}
		if len(second) != 1 {
			t.Errorf("%d hints, want 1", len(second))
		}
	})
	bubble(t, "do not wait for a reader that does not read", func(t *testing.T, store *sick) {
		hints := follow.NewHints(store)
		go hints.Run(t.Context())
		wake(t, t.Context(), hints.Of("a"))
		b := wake(t, t.Context(), hints.Of("b"))
		pass(0)
		for range 1000 {
			schedule(t, store, "a")
			pass(time.Millisecond)
		}
		schedule(t, store, "b")
		pass(0)
		if len(b) != 1 {
			t.Errorf("%d hints for b, want 1", len(b))
		}
	})
}

// wakes counts subscriptions.
type wakes struct {
	dueq.Store
	n int
}

func (w *wakes) Wake(ctx context.Context) (<-chan dueq.Hint, error) {
	w.n++
	return w.Store.Wake(ctx)
}

func wake(t *testing.T, ctx context.Context, store dueq.Store) <-chan dueq.Hint {
	t.Helper()
	hints, err := store.Wake(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return hints
}

// schedule puts a task at the head of the queue, whatever is there.
func schedule(t *testing.T, store dueq.Store, queue string) time.Time {
	t.Helper()
	first := time.UnixMilli(dueq.MaxDueMilli)
	if st, err := store.Stats(t.Context(), queue); err == nil && !st[0].NextDue.IsZero() {
		first = st[0].NextDue
	}
	due := first.Add(-time.Hour)
	item := dueq.Item{Queue: queue, Task: dueq.Task{ID: due.Format("20060102150405")}, When: dueq.At(due)}
	if out, err := store.Schedule(t.Context(), []dueq.Item{item}); err != nil || out[0].Error() != nil {
		t.Fatal(out, err)
	}
	return due
}
