package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// A server that comes back with the data of three seconds ago knows nothing of
// acks and leases since then, and workers hold leases that it never gave.
func TestRestore_that_goes_back_in_time_loses_nothing_of_before_and_strands_nothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	producer := openStore(t, srv.URL(), redisstore.Options{})
	_, err := producer.SetSettings(t.Context(), "q", dueq.SettingsPatch{"lease": "2s", "timeout": "20s", "retry_first": "10ms", "retries": "20"})
	must(t, err)
	done, log := newLedger(), &logCounter{}
	for range 2 {
		startWorker(t, openStore(t, srv.URL(), redisstore.Options{}), dueq.WorkerOptions{Logger: log.logger()}, slowOnes{done}, "q")
	}
	flow := func(name string, d time.Duration) (ids []string) {
		for i, began := 0, time.Now(); time.Since(began) < d; i++ {
			id := fmt.Sprintf("%s%d", name, i)
			all := []dueq.Item{item("q", id, dueq.In(0), "body"), item("q", "slow_"+id, dueq.In(0), "body"), item("q", "later_"+id, dueq.In(4*time.Second), "body")}
			scheduleAll(t, producer, all)
			for _, it := range all {
				ids = append(ids, it.Task.ID)
			}
			pass(t, 20*time.Millisecond)
		}
		return ids
	}
	kept := flow("kept", time.Second)
	srv.SaveSnapshot(t)
	flow("forgotten", 3*time.Second)
	srv.RestartFromSnapshot()
	back := time.Now()
	missing := func() (n int) {
		for _, id := range kept {
			if times, _ := done.of("q", id); times == 0 {
				n++
			}
		}
		return n
	}
	eventually(t, 30*time.Second, "all of before the snapshot is handled", func() bool { return missing() == 0 })
	eventually(t, 30*time.Second, "nothing is left", func() bool {
		st := statsOf(t, producer, "q")
		return st.Scheduled+st.Active+st.Dead == 0
	})
	st := statsOf(t, producer, "q")
	t.Logf("empty %v after the restore; %d handled again; %d leases ended", time.Since(back), len(done.repeated()), st.Totals.Ended)
	if len(done.repeated()) == 0 {
		t.Error("nothing ran again: too little was forgotten to mean anything")
	}
	if n := endedRuns(st.Totals); n != st.Totals.Claimed {
		t.Errorf("%d claimed, but %d ended: %+v", st.Totals.Claimed, n, st.Totals)
	}
	if strings.Contains(fmt.Sprintf("%+v", st.Totals), ":-") {
		t.Errorf("a total is negative: %+v", st.Totals)
	}
	for i, key := range keysOf("q") {
		if i != keySettings && i != keyStats && raw.Exists(t.Context(), key).Val() != 0 {
			t.Errorf("%s is left", key)
		}
	}
	if strings.Contains(log.String(), "panic") {
		t.Errorf("a worker panicked:\n%s", log)
	}
	scheduleAll(t, producer, []dueq.Item{item("q", "new", dueq.In(0))})
	eventually(t, 5*time.Second, "new tasks are handled", func() bool { n, _ := done.of("q", "new"); return n == 1 })
}

// Nobody schedules anything after the restart: what is overdue must not wait
// for that.
func TestRestore_overdue_tasks_run_at_once_after_restarts_of_all_sides(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.WithAOF())
	done := newLedger()
	store := openStore(t, srv.URL(), redisstore.Options{})
	stop := startWorker(t, store, dueq.WorkerOptions{}, done, "q")
	before := time.Now()
	scheduleAll(t, store, []dueq.Item{item("q", "overdue", dueq.In(time.Second)), item("q", "in_time", dueq.In(4*time.Second))})
	in4 := time.Now().Add(4 * time.Second)
	stop()
	srv.Kill()
	pass(t, 1500*time.Millisecond)
	srv.Restart()
	started := time.Now()
	startWorker(t, openStore(t, srv.URL(), redisstore.Options{}), dueq.WorkerOptions{}, done, "q")
	eventually(t, time.Second+slack, "the overdue task is handled", func() bool { n, _ := done.of("q", "overdue"); return n == 1 })
	t.Logf("overdue: handled %v after the start", time.Since(started))
	srv.Kill() // under the waiting worker
	srv.Restart()
	eventually(t, 10*time.Second, "the other is handled", func() bool { n, _ := done.of("q", "in_time"); return n == 1 })
	if _, at := done.of("q", "in_time"); at.Sub(in4) > time.Second+slack || at.Before(before.Add(4*time.Second)) {
		t.Errorf("handled %v after its due time, want 0 to 1 s", at.Sub(in4))
	}
	if repeated := done.repeated(); len(repeated) > 0 {
		t.Errorf("handled twice: %q", repeated)
	}
}

// What a failed run asked to wait for is kept in Redis, not in the worker and
// not in the server's memory alone.
func TestRestore_a_retry_waits_its_delay_over_restarts_of_worker_and_server(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.WithAOF())
	store := openStore(t, srv.URL(), redisstore.Options{})
	failed, again := make(chan time.Time, 1), make(chan time.Time, 10)
	stop := startWorker(t, store, dueq.WorkerOptions{}, deferring{failed, 4 * time.Second}, "q")
	scheduleAll(t, store, []dueq.Item{item("q", "a", past)})
	first := <-failed
	eventually(t, 5*time.Second, "the failure is stored", func() bool { return statsOf(t, store, "q").Totals.Retried == 1 })
	stop()
	srv.Kill()
	srv.Restart()
	startWorker(t, openStore(t, srv.URL(), redisstore.Options{}), dueq.WorkerOptions{}, deferring{again, 0}, "q")
	at := <-again
	if waited := at.Sub(first); waited < 4*time.Second || waited > 4*time.Second+time.Second+slack {
		t.Errorf("ran again after %v, want 4 s", waited)
	}
}

// slowOnes handles, and takes a second for tasks whose id says so.
type slowOnes struct{ *ledger }

// Handle implements dueq.Handler.
func (s slowOnes) Handle(ctx context.Context, task *dueq.Task) error {
	if strings.HasPrefix(task.ID, "slow_") {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.ledger.Handle(ctx, task)
}

// deferring tells when a task ran, and asks for another run after a while, if any.
type deferring struct {
	ran   chan<- time.Time
	again time.Duration
}

// Handle implements dueq.Handler.
func (f deferring) Handle(context.Context, *dueq.Task) error {
	f.ran <- time.Now()
	if f.again == 0 {
		return nil
	}
	return dueq.RetryIn(f.again, errors.New("not yet"))
}
