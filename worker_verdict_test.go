package dueq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

func TestWorkerFollowsVerdicts(t *testing.T) {
	handlers := map[string]func() error{
		"ack":    func() error { return nil },
		"again":  func() error { return dueq.Again(10 * time.Second) },
		"retry":  func() error { return dueq.RetryIn(7*time.Second, errors.New("later please")) },
		"wrap":   func() error { return fmt.Errorf("outer: %w", dueq.RetryIn(7*time.Second, errors.New("inner"))) },
		"error":  func() error { return errors.New("no luck") },
		"dead":   func() error { return dueq.Dead(errors.New("hopeless")) },
		"panic":  func() error { panic("boom") },
		"nil":    func() error { var none []int; none[len(os.Args)] = 1; return nil },
		"goexit": func() error { runtime.Goexit(); return nil },
	}
	bubble(t, "of every kind, and survives them", func(t *testing.T) {
		store, _ := newTap()
		on(t, store, dueq.WorkerOptions{Concurrency: 1}, func(_ context.Context, t *dueq.Task) error { return handlers[t.ID]() })
		for _, id := range slices.Sorted(maps.Keys(handlers)) {
			schedule(t, store, "q", id, dueq.In(0))
		}
		now := time.Now()
		pass(time.Second)
		if got := get(t, store, "q", "ack"); got.State != dueq.StateNone {
			t.Errorf("ack: state %v, want none", got.State)
		}
		if got := get(t, store, "q", "again"); got.State != dueq.StateScheduled || !got.Due.Equal(now.Add(10*time.Second)) || got.Round != 1 || got.Failures != 0 {
			t.Errorf("again: %+v", got)
		}
		if got := get(t, store, "q", "dead"); got.State != dueq.StateDead || got.LastError != "hopeless" {
			t.Errorf("dead: %+v", got)
		}
		for id, text := range map[string]string{"retry": "later please", "wrap": "outer: inner"} {
			if got := get(t, store, "q", id); got.State != dueq.StateScheduled || !got.Due.Equal(now.Add(7*time.Second)) || got.Failures != 1 || got.LastError != text {
				t.Errorf("%s: %+v", id, got)
			}
		}
		for id, text := range map[string]string{"error": "no luck", "panic": "panic: boom", "nil": "index out of range", "goexit": "runtime.Goexit"} {
			got := get(t, store, "q", id)
			after := got.Due.Sub(now)
			if got.State != dueq.StateScheduled || after < 5*time.Second || after > 5500*time.Millisecond || got.Failures != 1 || !strings.Contains(got.LastError, text) {
				t.Errorf("%s: due after %v, %+v", id, after, got)
			}
			if at := strings.Index(got.LastError, "worker_verdict_test.go:"); id != "error" && (at < 0 || at > 250) {
				t.Errorf("%s: the error does not say where, soon: %q", id, got.LastError)
			}
		}
	})
	bubble(t, "until the retries are used up", func(t *testing.T) {
		store, _ := newTap()
		var j journal
		on(t, store, dueq.WorkerOptions{}, func(_ context.Context, t *dueq.Task) error {
			defer j.begin(t, "")()
			return errors.New("no")
		})
		schedule(t, store, "q", "a", dueq.In(0))
		pass(10 * time.Minute)
		attempts := []int{}
		for _, r := range j.all() {
			attempts = append(attempts, r.attempt)
		}
		if got := get(t, store, "q", "a"); !slices.Equal(attempts, []int{1, 2, 3, 4}) || got.State != dueq.StateDead || got.Failures != 4 {
			t.Errorf("attempts %v, then %+v; want 1 to 4 and dead", attempts, got)
		}
	})
	bubble(t, "after a restart, not before", func(t *testing.T) {
		store, _ := newTap()
		var j journal
		retry := func(_ context.Context, t *dueq.Task) error {
			defer j.begin(t, "")()
			if t.Attempt > 1 {
				return nil
			}
			return dueq.RetryIn(10*time.Second, errors.New("no"))
		}
		first := on(t, store, dueq.WorkerOptions{}, retry)
		began := time.Now()
		schedule(t, store, "q", "a", dueq.In(0))
		pass(2 * time.Second)
		if err := first.wait(t); err != nil {
			t.Error(err)
		}
		on(t, store, dueq.WorkerOptions{}, retry)
		pass(time.Minute)
		if runs := j.all(); len(runs) != 2 || !runs[1].at.Equal(began.Add(10*time.Second)) {
			t.Errorf("runs %v, want the second 10 s after %v", runs, began)
		}
	})
	bubble(t, "with failures spread out", func(t *testing.T) {
		store, _ := newTap()
		on(t, store, dueq.WorkerOptions{}, func(context.Context, *dueq.Task) error { return errors.New("no") })
		scheduleMany(t, store, "q", 1000, dueq.In(0))
		now := time.Now()
		pass(time.Second)
		first, last := time.Hour, time.Duration(0)
		for i := range 1000 {
			after := get(t, store, "q", fmt.Sprintf("t%05d", i)).Due.Sub(now)
			first, last = min(first, after), max(last, after)
		}
		if first < 5*time.Second || last > 5501*time.Millisecond || last-first < 450*time.Millisecond {
			t.Errorf("retries are due %v to %v after, want 5 s to 5.5 s", first, last)
		}
	})
	bubble(t, "of batches, one each", func(t *testing.T) {
		store, _ := newTap()
		sizes := []int{}
		start(t, store, dueq.WorkerOptions{Concurrency: 1}, func(w *dueq.Worker) {
			w.HandleBatch("q", dueq.AnyKind, 4, func(_ context.Context, tasks []*dueq.Task) []error {
				sizes = append(sizes, len(tasks))
				errs := make([]error, len(tasks))
				for i, t := range tasks {
					if t.ID == "t00002" {
						errs[i] = dueq.Dead(errors.New("bad one"))
					}
				}
				return errs
			})
		})
		scheduleMany(t, store, "q", 10, dueq.In(time.Second))
		pass(2 * time.Second)
		total := 0
		for _, n := range sizes {
			total += n
		}
		if st := stats(t, store, "q"); total != 10 || slices.Max(sizes) != 4 || st.Dead != 1 || st.Totals.Acked != 9 {
			t.Errorf("batches %v, %d dead, %d acked; want 10 tasks by 4, 1 and 9", sizes, st.Dead, st.Totals.Acked)
		}
	})
	for name, f := range map[string]dueq.BatchFunc{
		"returned 1 verdicts for 3 tasks": func(context.Context, []*dueq.Task) []error { return make([]error, 1) },
		"panic: batch boom":               func(context.Context, []*dueq.Task) []error { panic("batch boom") },
		"runtime.Goexit":                  func(context.Context, []*dueq.Task) []error { runtime.Goexit(); return nil },
	} {
		bubble(t, "of a batch that "+name, func(t *testing.T) {
			store, _ := newTap()
			start(t, store, dueq.WorkerOptions{Concurrency: 3}, func(w *dueq.Worker) {
				w.HandleBatch("q", "", 3, f)
				w.Handle("q", "good", dueq.HandlerFunc(func(context.Context, *dueq.Task) error { return nil }))
			})
			scheduleMany(t, store, "q", 3, dueq.In(time.Second))
			pass(2 * time.Second)
			for i := range 3 {
				if got := get(t, store, "q", fmt.Sprintf("t%05d", i)); got.Failures != 1 || !strings.Contains(got.LastError, name) {
					t.Errorf("task %d: %d failures, error %q; want 1, %q", i, got.Failures, got.LastError, name)
				}
			}
			scheduleKind(t, store, "x", "good", dueq.In(0))
			pass(time.Second)
			if got := get(t, store, "q", "x:good"); got.State != dueq.StateNone {
				t.Errorf("the next task is %v, want it handled", got.State)
			}
		})
	}
	bubble(t, "of a batch that returns nil, which acknowledges all", func(t *testing.T) {
		store, _ := newTap()
		start(t, store, dueq.WorkerOptions{}, func(w *dueq.Worker) {
			w.HandleBatch("q", "", 1000, func(context.Context, []*dueq.Task) []error { return nil })
		})
		scheduleMany(t, store, "q", 250, dueq.In(0))
		pass(time.Second)
		if st := stats(t, store, "q"); st.Totals.Acked != 250 {
			t.Errorf("%d acked, want 250", st.Totals.Acked)
		}
	})
}

func TestWorkerRoutes(t *testing.T) {
	bubble(t, "puts back kinds that nobody handles here, and goes on", func(t *testing.T) {
		store, _ := newTap()
		var j journal
		first := start(t, store, dueq.WorkerOptions{Concurrency: 2}, func(w *dueq.Worker) { w.Handle("q", "known", j.takes(0, "")) })
		began := time.Now()
		for i := range 20 {
			scheduleKind(t, store, fmt.Sprint("u", i), "unknown", dueq.In(0))
			scheduleKind(t, store, fmt.Sprint("k", i), "known", dueq.In(time.Millisecond))
		}
		pass(time.Second)
		j.onceEach(t, 20)
		pass(9 * time.Second)
		for i := range 20 {
			if got := get(t, store, "q", fmt.Sprintf("u%d:unknown", i)); got.State != dueq.StateScheduled || got.Failures != 0 || got.Attempt != 1 || got.LastError != "" {
				t.Fatalf("unknown kind: %+v", got)
			}
		}
		if claims := stats(t, store, "q").Totals.Released; claims > 20*3 {
			t.Errorf("unknown kinds were claimed %d times in %v", claims, time.Since(began))
		}
		first.wait(t)
		var other journal
		start(t, store, dueq.WorkerOptions{}, func(w *dueq.Worker) { w.Handle("q", "unknown", other.takes(0, "")) })
		pass(10 * time.Second)
		other.onceEach(t, 20)
	})
	bubble(t, "prefers a kind's own handler to AnyKind", func(t *testing.T) {
		store, _ := newTap()
		var own, any journal
		start(t, store, dueq.WorkerOptions{}, func(w *dueq.Worker) {
			w.Handle("q", "own", own.takes(0, ""))
			w.Handle("q", dueq.AnyKind, any.takes(0, ""))
		})
		scheduleKind(t, store, "a", "own", dueq.In(0))
		scheduleKind(t, store, "b", "other", dueq.In(0))
		schedule(t, store, "q", "c", dueq.In(0))
		pass(time.Second)
		if len(own.of("a")) != 1 || len(own.all()) != 1 || len(any.all()) != 2 {
			t.Errorf("own %v, any %v", own.all(), any.all())
		}
	})
	bubble(t, "through wrappers, the first outermost, but not batches", func(t *testing.T) {
		store, _ := newTap()
		var mu sync.Mutex
		var order []string
		wrap := func(name string) func(dueq.Handler) dueq.Handler {
			return func(h dueq.Handler) dueq.Handler {
				return dueq.HandlerFunc(func(ctx context.Context, t *dueq.Task) error {
					mu.Lock()
					order = append(order, name)
					mu.Unlock()
					return h.Handle(ctx, t)
				})
			}
		}
		start(t, store, dueq.WorkerOptions{}, func(w *dueq.Worker) {
			w.Use(wrap("a"), wrap("b"))
			w.Handle("q", "one", dueq.HandlerFunc(func(context.Context, *dueq.Task) error { order = append(order, "h"); return nil }))
			w.HandleBatch("q", "many", 10, func(context.Context, []*dueq.Task) []error { return nil })
			w.Use(wrap("c"))
		})
		scheduleKind(t, store, "x", "one", dueq.In(0))
		scheduleKind(t, store, "y", "many", dueq.In(time.Second))
		pass(2 * time.Second)
		if want := []string{"a", "b", "c", "h"}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
	})
	t.Run("panics on what cannot be", func(t *testing.T) {
		t.Parallel()
		store, _ := newTap()
		h := dueq.HandlerFunc(func(context.Context, *dueq.Task) error { return nil })
		for name, f := range map[string]func(w *dueq.Worker){
			"bad queue":      func(w *dueq.Worker) { w.Handle("#", "", h) },
			"same kind":      func(w *dueq.Worker) { w.Handle("q", "a", h); w.Handle("q", "a", h) },
			"empty batch":    func(w *dueq.Worker) { w.HandleBatch("q", "a", 0, nil) },
			"large batch":    func(w *dueq.Worker) { w.HandleBatch("q", "a", 1001, nil) },
			"no concurrency": func(*dueq.Worker) { dueq.NewWorker(store, dueq.WorkerOptions{Concurrency: -1}) },
			"after Run":      func(w *dueq.Worker) { w.Handle("q", "a", h); w.Run(cancelled()); w.Handle("q", "b", h) },
		} {
			if !panics(func() { f(dueq.NewWorker(store, dueq.WorkerOptions{Logger: slog.New(slog.DiscardHandler)})) }) {
				t.Errorf("%s: no panic", name)
			}
		}
	})
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func scheduleKind(t *testing.T, store dueq.Store, id, kind string, when dueq.When) {
	t.Helper()
	if _, err := store.Schedule(t.Context(), []dueq.Item{{Queue: "q", Task: dueq.Task{ID: id, Kind: kind}, When: when}}); err != nil {
		t.Fatal(err)
	}
}
