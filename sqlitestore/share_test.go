//go:build unix

package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/sqlitestore"
)

// lock takes the lock for writing away, as another process might.
func lock(t *testing.T, path string) (unlock func()) {
	t.Helper()
	other, err := sqlitestore.Open(path, sqlitestore.Options{})
	must(t, err)
	must(t, other.Exec("BEGIN IMMEDIATE"))
	return sync.OnceFunc(func() {
		must(t, other.Exec("ROLLBACK"))
		must(t, other.Close())
	})
}

func TestCallsShareATransaction(t *testing.T) {
	t.Parallel()
	path := file(t)
	store := open(t, path, sqlitestore.Options{})
	put(t, store, "q", "first")
	unlock := lock(t, path)
	defer unlock()
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			outcomes, err := store.Schedule(t.Context(), many("q", i, 1))
			if err != nil || outcomes[0].Status != dueq.StatusScheduled {
				t.Errorf("task %d: got %v, %v", i, outcomes, err)
			}
		})
		group.Go(func() {
			if _, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: -1}); !errors.Is(err, dueq.ErrInvalid) {
				t.Errorf("bad claim %d: got %v", i, err)
			}
			bad := []dueq.Item{{Queue: "q"}, {Queue: "q", Task: dueq.Task{ID: fmt.Sprint("beside-", i)}}}
			outcomes, err := store.Schedule(t.Context(), bad)
			if err != nil || outcomes[0].Status != dueq.StatusRefused || outcomes[1].Status != dueq.StatusScheduled {
				t.Errorf("bad item %d: got %v, %v", i, outcomes, err)
			}
		})
	}
	time.Sleep(20 * time.Millisecond) // they wait for the lock, some or all
	unlock()
	group.Wait()
	if got := stats(t, store, "q").Scheduled; got != 41 {
		t.Errorf("%d tasks are there, want 41", got)
	}
}

func TestCallerWhoLeavesBeforeTheTransaction(t *testing.T) {
	t.Parallel()
	path := file(t)
	store := open(t, path, sqlitestore.Options{})
	unlock := lock(t, path)
	defer unlock()
	var group sync.WaitGroup
	group.Go(func() { put(t, store, "q", "patient") }) // it would take the others into its transaction
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := store.Schedule(ctx, many("q", 0, 1))
	var call *dueq.CallError
	if !errors.Is(err, dueq.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &call) || call.MayHaveHappened {
		t.Errorf("got %v, want unavailable and that it did not happen", err)
	}
	if _, err := store.Stats(t.Context()); err != nil {
		t.Errorf("reading while others write: %v", err)
	}
	unlock()
	group.Wait()
	put(t, store, "q", "later")
	if got := stats(t, store, "q").Scheduled; got != 2 {
		t.Errorf("%d tasks are there, want those of the callers who stayed", got)
	}
}

func TestLockedForTooLong(t *testing.T) {
	t.Parallel()
	path := file(t)
	store := open(t, path, sqlitestore.Options{Timeout: 50 * time.Millisecond})
	unlock := lock(t, path)
	defer unlock()
	began := time.Now()
	_, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 1})
	if took := time.Since(began); !errors.Is(err, dueq.ErrUnavailable) || took > 5*time.Second {
		t.Errorf("got %v after %v", err, took)
	}
}

// Those who open a new file at the same time all find it good.
func TestOpenTogether(t *testing.T) {
	t.Parallel()
	for range 5 {
		path := file(t)
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				store, err := sqlitestore.Open(path, sqlitestore.Options{})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := store.Schedule(t.Context(), many("q", i, 1)); err != nil {
					t.Error(err)
				}
				if err := store.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if got := stats(t, open(t, path, sqlitestore.Options{}), "q").Scheduled; got != 8 {
			t.Errorf("%d tasks are there, want 8", got)
		}
	}
}

// Many producers and consumers of two stores of one file: every task is
// delivered once.
func TestConcurrentStores(t *testing.T) {
	t.Parallel()
	path := file(t)
	stores := []*sqlitestore.Store{open(t, path, sqlitestore.Options{}), open(t, path, sqlitestore.Options{})}
	const producers, each = 8, 150
	var seen sync.Map
	var left atomic.Int64
	left.Store(producers * each)
	var group sync.WaitGroup
	for i := range producers {
		group.Go(func() {
			for j := range each {
				if _, err := stores[i%2].Schedule(t.Context(), many("q", i*each+j, 1)); err != nil {
					t.Error(err)
					left.Store(0)
				}
			}
		})
	}
	for i := range 4 {
		group.Go(func() {
			for left.Load() > 0 {
				claim, err := stores[i%2].Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 10})
				if err != nil {
					t.Error(err)
					return
				}
				results := make([]dueq.Result, len(claim.Tasks))
				for k, task := range claim.Tasks {
					results[k].Task = task
					if _, twice := seen.LoadOrStore(task.ID, true); twice {
						t.Errorf("%s was delivered twice", task.ID)
					}
				}
				outcomes, err := stores[(i+1)%2].Settle(t.Context(), "q", results)
				if err != nil || slices.ContainsFunc(outcomes, func(o dueq.Outcome) bool { return o.Status != dueq.StatusDone }) {
					t.Errorf("settled: %v, %v", outcomes, err)
					return
				}
				left.Add(-int64(len(results)))
			}
		})
	}
	group.Wait()
	s := stats(t, stores[0], "q")
	if s.Scheduled+s.Active+s.Dead != 0 || s.Totals.Acked != producers*each {
		t.Errorf("left over: %+v", s)
	}
}

// Hints and settings reach another store of the same file.
func TestWakeAcrossStores(t *testing.T) {
	t.Parallel()
	path := file(t)
	here, there := open(t, path, sqlitestore.Options{}), open(t, path, sqlitestore.Options{})
	put(t, there, "q", "before", dueq.In(time.Hour))
	hints, err := here.Wake(t.Context())
	must(t, err)
	expect := func(what string, due time.Time) {
		t.Helper()
		select {
		case hint := <-hints:
			if hint.Queue != "q" || !hint.Due.Equal(due) {
				t.Errorf("%s: got a hint of %v, want %v", what, hint, due)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: no hint comes", what)
		}
	}
	item := func(store dueq.Store, id string, d time.Duration) time.Time {
		outcomes, err := store.Schedule(t.Context(), []dueq.Item{{Queue: "q", Task: dueq.Task{ID: id}, When: dueq.In(d)}})
		must(t, err)
		return outcomes[0].Due
	}
	item(there, "later", 2*time.Hour) // no hint
	expect("earlier", item(there, "earlier", time.Minute))
	expect("earlier, of its own", item(here, "own", 30*time.Second))
	expect("earliest", item(there, "earliest", time.Second))
	_, err = there.SetSettings(t.Context(), "q", dueq.SettingsPatch{"paused": "on"})
	must(t, err)
	expect("settings", time.UnixMilli(0))
	settings, err := here.Settings(t.Context(), "q")
	if err != nil || !settings.Paused {
		t.Errorf("got %+v, %v, want paused", settings, err)
	}
	must(t, here.Close())
	if _, open := <-hints; open {
		t.Error("hints go on after Close")
	}
}

// A producer and a worker on stores of their own: tasks start on time. Runs
// alone, so that the other tests do not take the disk away.
func TestDrift(t *testing.T) {
	path := file(t)
	producer, consumer := open(t, path, sqlitestore.Options{}), open(t, path, sqlitestore.Options{})
	const tasks = 300
	var mu sync.Mutex
	var drifts []time.Duration
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var handled atomic.Int64
	ended := make(chan error, 1)
	go func() {
		ended <- work(ctx, consumer, func(*dueq.Task) {
			if handled.Add(1) == tasks {
				stop()
			}
		}, dueq.Observer{Started: func(_ *dueq.Task, drift time.Duration) {
			mu.Lock()
			drifts = append(drifts, drift)
			mu.Unlock()
		}})
	}()
	client := dueq.NewClient(producer, dueq.ClientOptions{})
	for i := range tasks {
		_, err := client.Schedule(t.Context(), "q", dueq.Task{ID: fmt.Sprint(i)}, dueq.In(time.Duration(100+i%7)*time.Millisecond))
		must(t, err)
		time.Sleep(3 * time.Millisecond)
	}
	select {
	case err := <-ended:
		must(t, err)
	case <-time.After(20 * time.Second):
		t.Fatalf("%d of %d tasks are handled", handled.Load(), tasks)
	}
	slices.Sort(drifts)
	p50, p99 := drifts[len(drifts)/2], drifts[len(drifts)*99/100]
	t.Logf("drift p50 %v, p99 %v, max %v", p50, p99, drifts[len(drifts)-1])
	if drifts[0] < 0 {
		t.Errorf("a task started %v early", -drifts[0])
	}
	if p99 > 50*time.Millisecond && !raced {
		t.Errorf("drift p99 %v, want 50 ms at most", p99)
	}
}
