package dueq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

func TestWorkerStops(t *testing.T) {
	bubble(t, "with a long grace when its handlers have ended", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"timeout": "1m"})
		var j journal
		w := on(t, store, dueq.WorkerOptions{Concurrency: 4, Grace: 10 * time.Second}, j.takes(3*time.Second, ""))
		scheduleMany(t, store, "q", 100, dueq.In(0))
		pass(time.Second)
		signal := time.Now()
		if err := w.wait(t); err != nil {
			t.Errorf("Run returned %v", err)
		}
		if took := time.Since(signal); took != 2*time.Second {
			t.Errorf("stopped after %v, want 2 s", took)
		}
		if claims := store.log(func(c tapCall) bool { return c.op == "claim" && c.at.After(signal) }); len(claims) > 0 {
			t.Errorf("claims after the signal: %v", claims)
		}
		j.onceEach(t, 4)
		if st := stats(t, store, "q"); st.Totals.Acked != 4 || st.Active != 0 || st.Scheduled != 96 {
			t.Errorf("%+v, want 4 acked, none active, 96 scheduled", st)
		}
	})
	bubble(t, "with a short grace, and another worker gets the tasks uncharged", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"timeout": "1m"})
		var j, second journal
		w := on(t, store, dueq.WorkerOptions{Concurrency: 4, Grace: time.Second}, j.takes(30*time.Second, ""))
		scheduleMany(t, store, "q", 4, dueq.In(0))
		pass(time.Second)
		on(t, store, dueq.WorkerOptions{}, second.takes(0, ""))
		signal := time.Now()
		if err := w.wait(t); err != nil {
			t.Errorf("Run returned %v", err)
		}
		if took := time.Since(signal); took != time.Second {
			t.Errorf("stopped after %v, want 1 s", took)
		}
		pass(2 * time.Second)
		second.onceEach(t, 4)
		for _, r := range second.all() {
			if r.at.Sub(signal) > 3*time.Second {
				t.Errorf("%s ran elsewhere %v after the signal", r.id, r.at.Sub(signal))
			}
		}
	})
	bubble(t, "and what a handler says at the end still counts", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"timeout": "1m"})
		w := on(t, store, dueq.WorkerOptions{Grace: time.Second}, func(ctx context.Context, t *dueq.Task) error {
			<-ctx.Done()
			switch t.ID {
			case "ack":
				return nil
			case "again":
				return dueq.Again(time.Hour)
			case "dead":
				return dueq.Dead(errors.New("no"))
			}
			return ctx.Err()
		})
		for _, id := range []string{"ack", "again", "dead", "error"} {
			schedule(t, store, "q", id, dueq.In(0))
		}
		pass(time.Second)
		if err := w.wait(t); err != nil {
			t.Error(err)
		}
		if got := get(t, store, "q", "ack"); got.State != dueq.StateNone {
			t.Errorf("ack: %+v", got)
		}
		if got := get(t, store, "q", "again"); got.Round != 1 {
			t.Errorf("again: %+v", got)
		}
		if got := get(t, store, "q", "dead"); got.State != dueq.StateDead {
			t.Errorf("dead: %+v", got)
		}
		if got := get(t, store, "q", "error"); got.State != dueq.StateScheduled || got.Failures != 0 {
			t.Errorf("error: %+v", got)
		}
	})
	bubble(t, "and puts back at once what has not started", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"timeout": "1m"})
		var j, second journal
		w := start(t, store, dueq.WorkerOptions{Concurrency: 1, Grace: 20 * time.Second}, func(w *dueq.Worker) {
			w.Handle("q", "", j.takes(10*time.Second, "1"))
			warm(w)
		})
		warmUp(t, store)
		scheduleMany(t, store, "q", 5, dueq.In(0))
		pass(time.Second)
		if st := stats(t, store, "q"); st.Active != 5 {
			t.Fatalf("%d active, want all 5 claimed", st.Active)
		}
		w.stop()
		pass(0)
		if st := stats(t, store, "q"); st.Active != 1 || st.Totals.Released != 4 {
			t.Errorf("%d active, %d released; want 1 and 4 at once", st.Active, st.Totals.Released)
		}
		on(t, store, dueq.WorkerOptions{}, second.takes(0, "2"))
		pass(time.Second)
		second.onceEach(t, 4)
		if err := w.wait(t); err != nil {
			t.Error(err)
		}
	})
	bubble(t, "while a claim is under way, which is put back", func(t *testing.T) {
		store, _ := newTap()
		var slow atomic.Bool
		store.after = func(op, _ string) error {
			if op == "claim" && slow.Load() {
				time.Sleep(800 * time.Millisecond)
			}
			return nil
		}
		var j journal
		w := on(t, store, dueq.WorkerOptions{Concurrency: 5}, j.takes(0, ""))
		slow.Store(true)
		scheduleMany(t, store, "q", 20, dueq.In(time.Second))
		pass(1200 * time.Millisecond)
		if err := w.wait(t); err != nil {
			t.Error(err)
		}
		if st := stats(t, store, "q"); st.Active != 0 || st.Scheduled+st.Totals.Acked != 20 {
			t.Errorf("%+v, want none active and none lost", st)
		}
	})
	bubble(t, "with an error after grace and patience when a handler never returns", func(t *testing.T) {
		store, _ := newTap()
		release := make(chan struct{})
		defer close(release)
		w := on(t, store, dueq.WorkerOptions{Grace: 2 * time.Second}, func(_ context.Context, t *dueq.Task) error {
			<-release
			return nil
		})
		schedule(t, store, "q", "a", dueq.In(0))
		pass(time.Second)
		signal := time.Now()
		err := w.wait(t)
		if err == nil {
			t.Error("Run returned nil with a handler running")
		}
		if took := time.Since(signal); took < 2*time.Second || took > 11*time.Second {
			t.Errorf("Run returned after %v", took)
		}
	})
	bubble(t, "keeping leases until the last handler has returned", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"timeout": "1m", "lease": "1s"})
		var j journal
		w := on(t, store, dueq.WorkerOptions{Grace: -1}, func(ctx context.Context, t *dueq.Task) error {
			defer j.begin(t, "1")()
			<-ctx.Done()
			time.Sleep(2900 * time.Millisecond)
			return ctx.Err()
		})
		schedule(t, store, "q", "a", dueq.In(0))
		pass(time.Second)
		on(t, store, dueq.WorkerOptions{}, j.takes(0, "2"))
		if err := w.wait(t); err != nil {
			t.Error(err)
		}
		pass(time.Minute)
		if runs := j.all(); len(runs) != 2 || len(j.besides()) > 0 || runs[1].attempt != 1 {
			t.Errorf("runs %v, beside itself %v; want one more, later, uncharged", runs, j.besides())
		}
	})
	for name, fail := range map[string]func() error{
		"fails": func() error { return unavailable("settle", false) },
		"hangs": func() error { time.Sleep(10 * time.Second); return unavailable("settle", true) },
	} {
		bubble(t, "with an error when its verdicts cannot be stored because Settle "+name, func(t *testing.T) {
			store, _ := newTap()
			store.before = func(op, _ string) error {
				if op == "settle" {
					return fail()
				}
				return nil
			}
			w := on(t, store, dueq.WorkerOptions{}, func(context.Context, *dueq.Task) error { return nil })
			schedule(t, store, "q", "a", dueq.In(0))
			pass(time.Second)
			signal := time.Now()
			if err := w.wait(t); err == nil {
				t.Error("Run returned nil with a verdict not stored")
			}
			if took := time.Since(signal); took > 7*time.Second {
				t.Errorf("Run returned after %v", took)
			}
			over := time.Now()
			pass(time.Minute)
			if late := store.log(func(c tapCall) bool { return c.at.After(over) }); len(late) > 0 {
				t.Errorf("calls after Run returned: %v", late)
			}
		})
	}
	bubble(t, "when it is stopped before it starts", func(t *testing.T) {
		store, _ := newTap()
		schedule(t, store, "q", "a", dueq.In(0))
		w := quietWorker(store)
		w.Handle("q", "", dueq.HandlerFunc(func(context.Context, *dueq.Task) error { t.Error("handled"); return nil }))
		if err := w.Run(cancelled()); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	bubble(t, "and cannot run twice, or without handlers", func(t *testing.T) {
		store, _ := newTap()
		var field *dueq.FieldError
		if err := quietWorker(store).Run(t.Context()); !errors.As(err, &field) {
			t.Errorf("without handlers: %v, want a FieldError", err)
		}
		w := quietWorker(store)
		w.Handle("q", "", dueq.HandlerFunc(func(context.Context, *dueq.Task) error { return nil }))
		ctx, cancel := context.WithCancel(context.Background())
		errs := make(chan error, 5)
		for range 5 {
			go func() { errs <- w.Run(ctx) }()
		}
		for range 4 {
			if err := <-errs; !errors.As(err, &field) {
				t.Errorf("second Run: %v, want a FieldError", err)
			}
		}
		cancel()
		if err := <-errs; err != nil {
			t.Errorf("first Run: %v", err)
		}
		if err := w.Run(ctx); !errors.As(err, &field) {
			t.Errorf("Run after the end: %v, want a FieldError", err)
		}
	})
}

func quietWorker(store dueq.Store) *dueq.Worker {
	return dueq.NewWorker(store, dueq.WorkerOptions{Logger: slog.New(slog.DiscardHandler)})
}

func TestWorkerTellsItsObserver(t *testing.T) {
	bubble(t, "of everything", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"lease": "1s", "timeout": "1s", "concurrency": "1"})
		var mu sync.Mutex
		told := map[string]int{}
		tell := func(what string) { mu.Lock(); told[what]++; mu.Unlock() }
		var down atomic.Bool
		store.before = func(op, _ string) error {
			if down.Load() && op == "extend" {
				return unavailable(op, false)
			}
			return nil
		}
		opts := dueq.WorkerOptions{Observer: dueq.Observer{
			Call: func(op, queue string, n int, took time.Duration, err error) {
				if err != nil {
					op += " failed"
				}
				tell("call " + op)
			},
			Claimed: func(_ string, c dueq.Claim) { tell(fmt.Sprint("claimed ", len(c.Tasks))) },
			Started: func(t *dueq.Task, drift time.Duration) { tell(fmt.Sprint("started ", t.ID, " ", drift)) },
			Ended: func(t *dueq.Task, v dueq.Verdict, took time.Duration, err error) {
				tell(fmt.Sprint("ended ", t.ID, " ", v, " ", took, " ", err))
			},
			Settled: func(t *dueq.Task, o dueq.Outcome) { tell(fmt.Sprint("settled ", t.ID, " ", o.Status)) },
			Dropped: func(t *dueq.Task) { tell("dropped " + t.ID) },
			Overran: func(t *dueq.Task) { tell("overran " + t.ID) },
		}}
		start(t, store, opts, func(w *dueq.Worker) {
			w.Handle("q", "", dueq.HandlerFunc(func(_ context.Context, t *dueq.Task) error {
				if t.ID == "slow" && t.Attempt == 1 {
					time.Sleep(6 * time.Second)
				}
				if t.ID == "dead" {
					return dueq.Dead(errors.New("no"))
				}
				return nil
			}))
			warm(w)
		})
		warmUp(t, store)
		down.Store(true)
		schedule(t, store, "q", "dead", dueq.In(time.Second))
		schedule(t, store, "q", "slow", dueq.In(2*time.Second))
		schedule(t, store, "q", "x", dueq.In(2*time.Second))
		pass(5 * time.Second)
		down.Store(false)
		pass(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		for _, what := range []string{
			"call claim", "call stats", "call settle", "call extend failed", "claimed 1", "started dead 0s",
			"ended dead dead 0s no", "settled dead done", "overran slow", "dropped x", "ended slow ack 6s <nil>",
		} {
			if told[what] == 0 {
				t.Errorf("was not told %q, but %v", what, told)
			}
		}
		if told["overran slow"] != 1 {
			t.Errorf("told of the overrun %d times", told["overran slow"])
		}
	})
}
