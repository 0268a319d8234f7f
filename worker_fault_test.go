package dueq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

// logCounter counts log records by message.
type logCounter struct {
	mu     sync.Mutex
	counts map[string]int
}

func (l *logCounter) Enabled(context.Context, slog.Level) bool { return true }
func (l *logCounter) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logCounter) WithGroup(string) slog.Handler            { return l }
func (l *logCounter) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts = map[string]int{}
	}
	l.counts[r.Level.String()+" "+r.Message]++
	return nil
}

func (l *logCounter) of(prefix string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for message, count := range l.counts {
		if strings.HasPrefix(message, prefix) {
			n += count
		}
	}
	return n
}

func TestWorkerSurvivesAnUnavailableStore(t *testing.T) {
	for _, queues := range []int{1, 100} {
		for _, busy := range []bool{false, true} {
			bubble(t, fmt.Sprintf("with %d queues, busy %v, few calls and fewer words", queues, busy), func(t *testing.T) {
				testOutage(t, queues, busy)
			})
		}
	}
	bubble(t, "that was away when it started", func(t *testing.T) {
		store, mem := newTap()
		began := time.Now()
		store.before = func(op, _ string) error {
			if time.Since(began) < time.Minute {
				return unavailable(op, false)
			}
			return nil
		}
		var j journal
		schedule(t, mem, "q", "a", dueq.In(0))
		on(t, store, dueq.WorkerOptions{}, j.takes(0, ""))
		pass(2 * time.Minute)
		wantWithin(t, &j, "a", began.Add(time.Minute), 2*time.Second)
	})
	bubble(t, "and a due time during a short outage is met", func(t *testing.T) {
		store, _ := newTap()
		var down atomic.Bool
		store.before = func(op, _ string) error {
			if down.Load() {
				return unavailable(op, false)
			}
			return nil
		}
		var j journal
		on(t, store, dueq.WorkerOptions{}, j.takes(0, ""))
		began := time.Now()
		schedule(t, store, "q", "a", dueq.In(20*time.Second))
		pass(8 * time.Second)
		down.Store(true)
		pass(5 * time.Second)
		down.Store(false)
		pass(time.Minute)
		wantWithin(t, &j, "a", began.Add(20*time.Second), 0)
	})
	bubble(t, "that hangs: every call takes its second", func(t *testing.T) {
		store, _ := newTap()
		var down atomic.Bool
		store.before = func(op, _ string) error {
			if down.Load() {
				time.Sleep(time.Second)
				return unavailable(op, true)
			}
			return nil
		}
		set(t, store, "q", dueq.SettingsPatch{"timeout": "5m", "lease": "10s"})
		var j journal
		on(t, store, dueq.WorkerOptions{}, j.takes(2*time.Minute, ""))
		schedule(t, store, "q", "long", dueq.In(0))
		schedule(t, store, "q", "a", dueq.In(10*time.Second))
		pass(5 * time.Second)
		down.Store(true)
		pass(time.Minute)
		before := store.count("claim", "stats", "settings", "extend", "settle")
		down.Store(false)
		up := time.Now()
		pass(10 * time.Minute)
		if before > 300 {
			t.Errorf("%d calls in 65 s", before)
		}
		wantWithin(t, &j, "a", up, 3*time.Second)
		j.onceEach(t, 2) // the long one kept its lease: nobody claimed meanwhile
	})
}

// testOutage: while the store is away for a minute there are at most 20 calls
// a second on average after the first, and six warnings; two seconds later all
// goes on.
func testOutage(t *testing.T, queues int, busy bool) {
	store, mem := newTap()
	var down atomic.Bool
	store.before = func(op, _ string) error {
		if down.Load() {
			return unavailable(op, false)
		}
		return nil
	}
	logs := &logCounter{}
	var j journal
	start(t, store, dueq.WorkerOptions{Logger: slog.New(logs)}, func(w *dueq.Worker) {
		for i := range queues {
			w.Handle(fmt.Sprint("q", i), "", dueq.HandlerFunc(func(ctx context.Context, t *dueq.Task) error {
				defer j.begin(t, "")()
				if strings.HasPrefix(t.ID, "long") {
					return sleep(ctx, 2*time.Minute)
				}
				if strings.HasPrefix(t.ID, "short") {
					return sleep(ctx, 10*time.Second)
				}
				return nil
			}))
		}
	})
	want := queues
	if busy {
		want = 3 * queues
		for i := range queues {
			set(t, mem, fmt.Sprint("q", i), dueq.SettingsPatch{"timeout": "5m", "lease": "2m"})
			schedule(t, store, fmt.Sprint("q", i), fmt.Sprint("long", i), dueq.In(0))
			schedule(t, store, fmt.Sprint("q", i), fmt.Sprint("short", i), dueq.In(0))
		}
	}
	pass(5 * time.Second)
	began := time.Now()
	down.Store(true)
	for i := range queues {
		schedule(t, mem, fmt.Sprint("q", i), fmt.Sprint("due", i), dueq.In(10*time.Second))
	}
	pass(5 * time.Second)
	settled := time.Now() // the first calls of each queue have failed
	pass(55 * time.Second)
	calls := store.log(func(c tapCall) bool { return c.at.After(settled) && c.err != nil })
	perSecond, by := map[int]int{}, map[string]int{}
	most := 0
	for _, c := range calls {
		second := int(c.at.Sub(began) / time.Second)
		perSecond[second]++
		most = max(most, perSecond[second])
		by[c.op]++
	}
	t.Logf("%d calls in 55 s, at most %d in one: %v", len(calls), most, by)
	if len(calls) > 20*55 {
		t.Errorf("%d calls in 55 s: %v", len(calls), by)
	}
	if len(calls) < 10 {
		t.Errorf("only %d calls in 55 s: it gave up", len(calls))
	}
	if got := logs.of("WARN store unavailable"); got < 1 || got > 7 {
		t.Errorf("%d warnings in a minute, want one in ten seconds", got)
	}
	down.Store(false)
	up := time.Now()
	pass(150 * time.Second)
	for i := range queues {
		wantWithin(t, &j, fmt.Sprint("due", i), up, 2*time.Second)
		first := store.log(func(c tapCall) bool {
			return c.queue == fmt.Sprint("q", i) && (c.op == "claim" || c.op == "extend") && !c.at.Before(up)
		})
		if busy && first[0].op != "extend" {
			t.Errorf("q%d: the first call is %s, want the leases renewed before a claim", i, first[0].op)
		}
	}
	j.onceEach(t, want)
	if got := logs.of("ERROR"); got > 0 {
		t.Errorf("errors logged: %v", logs.counts)
	}
}

func TestWorkerKeepsQueuesApart(t *testing.T) {
	for _, tc := range []struct {
		name    string
		bad     int
		failure error
	}{
		{"a poisoned one does not delay", 1, errors.New("WRONGTYPE Operation against a key holding the wrong kind of value")},
		{"an unavailable one does not delay", 1, unavailable("claim", true)},
		{"ten unavailable ones do not for long delay", 10, unavailable("claim", true)},
	} {
		bubble(t, tc.name+" the others", func(t *testing.T) {
			store, mem := newTap()
			var healed atomic.Bool
			store.before = func(op, queue string) error {
				if strings.HasPrefix(queue, "bad") && op != "settings" && !healed.Load() {
					if errors.Is(tc.failure, dueq.ErrUnavailable) {
						time.Sleep(time.Second)
					}
					return tc.failure
				}
				return nil
			}
			store.deaf = true
			var j journal
			start(t, store, dueq.WorkerOptions{}, func(w *dueq.Worker) {
				for i := range tc.bad {
					w.Handle(fmt.Sprint("bad", i), "", j.takes(0, ""))
					schedule(t, mem, fmt.Sprint("bad", i), fmt.Sprint("x", i), dueq.In(0))
				}
				for _, q := range []string{"a", "b"} {
					w.Handle(q, "", j.takes(0, ""))
				}
			})
			began := time.Now()
			for i := range 60 {
				for _, q := range []string{"a", "b"} {
					schedule(t, mem, q, fmt.Sprint(q, i), dueq.In(time.Duration(i)*time.Second))
				}
			}
			pass(2 * time.Minute)
			for i := range 60 {
				for _, q := range []string{"a", "b"} {
					late := time.Second
					if i < 10 {
						late = 10 * time.Second // until it is known which queues fail
					}
					wantWithin(t, &j, fmt.Sprint(q, i), began.Add(time.Duration(i)*time.Second), late)
				}
			}
			healed.Store(true)
			healedAt := time.Now()
			pass(time.Minute)
			for i := range tc.bad {
				wantWithin(t, &j, fmt.Sprint("x", i), healedAt, 3*time.Second)
			}
		})
	}
	bubble(t, "one whose handlers never return does not delay the others", func(t *testing.T) {
		store, _ := newTap()
		release := make(chan struct{})
		defer close(release)
		var j journal
		start(t, store, dueq.WorkerOptions{Concurrency: 2}, func(w *dueq.Worker) {
			w.Handle("stuck", "", dueq.HandlerFunc(func(context.Context, *dueq.Task) error { <-release; return nil }))
			w.Handle("q", "", j.takes(0, ""))
		})
		scheduleMany(t, store, "stuck", 10, dueq.In(0))
		began := time.Now()
		for i := range 20 {
			schedule(t, store, "q", fmt.Sprint(i), dueq.In(time.Duration(i)*time.Second))
		}
		pass(time.Minute)
		for i := range 20 {
			wantWithin(t, &j, fmt.Sprint(i), began.Add(time.Duration(i)*time.Second), 0)
		}
	})
}

func TestWorkerSettles(t *testing.T) {
	bubble(t, "again and again until it is stored", func(t *testing.T) {
		store, _ := newTap()
		var left atomic.Int32
		left.Store(5)
		store.before = func(op, _ string) error {
			if op == "settle" && left.Add(-1) >= 0 {
				return unavailable(op, false)
			}
			return nil
		}
		var j journal
		on(t, store, dueq.WorkerOptions{}, j.takes(0, ""))
		schedule(t, store, "q", "a", dueq.In(0))
		pass(time.Minute)
		j.onceEach(t, 1)
		if st := stats(t, store, "q"); st.Totals.Acked != 1 || st.Active != 0 {
			t.Errorf("%+v, want acked", st)
		}
	})
	bubble(t, "while its lease is being renewed", func(t *testing.T) { // for the race detector
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"lease": "1s", "timeout": "5s"})
		renewing := make(chan struct{}, 100)
		var left atomic.Int32
		left.Store(5)
		store.before = func(op, _ string) error {
			if op != "settle" || left.Add(-1) < 0 {
				return nil
			}
			time.Sleep(600 * time.Millisecond)
			return unavailable(op, true)
		}
		store.after = func(op, _ string) error {
			if op == "extend" {
				renewing <- struct{}{}
				time.Sleep(300 * time.Millisecond)
			}
			return nil
		}
		on(t, store, dueq.WorkerOptions{}, func(context.Context, *dueq.Task) error { <-renewing; return nil })
		schedule(t, store, "q", "a", dueq.In(0))
		pass(time.Minute)
	})
	bubble(t, "again when the answer was lost, which changes nothing", func(t *testing.T) {
		store, _ := newTap()
		var left atomic.Int32
		left.Store(1)
		store.after = func(op, _ string) error {
			if op == "settle" && left.Add(-1) >= 0 {
				return unavailable(op, true)
			}
			return nil
		}
		var j journal
		on(t, store, dueq.WorkerOptions{}, j.takes(0, ""))
		schedule(t, store, "q", "a", dueq.In(0))
		pass(time.Minute)
		j.onceEach(t, 1)
		if st := stats(t, store, "q"); st.Totals.Acked != 1 || store.count("settle") != 2 {
			t.Errorf("acked %d by %d calls, want 1 by 2", st.Totals.Acked, store.count("settle"))
		}
	})
	bubble(t, "no longer than a minute after the lease, and says so", func(t *testing.T) {
		store, _ := newTap()
		store.before = func(op, _ string) error {
			if op == "settle" {
				return unavailable(op, false)
			}
			return nil
		}
		logs := &logCounter{}
		var j journal
		on(t, store, dueq.WorkerOptions{Logger: slog.New(logs)}, j.takes(0, ""))
		set(t, store, "q", dueq.SettingsPatch{"retries": "0"})
		schedule(t, store, "q", "a", dueq.In(0))
		pass(5 * time.Minute)
		if got := logs.of("ERROR verdict not stored"); got != 1 {
			t.Errorf("told %d times, want once", got)
		}
		before := store.count("settle")
		pass(time.Minute)
		if got := store.count("settle") - before; got > 0 {
			t.Errorf("%d more calls", got)
		}
	})
	bubble(t, "once, what was claimed at most once, when it may have happened", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"delivery": "at_most_once"})
		store.after = func(op, _ string) error {
			if op == "settle" {
				return unavailable(op, true)
			}
			return nil
		}
		var j journal
		on(t, store, dueq.WorkerOptions{}, func(_ context.Context, t *dueq.Task) error {
			defer j.begin(t, "")()
			if t.Round == 0 {
				return dueq.Again(time.Second)
			}
			return nil
		})
		schedule(t, store, "q", "a", dueq.In(0))
		pass(time.Minute)
		if n := len(j.all()); n != 2 || store.count("settle") != 2 {
			t.Errorf("%d runs, %d settle calls; want 2 and 2", n, store.count("settle"))
		}
	})
	bubble(t, "again, what was claimed at most once, when it was not sent", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"delivery": "at_most_once"})
		var left atomic.Int32
		left.Store(3)
		store.before = func(op, _ string) error {
			if op == "settle" && left.Add(-1) >= 0 {
				return unavailable(op, false)
			}
			return nil
		}
		var j journal
		on(t, store, dueq.WorkerOptions{}, func(_ context.Context, t *dueq.Task) error {
			defer j.begin(t, "")()
			if t.Round == 0 {
				return dueq.Again(time.Second)
			}
			return nil
		})
		schedule(t, store, "q", "a", dueq.In(0))
		pass(time.Minute)
		if n := len(j.all()); n != 2 {
			t.Errorf("%d runs, want 2", n)
		}
	})
	bubble(t, "in batches that share calls", func(t *testing.T) {
		store, _ := newTap()
		store.before = func(op, _ string) error {
			if op == "settle" {
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		}
		var j journal
		on(t, store, dueq.WorkerOptions{}, j.takes(time.Millisecond, ""))
		scheduleMany(t, store, "q", 2000, dueq.In(0))
		pass(time.Minute)
		j.onceEach(t, 2000)
		if n := store.count("settle"); n > 60 {
			t.Errorf("%d settle calls for 2,000 verdicts", n)
		}
	})
}

func TestWorkerLosesNothing(t *testing.T) {
	bubble(t, "when the answer to a claim is lost: tasks come back with their leases", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"lease": "5s"})
		var left atomic.Int32
		left.Store(1)
		store.after = func(op, _ string) error {
			if op == "claim" && left.Load() > 0 && left.Add(-1) >= 0 {
				return unavailable(op, true)
			}
			return nil
		}
		var j journal
		schedule(t, store, "q", "a", dueq.In(0))
		began := time.Now()
		on(t, store, dueq.WorkerOptions{}, j.takes(0, ""))
		pass(time.Minute)
		runs := j.of("a")
		if len(runs) != 1 || runs[0].attempt != 2 {
			t.Fatalf("runs %v, want one at attempt 2", runs)
		}
		if after := runs[0].at.Sub(began); after < 5*time.Second || after > 12*time.Second {
			t.Errorf("it came back after %v", after)
		}
	})
	bubble(t, "when another worker vanishes", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"lease": "30s"})
		var j journal
		scheduleMany(t, store, "q", 50, dueq.In(0))
		gone, err := store.Store.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 20})
		if err != nil || len(gone.Tasks) != 20 {
			t.Fatal(gone, err)
		}
		began := time.Now()
		on(t, store, dueq.WorkerOptions{}, j.takes(10*time.Millisecond, ""))
		pass(2 * time.Minute)
		for _, task := range gone.Tasks {
			runs := j.of(task.ID)
			if len(runs) != 1 || runs[0].attempt != 2 || runs[0].at.Sub(began) < 30*time.Second || runs[0].at.Sub(began) > 36*time.Second {
				t.Errorf("%s: %v, want one run at attempt 2 after 31 to 36 s", task.ID, runs)
			}
		}
		if n := len(j.all()); n != 50 {
			t.Errorf("%d runs, want 50", n)
		}
	})
}
