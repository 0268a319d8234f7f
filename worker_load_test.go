package dueq_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

func TestWorkerUsesItsSlots(t *testing.T) {
	bubble(t, "all of them, for a backlog", func(t *testing.T) {
		store, _ := newTap()
		var j journal
		began, last := time.Now(), time.Time{}
		var mu sync.Mutex
		on(t, store, dueq.WorkerOptions{Concurrency: 50}, func(ctx context.Context, t *dueq.Task) error {
			defer j.begin(t, "")()
			defer func() { mu.Lock(); last = time.Now(); mu.Unlock() }()
			return sleep(ctx, 100*time.Millisecond)
		})
		scheduleMany(t, store, "q", 5000, dueq.In(0))
		pass(time.Minute)
		j.onceEach(t, 5000)
		mu.Lock()
		defer mu.Unlock()
		if took := last.Sub(began); took > 20*time.Second {
			t.Errorf("drained in %v, ideal is 10 s", took)
		}
		if j.highest() > 50 {
			t.Errorf("%d ran at once, want at most 50", j.highest())
		}
		t.Logf("drained in %v, %d claims, %d scans", last.Sub(began), store.count("claim"), store.count("stats"))
	})
	bubble(t, "with large claims when handlers are instant", func(t *testing.T) {
		store, _ := newTap()
		store.before = func(string, string) error { time.Sleep(time.Millisecond); return nil }
		var j journal
		on(t, store, dueq.WorkerOptions{}, j.takes(0, ""))
		scheduleMany(t, store, "q", 5000, dueq.In(time.Second))
		pass(time.Minute)
		j.onceEach(t, 5000)
		if got := len(store.log(func(c tapCall) bool { return c.op == "claim" && c.n > 0 })); got > 150 {
			t.Errorf("%d claims for 5,000 tasks by 100", got)
		}
	})
	bubble(t, "with two claims at a time for a backlog, one otherwise", func(t *testing.T) {
		for _, row := range []struct{ tasks, slots, want int32 }{{50, 300, 1}, {1000, 50, 1}, {1000, 300, 2}} {
			store, _ := newTap()
			var claims, most atomic.Int32
			store.before = func(op, _ string) error {
				if op == "claim" {
					most.Store(max(most.Load(), claims.Add(1)))
					time.Sleep(10 * time.Millisecond)
					claims.Add(-1)
				}
				return nil
			}
			var j journal
			scheduleMany(t, store, "q", int(row.tasks), dueq.In(time.Second))
			pass(time.Minute)
			on(t, store, dueq.WorkerOptions{Concurrency: int(row.slots)}, j.takes(time.Second, ""))
			pass(time.Minute)
			j.onceEach(t, int(row.tasks))
			if most.Load() != row.want || j.highest() > int(row.slots) {
				t.Errorf("%d tasks, %d slots: %d claims at once, want %d; %d tasks ran at once", row.tasks, row.slots, most.Load(), row.want, j.highest())
			}
		}
	})
	bubble(t, "with large claims when handlers are short", func(t *testing.T) {
		store, _ := newTap()
		store.before = func(string, string) error { time.Sleep(time.Millisecond); return nil }
		var j journal
		handler := dueq.HandlerFunc(func(_ context.Context, t *dueq.Task) error {
			defer j.begin(t, "")()
			time.Sleep(time.Duration(1+len(j.all())%7) * time.Millisecond) // so that they end one by one
			return nil
		})
		start(t, store, dueq.WorkerOptions{Concurrency: 20}, func(w *dueq.Worker) { w.Handle("q", "", handler) })
		scheduleMany(t, store, "q", 2000, dueq.In(time.Second))
		pass(time.Minute)
		j.onceEach(t, 2000)
		got := len(store.log(func(c tapCall) bool { return c.op == "claim" && c.n > 0 }))
		t.Logf("%d claims", got)
		if got > 100 {
			t.Errorf("%d claims for 2,000 tasks by 20", got)
		}
	})
	for _, batch := range []string{"100", "2"} {
		bubble(t, "and no more: what it holds is what it runs, by batches of "+batch, func(t *testing.T) {
			store, _ := newTap()
			slowly(store, "claim", 10*time.Millisecond)
			set(t, store, "q", dueq.SettingsPatch{"timeout": "1m", "batch": batch})
			var j journal
			var mu sync.Mutex
			held, most := 0, 0
			opts := dueq.WorkerOptions{Concurrency: 4, Observer: dueq.Observer{
				Claimed: func(_ string, c dueq.Claim) { mu.Lock(); held += len(c.Tasks); most = max(most, held); mu.Unlock() },
				Ended:   func(*dueq.Task, dueq.Verdict, time.Duration, error) { mu.Lock(); held--; mu.Unlock() },
			}}
			on(t, store, opts, j.takes(time.Second, ""))
			scheduleMany(t, store, "q", 40, dueq.In(0))
			pass(9500 * time.Millisecond)
			if st := stats(t, store, "q"); st.Active > 4 {
				t.Errorf("%d active in the store, want at most 4", st.Active)
			}
			pass(time.Minute)
			j.onceEach(t, 40)
			mu.Lock()
			defer mu.Unlock()
			if most > 4 || j.highest() != 4 {
				t.Errorf("held %d, ran %d at once, want 4", most, j.highest())
			}
		})
	}
	for _, workers := range []int{1, 8} {
		bubble(t, fmt.Sprintf("for many tasks due at one instant, %d workers", workers), func(t *testing.T) {
			store, _ := newTap()
			var j journal
			for i := range workers {
				on(t, store, dueq.WorkerOptions{Concurrency: 64}, j.takes(time.Millisecond, fmt.Sprint(i)))
			}
			scheduleMany(t, store, "q", 3000, dueq.In(5*time.Second))
			pass(time.Minute)
			j.onceEach(t, 3000)
		})
	}
	bubble(t, "of a queue with delivery at_most_once", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"delivery": "at_most_once", "lease": "1s", "timeout": "10s"})
		var j journal
		on(t, store, dueq.WorkerOptions{Concurrency: 3}, func(ctx context.Context, t *dueq.Task) error {
			defer j.begin(t, "")()
			if t.ID == "t00001" && t.Round == 0 {
				return dueq.Again(5 * time.Second)
			}
			if t.ID == "t00002" {
				return errors.New("no retry of this")
			}
			return sleep(ctx, 4*time.Second)
		})
		scheduleMany(t, store, "q", 10, dueq.In(0))
		pass(time.Minute)
		if got := len(j.all()); got != 11 || len(j.of("t00001")) != 2 {
			t.Errorf("%d runs, want each once and t00001 twice", got)
		}
		if n := store.count("extend"); n != 0 {
			t.Errorf("%d renewals of leases there are none of", n)
		}
		if st := stats(t, store, "q"); st.Scheduled+st.Active+st.Dead != 0 {
			t.Errorf("left over: %+v", st)
		}
	})
	bubble(t, "as its settings say, live", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"timeout": "1h", "concurrency": "1"})
		var j journal
		on(t, store, dueq.WorkerOptions{}, j.takes(20*time.Second, ""))
		scheduleMany(t, store, "q", 100, dueq.In(0))
		pass(5 * time.Second)
		if got := len(j.all()); got != 1 {
			t.Errorf("%d run with concurrency 1", got)
		}
		set(t, store, "q", dueq.SettingsPatch{"concurrency": "5"})
		pass(2100 * time.Millisecond)
		if got := len(j.all()); got != 5 {
			t.Errorf("%d run 2 s after concurrency rose to 5", got)
		}
		set(t, store, "q", dueq.SettingsPatch{"concurrency": "2"})
		pass(15 * time.Second) // 22.1 s: the first has ended, one may not have been replaced
		if got := len(j.all()); got != 5 {
			t.Errorf("%d runs after concurrency fell to 2, want 5", got)
		}
		pass(6 * time.Second) // 28.1 s: those of 5 s to 7 s have ended too
		if got := len(j.all()); got != 7 {
			t.Errorf("%d runs, want 7", got)
		}
	})
	bubble(t, "fewer of them soon after its settings say so, whatever it holds", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"concurrency": "50"})
		var j journal
		on(t, store, dueq.WorkerOptions{}, j.takes(2*time.Millisecond, ""))
		scheduleMany(t, store, "q", 20_000, dueq.In(0))
		pass(200 * time.Millisecond)
		if j.highest() != 50 {
			t.Errorf("%d ran at once, want 50", j.highest())
		}
		set(t, store, "q", dueq.SettingsPatch{"concurrency": "2"})
		pass(100 * time.Millisecond)
		j.mu.Lock()
		j.most = 0
		ran := len(j.runs)
		j.mu.Unlock()
		pass(100 * time.Millisecond)
		j.mu.Lock()
		defer j.mu.Unlock()
		if more := len(j.runs) - ran; j.most > 2 || more == 0 {
			t.Errorf("%d ran at once and %d in all, want 2", j.most, more)
		}
	})
	bubble(t, "with the timeout its settings say, live", func(t *testing.T) {
		store, _ := newTap()
		var mu sync.Mutex
		took := map[string]time.Duration{}
		on(t, store, dueq.WorkerOptions{}, func(ctx context.Context, t *dueq.Task) error {
			began := time.Now()
			err := sleep(ctx, time.Hour)
			mu.Lock()
			defer mu.Unlock()
			took[t.ID] = time.Since(began)
			return dueq.Dead(err)
		})
		schedule(t, store, "q", "a", dueq.In(0))
		pass(time.Minute)
		set(t, store, "q", dueq.SettingsPatch{"timeout": "10s"})
		pass(1100 * time.Millisecond)
		schedule(t, store, "q", "b", dueq.In(0))
		pass(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if took["a"] != 3*time.Second || took["b"] != 10*time.Second {
			t.Errorf("timeouts %v, want 3 s and 10 s", took)
		}
		if got := get(t, store, "q", "a"); got.LastError != context.DeadlineExceeded.Error() {
			t.Errorf("error %q, want the deadline's", got.LastError)
		}
	})
	bubble(t, "not while paused, and again within a second", func(t *testing.T) {
		store, mem := newTap()
		store.deaf = true
		var j journal
		on(t, store, dueq.WorkerOptions{}, j.takes(0, ""))
		pass(time.Minute)
		set(t, mem, "q", dueq.SettingsPatch{"paused": "on"})
		scheduleMany(t, mem, "q", 5, dueq.In(0))
		before := store.count("claim", "stats")
		pass(time.Minute)
		if got := len(j.all()); got != 0 {
			t.Errorf("%d runs while paused", got)
		}
		if got := store.count("claim", "stats") - before; got > 130 {
			t.Errorf("%d calls in a paused minute", got)
		}
		resumed := time.Now()
		set(t, mem, "q", dueq.SettingsPatch{"paused": "off"})
		pass(time.Minute)
		j.onceEach(t, 5)
		if late := j.all()[4].at.Sub(resumed); late > time.Second {
			t.Errorf("the last ran %v after resume", late)
		}
	})
}

func TestWorkerIsCheapWhenIdle(t *testing.T) {
	for _, queues := range []int{1, 100} {
		bubble(t, fmt.Sprintf("with %d queues", queues), func(t *testing.T) {
			store, _ := newTap()
			start(t, store, dueq.WorkerOptions{}, func(w *dueq.Worker) {
				for i := range queues {
					w.Handle(fmt.Sprint("q", i), "", dueq.HandlerFunc(func(context.Context, *dueq.Task) error { return nil }))
				}
			})
			schedule(t, store, "q0", "far", dueq.In(time.Hour))
			pass(time.Minute)
			before := store.count("stats")
			claims := store.count("claim", "extend", "settle")
			pass(time.Minute)
			if got := store.count("stats") - before; got > 70 {
				t.Errorf("%d Stats calls in an idle minute", got)
			}
			if got := store.count("claim", "extend", "settle") - claims; got > 0 {
				t.Errorf("%d other calls in an idle minute", got)
			}
		})
	}
	for _, workers := range []int{4, 40} {
		bubble(t, fmt.Sprintf("when %d workers wait for one task a second", workers), func(t *testing.T) {
			store, _ := newTap()
			store.before = func(string, string) error { time.Sleep(300 * time.Microsecond); return nil }
			var j journal
			for i := range workers {
				on(t, store, dueq.WorkerOptions{}, j.takes(5*time.Millisecond, fmt.Sprint(i)))
			}
			ctx := t.Context()
			go func() {
				for i := 0; sleep(ctx, time.Second) == nil; i++ {
					store.Store.Schedule(ctx, []dueq.Item{{Queue: "q", Task: dueq.Task{ID: fmt.Sprint(i)}, When: dueq.In(500 * time.Millisecond)}})
				}
			}()
			pass(10 * time.Second)
			since := time.Now()
			pass(time.Minute)
			empty := len(store.log(func(c tapCall) bool { return c.op == "claim" && c.n == 0 && c.at.After(since) }))
			perTask := float64(empty) / 60
			t.Logf("%d workers: %.1f empty claims per task", workers, perTask)
			if perTask > 2+float64(workers)/10 {
				t.Errorf("%.1f empty claims per task by %d workers", perTask, workers)
			}
			for _, r := range j.all() {
				if r.attempt != 1 {
					t.Errorf("%+v", r)
				}
			}
			if n := len(j.all()); n < 68 || n > 70 {
				t.Errorf("%d runs, want 69", n)
			}
		})
	}
}

// Workers that always come too late for a head leave it to the others.
func TestWorkerLeavesHeadsToOthers(t *testing.T) {
	bubble(t, "but not for heads that were cancelled", func(t *testing.T) {
		store, _ := newTap()
		store.before = func(string, string) error { time.Sleep(300 * time.Microsecond); return nil }
		var j journal
		on(t, store, dueq.WorkerOptions{}, j.takes(0, ""))
		client := dueq.NewClient(store, dueq.ClientOptions{})
		for i := range 20 {
			id := fmt.Sprint("cancelled", i)
			schedule(t, store, "q", id, dueq.In(time.Second))
			pass(500 * time.Millisecond)
			if err := client.Cancel(t.Context(), "q", id); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
		}
		due := time.Now().Add(time.Second)
		schedule(t, store, "q", "kept", dueq.At(due))
		pass(5 * time.Second)
		if late := j.all()[0].at.Sub(due); len(j.all()) != 1 || late > 5*time.Millisecond {
			t.Errorf("%d runs, %v late", len(j.all()), late)
		}
	})
	bubble(t, "and comes when they have no room", func(t *testing.T) {
		store, _ := newTap()
		store.before = func(string, string) error { time.Sleep(300 * time.Microsecond); return nil }
		var j journal
		handler := func(ctx context.Context, t *dueq.Task) error {
			defer j.begin(t, "")()
			if t.ID == "long" {
				return sleep(ctx, 2*time.Second)
			}
			return nil
		}
		on(t, store, dueq.WorkerOptions{Concurrency: 1}, handler)
		on(t, store, dueq.WorkerOptions{Concurrency: 1}, handler)
		for i := range 30 {
			schedule(t, store, "q", fmt.Sprint(i), dueq.In(500*time.Millisecond))
			pass(time.Second)
		}
		schedule(t, store, "q", "long", dueq.In(500*time.Millisecond))
		due := time.Now().Add(700 * time.Millisecond)
		schedule(t, store, "q", "short", dueq.At(due))
		pass(5 * time.Second)
		for _, r := range j.all() {
			if late := r.at.Sub(due); r.id == "short" && late > 20*time.Millisecond {
				t.Errorf("%v late", late)
			}
		}
		j.onceEach(t, 32)
	})
}
