package dueq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
)

func TestWorkerKeepsLeases(t *testing.T) {
	bubble(t, "of handlers slower than the lease", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"lease": "2s", "timeout": "10s", "concurrency": "5"})
		var j journal
		for _, name := range []string{"1", "2"} {
			on(t, store, dueq.WorkerOptions{}, j.takes(7*time.Second, name))
		}
		scheduleMany(t, store, "q", 20, dueq.In(time.Second))
		pass(time.Minute)
		j.onceEach(t, 20)
		if st := stats(t, store, "q"); st.Totals.Acked != 20 || st.Totals.Ended != 0 {
			t.Errorf("totals %+v, want 20 acked and no lease ended", st.Totals)
		}
	})
	bubble(t, "of others from lingering: a full worker takes back what a dead one held", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"timeout": "2m", "lease": "2s"})
		schedule(t, store, "q", "held", dueq.In(0))
		if c, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 1}); err != nil || len(c.Tasks) != 1 {
			t.Fatalf("claim: %+v, %v", c, err)
		}
		var j journal
		on(t, store, dueq.WorkerOptions{Concurrency: 1}, j.takes(time.Minute, ""))
		schedule(t, store, "q", "slow", dueq.In(0))
		pass(10 * time.Second)
		if info := get(t, store, "q", "held"); info.State != dueq.StateScheduled || info.Failures != 1 || len(j.all()) != 1 {
			t.Errorf("after its lease ended: %+v, %d runs", info, len(j.all()))
		}
	})
	bubble(t, "of what is not due yet from nobody: one run of a task due after many leases", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"lease": "2s"})
		var j journal
		for range 3 {
			on(t, store, dueq.WorkerOptions{}, j.takes(0, ""))
		}
		schedule(t, store, "q", "a", dueq.In(15*time.Second))
		pass(14999 * time.Millisecond)
		if st := stats(t, store, "q"); st.Active != 0 || st.Scheduled != 1 {
			t.Errorf("before its due: %+v", st)
		}
		pass(time.Minute)
		j.onceEach(t, 1)
	})
	bubble(t, "of what waits in its buffer", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"lease": "2s", "timeout": "1m"})
		var j journal
		for _, name := range []string{"1", "2"} {
			start(t, store, dueq.WorkerOptions{Concurrency: 1}, func(w *dueq.Worker) {
				w.Handle("q", "", j.takes(7*time.Second, name))
				warm(w)
			})
			warmUp(t, store)
		}
		scheduleMany(t, store, "q", 8, dueq.In(0))
		pass(time.Second)
		if st := stats(t, store, "q"); st.Active < 6 {
			t.Errorf("%d claimed, want a buffer", st.Active)
		}
		pass(2 * time.Minute)
		j.onceEach(t, 8)
	})
	bubble(t, "of few tasks, so that two workers share", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"lease": "5s", "batch": "50"})
		var j journal
		for _, name := range []string{"1", "2"} {
			on(t, store, dueq.WorkerOptions{Concurrency: 1}, j.takes(time.Second, name))
		}
		scheduleMany(t, store, "q", 50, dueq.In(0))
		pass(30 * time.Second)
		j.onceEach(t, 50)
		if by := j.byWorker(); by["1"] < 20 || by["2"] < 20 {
			t.Errorf("runs by worker %v, want a fair share each", by)
		}
	})
	bubble(t, "until the timeout and a second, so that another worker gets the task", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"lease": "2s", "timeout": "1s", "concurrency": "2"})
		var j journal
		var overran atomic.Int32
		release := make(chan struct{})
		defer close(release)
		opts := dueq.WorkerOptions{Observer: dueq.Observer{Overran: func(*dueq.Task) { overran.Add(1) }}}
		on(t, store, opts, func(ctx context.Context, t *dueq.Task) error {
			if t.ID[0] != 'b' {
				return errors.New("good ones come when worker 1 is stuck")
			}
			defer j.begin(t, "1")()
			<-ctx.Done()
			if ctx.Err() != context.DeadlineExceeded {
				return ctx.Err()
			}
			<-release
			return nil
		})
		began := time.Now()
		for i := range 2 {
			schedule(t, store, "q", fmt.Sprint("bad", i), dueq.In(0))
		}
		pass(500 * time.Millisecond)
		var good journal
		on(t, store, dueq.WorkerOptions{}, good.takes(100*time.Millisecond, "2"))
		scheduleMany(t, store, "q", 10, dueq.In(0))
		pass(time.Second)
		for _, r := range good.all() {
			if r.attempt != 1 {
				t.Errorf("good task %s at attempt %d", r.id, r.attempt)
			}
		}
		if n := len(good.all()); n != 10 {
			t.Errorf("%d good tasks ran on worker 2 within 1 s, want 10", n)
		}
		pass(time.Minute)
		if got := overran.Load(); got != 2 {
			t.Errorf("%d overruns reported, want 2", got)
		}
		for i := range 2 {
			runs := good.of(fmt.Sprint("bad", i))
			if len(runs) != 1 || runs[0].attempt != 2 {
				t.Fatalf("bad%d ran %v on worker 2, want once at attempt 2", i, runs)
			}
			// Renewed at 2 s at the latest, for 2 s rounded up, and 1 s to the next claim.
			if after := runs[0].at.Sub(began); after < 2*time.Second || after > 6*time.Second {
				t.Errorf("bad%d came to worker 2 after %v", i, after)
			}
		}
		if st := stats(t, store, "q"); st.Active+st.Scheduled+st.Dead != 0 || st.Totals.Ended != 2 {
			t.Errorf("left over: %+v", st)
		}
	})
	bubble(t, "and ends the handler's context when one is lost", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"lease": "2s", "timeout": "1m"})
		c := dueq.NewClient(store, dueq.ClientOptions{})
		var j journal
		causes := make(chan error, 10)
		on(t, store, dueq.WorkerOptions{}, func(ctx context.Context, t *dueq.Task) error {
			defer j.begin(t, "")()
			err := sleep(ctx, time.Minute)
			causes <- err
			return err
		})
		schedule(t, store, "q", "a", dueq.In(0))
		pass(5 * time.Second)
		stopped := time.Now()
		if err := c.Stop(t.Context(), "q", "a"); err != nil {
			t.Fatal(err)
		}
		if err := <-causes; !errors.Is(err, dueq.ErrLeaseLost) {
			t.Errorf("cause %v, want ErrLeaseLost", err)
		}
		if after := time.Since(stopped); after > 2*time.Second {
			t.Errorf("context ended after %v", after)
		}
		pass(time.Hour)
		j.onceEach(t, 1)
		if got := get(t, store, "q", "a"); got.State != dueq.StateNone {
			t.Errorf("left over: %+v", got)
		}
	})
	bubble(t, "of a cancelled run, which is the last however it ends", func(t *testing.T) {
		store, _ := newTap()
		c := dueq.NewClient(store, dueq.ClientOptions{})
		var j journal
		on(t, store, dueq.WorkerOptions{}, func(_ context.Context, t *dueq.Task) error {
			defer j.begin(t, "")()
			time.Sleep(time.Second)
			return errors.New("no")
		})
		schedule(t, store, "q", "a", dueq.In(0))
		pass(500 * time.Millisecond)
		schedule(t, store, "q", "a", dueq.In(time.Minute))
		if err := c.Cancel(t.Context(), "q", "a"); !errors.Is(err, dueq.ErrRunning) {
			t.Errorf("cancel: %v, want ErrRunning", err)
		}
		pass(time.Hour)
		j.onceEach(t, 1)
		if got := get(t, store, "q", "a"); got.State != dueq.StateNone {
			t.Errorf("left over: %+v", got)
		}
	})
	bubble(t, "of batches: one lost task does not end the others", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"lease": "2s", "timeout": "1m"})
		c := dueq.NewClient(store, dueq.ClientOptions{})
		var j journal
		start(t, store, dueq.WorkerOptions{}, func(w *dueq.Worker) {
			w.HandleBatch("q", "", 10, func(ctx context.Context, tasks []*dueq.Task) []error {
				for _, t := range tasks {
					defer j.begin(t, "")()
				}
				if err := sleep(ctx, 10*time.Second); err != nil {
					t.Errorf("context ended: %v", err)
				}
				return nil
			})
		})
		scheduleMany(t, store, "q", 3, dueq.In(time.Second))
		pass(2 * time.Second)
		if err := c.Stop(t.Context(), "q", "t00001"); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		j.onceEach(t, 3)
		if st := stats(t, store, "q"); st.Totals.Acked != 2 || st.Totals.Stopped != 1 {
			t.Errorf("totals %+v, want 2 acked, 1 stopped", st.Totals)
		}
	})
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		for _, full := range []bool{false, true} {
			bubble(t, fmt.Sprintf("over a jump of the store's clock by %v, every slot taken %v", jump, full), func(t *testing.T) {
				testClockJump(t, jump, full)
			})
		}
	}
	bubble(t, "over a jump of the store's clock, though the first renewals after it fail", testRenewalBeforeClaim)
	bubble(t, "and drops what it could not keep before it starts", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"lease": "2s", "timeout": "1m"})
		var down atomic.Bool
		store.before = func(op, _ string) error {
			if op == "extend" && down.Load() {
				return unavailable(op, false)
			}
			return nil
		}
		var j journal
		var dropped atomic.Int32
		opts := dueq.WorkerOptions{Concurrency: 1, Observer: dueq.Observer{Dropped: func(*dueq.Task) { dropped.Add(1) }}}
		start(t, store, opts, func(w *dueq.Worker) {
			w.Handle("q", "", dueq.HandlerFunc(func(_ context.Context, t *dueq.Task) error {
				defer j.begin(t, "")()
				if t.ID == "t00000" {
					time.Sleep(8 * time.Second)
				}
				return nil
			}))
			warm(w)
		})
		warmUp(t, store)
		down.Store(true)
		scheduleMany(t, store, "q", 5, dueq.In(0))
		pass(9 * time.Second)
		down.Store(false)
		pass(time.Minute)
		if dropped.Load() != 4 {
			t.Errorf("%d dropped, want the 4 of the buffer", dropped.Load())
		}
		for i := range 5 {
			id := fmt.Sprintf("t%05d", i)
			if got := get(t, store, "q", id); got.State != dueq.StateNone {
				t.Errorf("%s was lost or is stuck: %+v", id, got)
			}
			if runs := j.of(id); i > 0 && (len(runs) != 1 || runs[0].attempt != 2) {
				t.Errorf("%s ran %v, want once, by its second lease", id, runs)
			}
		}
	})
}

// testClockJump: leases are renewed within a second of a jump and before the
// next claim, so that nobody else takes the tasks of a living worker.
func testClockJump(t *testing.T, jump time.Duration, full bool) {
	var offset atomic.Int64
	mem := memstore.New(memstore.Options{Now: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }})
	store, other := &tap{Store: mem}, &tap{Store: mem}
	set(t, store, "q", dueq.SettingsPatch{"timeout": "2m", "lease": "30s"})
	slots := map[bool]int{true: 3, false: 10}[full]
	var j journal
	on(t, store, dueq.WorkerOptions{Concurrency: slots}, j.takes(time.Minute, "1"))
	scheduleMany(t, store, "q", 3, dueq.In(0))
	pass(2 * time.Second)
	on(t, other, dueq.WorkerOptions{}, j.takes(time.Minute, "2"))
	pass(1300 * time.Millisecond)
	offset.Store(int64(jump))
	jumped := time.Now()
	pass(20 * time.Second)
	after := store.log(func(c tapCall) bool { return c.op == "extend" && c.at.After(jumped) })
	if len(after) == 0 || after[0].at.Sub(jumped) > 1300*time.Millisecond {
		t.Errorf("leases were renewed at %v after the jump at %v, want within 1.3 s", after, jumped)
	}
	claims := store.log(func(c tapCall) bool { return c.op == "claim" && c.at.After(jumped) })
	if len(after) > 0 && len(claims) > 1 && claims[1].at.Before(after[0].at) {
		t.Errorf("the second claim after the jump, at %v, came before the renewal at %v", claims[1].at, after[0].at)
	}
	if got := get(t, store, "q", "t00000"); got.LeaseEnds.Sub(time.Now().Add(jump)) > 31*time.Second {
		t.Errorf("the lease ends %v from now", got.LeaseEnds.Sub(time.Now().Add(jump)))
	}
	pass(2 * time.Minute)
	j.onceEach(t, 3)
}

// testRenewalBeforeClaim: as long as a renewal after a jump does not come
// through, nothing is claimed.
func testRenewalBeforeClaim(t *testing.T) {
	var offset atomic.Int64
	mem := memstore.New(memstore.Options{Now: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }})
	store := &tap{Store: mem}
	set(t, store, "q", dueq.SettingsPatch{"timeout": "2m", "lease": "30s"})
	var refusals atomic.Int32
	store.before = func(op, _ string) error {
		if op == "extend" && refusals.Add(-1) >= 0 {
			return unavailable(op, false)
		}
		return nil
	}
	var j journal
	on(t, store, dueq.WorkerOptions{Concurrency: 10}, j.takes(time.Minute, ""))
	scheduleMany(t, store, "q", 3, dueq.In(0))
	pass(2 * time.Second)
	refusals.Store(3)
	offset.Store(int64(time.Hour))
	jumped := time.Now()
	pass(4 * time.Second)
	after := store.log(func(c tapCall) bool { return (c.op == "extend" || c.op == "claim") && c.at.After(jumped) })
	var seen []string
	for _, c := range after {
		if c.op == "extend" && c.err == nil {
			break
		}
		seen = append(seen, c.op)
	}
	failed := slices.Index(seen, "extend")
	if failed < 0 || len(seen) == len(after) || slices.Contains(seen[failed:], "claim") {
		t.Errorf("after the jump the calls were %v, want no claim from the renewal that failed to the first that did not", after)
	}
	pass(2 * time.Minute)
	j.onceEach(t, 3)
}
