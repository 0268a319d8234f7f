package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// Two thousand tasks are due at one instant, and each is rescheduled within two
// milliseconds of it: who is told that it worked has one run at the new time,
// who is refused has one at the old.
func TestRace_rescheduling_at_the_due_instant_gives_one_run_at_the_time_it_says(t *testing.T) {
	t.Parallel()
	const n, later = 2000, 3 * time.Second
	srv := redistest.Start(t)
	store := openStore(t, srv.URL(), patient)
	done := newLedger()
	for range 2 {
		startWorker(t, openStore(t, srv.URL(), patient), dueq.WorkerOptions{}, done, "q")
	}
	due := time.Now().Add(1500 * time.Millisecond).Truncate(time.Millisecond)
	scheduleAll(t, store, items("q", n, dueq.At(due)))
	outcomes := make([]dueq.Outcome, n)
	seed := seeded(t).Uint64()
	var group sync.WaitGroup
	for w := range 20 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			timer := time.NewTimer(time.Until(due.Add(time.Duration(random.IntN(4000)-2000) * time.Microsecond)))
			defer timer.Stop()
			<-timer.C
			var targets []dueq.Target
			for i := w; i < n; i += 20 {
				targets = append(targets, dueq.Target{Member: fmt.Sprintf("t%06d:k", i), When: dueq.In(later)})
			}
			got, err := store.Change(context.WithoutCancel(t.Context()), "q", dueq.OpReschedule, targets)
			if err != nil {
				t.Error(err)
				return
			}
			for j, i := 0, w; i < n; i, j = i+20, j+1 {
				outcomes[i] = got[j]
			}
		})
	}
	group.Wait()
	eventually(t, 20*time.Second, "all have run", func() bool { return done.size() == n })
	eventually(t, 5*time.Second, "all are settled", func() bool { st := statsOf(t, store, "q"); return st.Active+st.Scheduled == 0 })
	if repeated := done.repeated(); len(repeated) > 0 {
		t.Errorf("%d ran twice: %.5q", len(repeated), repeated)
	}
	moved := 0
	for i, o := range outcomes {
		_, at := done.of("q", fmt.Sprintf("t%06d", i))
		switch {
		case o.Status == dueq.StatusDone:
			moved++
			if at.Before(o.Due) || o.Due.Before(due.Add(later-2*time.Millisecond)) {
				t.Errorf("t%06d was moved to %v and ran at %v", i, o.Due, at)
			}
		case at.After(due.Add(later)):
			t.Errorf("t%06d was not moved (%v), but ran %v after its due time", i, o.Status, at.Sub(due))
		}
	}
	t.Logf("%d of %d were moved", moved, n)
}

// Producers and consumers keep a queue at one task or none: no task is lost
// when it empties, and none stays behind.
func TestRace_a_queue_that_empties_all_the_time_loses_nothing(t *testing.T) {
	t.Parallel()
	const producers, each = 8, 400
	srv := redistest.Start(t)
	store := openStore(t, srv.URL(), patient)
	var ran [producers]chan string
	for i := range ran {
		ran[i] = make(chan string, 10)
	}
	handler := dueq.HandlerFunc(func(_ context.Context, task *dueq.Task) error {
		var p int
		_, err := fmt.Sscanf(task.ID, "%d-", &p)
		ran[p] <- task.ID
		return err
	})
	for range 8 {
		startWorker(t, openStore(t, srv.URL(), patient), dueq.WorkerOptions{}, handler, "q")
	}
	var group sync.WaitGroup
	for p := range producers {
		group.Go(func() {
			for i := range each {
				id := fmt.Sprintf("%d-%d", p, i)
				if _, err := store.Schedule(t.Context(), []dueq.Item{item("q", id, dueq.In(0), "b")}); err != nil {
					t.Error(err)
					return
				}
				select {
				case got := <-ran[p]:
					if got != id {
						t.Errorf("%s ran when %s was awaited", got, id)
					}
				case <-time.After(10 * time.Second):
					t.Errorf("%s is lost: %+v", id, statsOf(t, store, "q"))
					return
				}
			}
		})
	}
	group.Wait()
	eventually(t, 5*time.Second, "all are settled", func() bool { return statsOf(t, store, "q").Totals.Acked == producers*each })
	all, err := store.Stats(t.Context())
	must(t, err)
	if len(all) != 1 || all[0].Scheduled+all[0].Active+all[0].Dead != 0 || all[0].Totals.Claimed != producers*each {
		t.Errorf("got %+v, want the queue listed, and empty", all)
	}
}

// Hints of a cancel may be lost; the next renewal tells.
func TestRace_a_stop_reaches_the_handler_while_subscriptions_are_killed(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), redisstore.Options{})
	_, err := store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"timeout": "60s", "lease": "3s"})
	must(t, err)
	var starts atomic.Int64
	ended := make(chan error, 10)
	handler := dueq.HandlerFunc(func(ctx context.Context, _ *dueq.Task) error {
		starts.Add(1)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	})
	startWorker(t, openStore(t, srv.URL(), redisstore.Options{}), dueq.WorkerOptions{}, handler, "q")
	scheduleAll(t, store, []dueq.Item{item("q", "x", past)})
	eventually(t, 5*time.Second, "it runs", func() bool { return starts.Load() == 1 })
	killing, stop := context.WithCancel(t.Context())
	var killer sync.WaitGroup
	killer.Go(func() {
		for killing.Err() == nil {
			_ = raw.Do(t.Context(), "client", "kill", "type", "pubsub").Err()
			pass(t, 5*time.Millisecond)
		}
	})
	client := dueq.NewClient(store, dueq.ClientOptions{})
	if err := client.Cancel(t.Context(), "q", "x:k"); !errors.Is(err, dueq.ErrRunning) {
		t.Errorf("cancel: got %v, want that it runs", err)
	}
	must(t, client.Stop(t.Context(), "q", "x:k"))
	select {
	case cause := <-ended:
		t.Logf("the handler's context ended: %v", cause)
	case <-time.After(3*time.Second + slack):
		t.Error("the handler's context did not end within a lease")
	}
	pass(t, 4*time.Second) // beyond a lease
	stop()
	killer.Wait()
	st := statsOf(t, store, "q")
	if starts.Load() != 1 || st.Scheduled+st.Active+st.Dead != 0 || st.Totals.Retried != 0 {
		t.Errorf("started %d times, %+v; want once, and nothing left", starts.Load(), st)
	}
}
