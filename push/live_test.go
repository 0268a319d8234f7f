package push

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
)

func TestMessageID(t *testing.T) {
	t.Parallel()
	onStores(t, "is the same when a receiver died after it had handled the task", func(t *testing.T, store dueq.Store) {
		rec := receive(t, func(w http.ResponseWriter, r *http.Request, n int) {
			switch n {
			case 1:
				reset(w, r, n)
			case 2:
				w.WriteHeader(http.StatusBadGateway)
			case 3:
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		secret := secretOf('a')
		set(t, store, "q", quick(rec.URL))
		start(t, store, Options{AllowPrivate: true, Secrets: func(string) []string { return []string{secret} }})
		schedule(t, store, "q", dueq.Task{ID: "t", Body: []byte("1")})
		awaitAcked(t, store, "q", 1)
		for i, got := range rec.await(t, 4) {
			if got.header.Get("webhook-id") != rec.all()[0].header.Get("webhook-id") || got.header.Get("Dueq-Attempt") != fmt.Sprint(i+1) {
				t.Errorf("delivery %d is attempt %s of %s", i+1, got.header.Get("Dueq-Attempt"), got.header.Get("webhook-id"))
			}
			verify(t, got, secret, true)
		}
	})
	onMemory(t, "is another when the task is scheduled again", func(t *testing.T, store dueq.Store) {
		rec := receive(t, nil)
		set(t, store, "q", quick(rec.URL))
		start(t, store, anywhere)
		seen := map[string]bool{}
		for i := range 3 {
			schedule(t, store, "q", dueq.Task{ID: "t"})
			awaitAcked(t, store, "q", int64(i+1))
			seen[rec.await(t, i+1)[i].header.Get("webhook-id")] = true
			time.Sleep(2 * time.Millisecond) // due times are in milliseconds
		}
		if len(seen) != 3 {
			t.Errorf("%v for 3 schedules", seen)
		}
	})
	onMemory(t, "is that of this delivery where the first is not known", func(t *testing.T, store dueq.Store) {
		rec := receive(t, nil)
		set(t, store, "q", dueq.SettingsPatch{"retry_first": "1ms"})
		schedule(t, store, "q", dueq.Task{ID: "t"})
		var claim dueq.Claim
		eventually(t, "the task is due", func() (due bool) {
			var err error
			claim, err = store.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 1})
			return err == nil && len(claim.Tasks) == 1
		})
		failed := dueq.Result{Task: claim.Tasks[0], Verdict: dueq.VerdictRetry, Delay: dueq.ByPolicy, Err: "first due once: of another worker"}
		if _, err := store.Settle(t.Context(), "q", []dueq.Result{failed}); err != nil {
			t.Fatal(err)
		}
		set(t, store, "q", quick(rec.URL))
		start(t, store, anywhere)
		h := rec.await(t, 1)[0].header
		due, _ := time.Parse(dueLayout, h.Get("Dueq-Due"))
		if want := fmt.Sprintf("q/t/0/%d", due.UnixMilli()); h.Get("webhook-id") != want || h.Get("Dueq-Attempt") != "2" {
			t.Errorf("attempt %s is %s, want %s", h.Get("Dueq-Attempt"), h.Get("webhook-id"), want)
		}
		awaitAcked(t, store, "q", 1)
	})
}

func TestSettingsChangeLive(t *testing.T) {
	t.Parallel()
	onStores(t, "on, to another address, off and on again", func(t *testing.T, store dueq.Store) {
		one, two := receive(t, nil), receive(t, nil)
		start(t, store, anywhere)
		schedule(t, store, "q", dueq.Task{ID: "waiting"})
		began := time.Now()
		set(t, store, "q", quick(one.URL))
		one.await(t, 1)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("heeded after %v", took)
		}
		set(t, store, "q", quick(two.URL))
		n := probeUntil(t, store, "t", func() bool { return len(two.all()) > 0 })
		awaitAcked(t, store, "q", int64(1+n))
		before := len(one.all())
		for i := range 20 {
			schedule(t, store, "q", dueq.Task{ID: fmt.Sprint("u", i)})
		}
		awaitAcked(t, store, "q", int64(1+n+20))
		if got := len(one.all()) - before; got != 0 {
			t.Errorf("%d went to the old address after the new one was heeded", got)
		}
		set(t, store, "q", quick("off"))
		acked := func() int64 { return stats(t, store, "q").Totals.Acked }
		eventually(t, "a task is left alone", func() bool {
			was := acked()
			schedule(t, store, "q", dueq.Task{ID: "idle"})
			time.Sleep(300 * time.Millisecond) // far longer than a delivery takes
			return acked() == was
		})
		was := acked()
		set(t, store, "q", quick(one.URL))
		eventually(t, "the task is pushed", func() bool { return acked() == was+1 })
	})
	onMemory(t, "though a receiver at the old address hangs", func(t *testing.T, store dueq.Store) {
		hanging, good := receive(t, hang), receive(t, nil)
		set(t, store, "q", quick(hanging.URL, "timeout", "25s"))
		start(t, store, Options{AllowPrivate: true, Unsigned: true, Grace: -1})
		schedule(t, store, "q", dueq.Task{ID: "t"})
		hanging.await(t, 1)
		set(t, store, "q", dueq.SettingsPatch{"push": good.URL})
		began := time.Now()
		probeUntil(t, store, "u", func() bool { return len(good.all()) > 0 })
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("heeded after %v", took)
		}
	})
	onMemory(t, "of a hundred queues", func(t *testing.T, store dueq.Store) {
		rec := receive(t, nil)
		start(t, store, anywhere)
		for i := range 100 {
			queue := fmt.Sprint("q", i)
			set(t, store, queue, quick(rec.URL))
			schedule(t, store, queue, dueq.Task{ID: "a"}, dueq.Task{ID: "b"})
		}
		rec.await(t, 200)
		for i := range 100 {
			awaitAcked(t, store, fmt.Sprint("q", i), 2)
		}
		if n := len(rec.all()); n != 200 {
			t.Errorf("%d requests for 200 tasks", n)
		}
	})
}

// probeUntil schedules tasks of its own until something happens, and returns
// how many.
func probeUntil(t *testing.T, store dueq.Store, id string, ok func() bool) (n int) {
	t.Helper()
	eventually(t, "a probe arrives where it should", func() bool {
		schedule(t, store, "q", dueq.Task{ID: fmt.Sprint(id, n)})
		n++
		time.Sleep(10 * time.Millisecond)
		return ok()
	})
	return n
}

func TestStop(t *testing.T) {
	t.Parallel()
	onStores(t, "in the middle of deliveries loses nothing and repeats nothing", func(t *testing.T, store dueq.Store) {
		const tasks = 300
		rec := receive(t, func(http.ResponseWriter, *http.Request, int) { time.Sleep(20 * time.Millisecond) })
		set(t, store, "q", quick(rec.URL, "concurrency", "10"))
		for i := range tasks {
			schedule(t, store, "q", dueq.Task{ID: fmt.Sprint(i)})
		}
		for i := range 4 {
			stop := start(t, store, anywhere)
			rec.await(t, 50*(i+1))
			if err := stop(); err != nil {
				t.Error(err)
			}
			if st := stats(t, store, "q"); st.Active != 0 || st.Totals.Acked != int64(len(rec.all())) {
				t.Errorf("after a stop %d are active, %d acknowledged of %d delivered", st.Active, st.Totals.Acked, len(rec.all()))
			}
		}
		start(t, store, anywhere)
		awaitAcked(t, store, "q", tasks)
		seen := map[string]int{}
		for _, got := range rec.all() {
			seen[got.header.Get("Dueq-Id")]++
		}
		if len(seen) != tasks || len(rec.all()) != tasks {
			t.Errorf("%d tasks in %d deliveries, want %d in %d", len(seen), len(rec.all()), tasks, tasks)
		}
	})
	onMemory(t, "that has waited long enough gives deliveries up uncharged, and they have the same id again", func(t *testing.T, store dueq.Store) {
		rec := receive(t, func(w http.ResponseWriter, r *http.Request, n int) {
			if n == 1 {
				hang(w, r, n)
			}
		})
		set(t, store, "q", quick(rec.URL, "timeout", "1m"))
		stop := start(t, store, Options{AllowPrivate: true, Unsigned: true, Grace: -1})
		schedule(t, store, "q", dueq.Task{ID: "t"})
		rec.await(t, 1)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := get(t, store, "q", "t"); got.State != dueq.StateScheduled || got.Failures != 0 {
			t.Errorf("the task is %v with %d failures", got.State, got.Failures)
		}
		start(t, store, anywhere)
		got := rec.await(t, 2)
		if a, b := got[0].header, got[1].header; a.Get("webhook-id") != b.Get("webhook-id") || b.Get("Dueq-Attempt") != "1" {
			t.Errorf("%s, then attempt %s of %s", a.Get("webhook-id"), b.Get("Dueq-Attempt"), b.Get("webhook-id"))
		}
		awaitAcked(t, store, "q", 1)
	})
}

func TestLongDeliveriesKeepTheirLease(t *testing.T) {
	t.Parallel()
	onStores(t, "longer than it is", func(t *testing.T, store dueq.Store) {
		rec := receive(t, func(http.ResponseWriter, *http.Request, int) { time.Sleep(5 * time.Second) })
		set(t, store, "q", quick(rec.URL, "lease", "2s", "timeout", "1m"))
		start(t, store, anywhere)
		schedule(t, store, "q", dueq.Task{ID: "t"})
		awaitAcked(t, store, "q", 1)
		if st := stats(t, store, "q"); st.Totals.Claimed != 1 || len(rec.all()) != 1 {
			t.Errorf("claimed %d times, delivered %d times", st.Totals.Claimed, len(rec.all()))
		}
	})
	onMemory(t, "and one that was stopped is given up", func(t *testing.T, store dueq.Store) {
		gone := make(chan struct{})
		rec := receive(t, func(w http.ResponseWriter, r *http.Request, n int) {
			hang(w, r, n)
			close(gone)
		})
		set(t, store, "q", quick(rec.URL, "lease", "1s", "timeout", "5m"))
		start(t, store, Options{AllowPrivate: true, Unsigned: true, Grace: -1})
		schedule(t, store, "q", dueq.Task{ID: "t"})
		rec.await(t, 1)
		if _, err := store.Change(t.Context(), "q", dueq.OpStop, []dueq.Target{{Member: "t"}}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the request is given up", func() bool { return isClosed(gone) })
	})
}

func TestRedisGoesAndComes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF())
	store, rec := onRedis(t, server.URL()), receive(t, nil)
	set(t, store, "q", quick(rec.URL))
	var calls atomic.Int64
	start(t, store, Options{AllowPrivate: true, Unsigned: true, Observer: dueq.Observer{
		Call: func(_, _ string, _ int, _ time.Duration, err error) {
			if err != nil {
				calls.Add(1)
			}
		},
	}})
	schedule(t, store, "q", dueq.Task{ID: "before"})
	rec.await(t, 1)
	server.Stop()
	eventually(t, "a call fails", func() bool { return calls.Load() > 0 })
	server.Restart()
	eventually(t, "a task is taken", func() bool {
		_, err := store.Schedule(t.Context(), []dueq.Item{{Queue: "q", Task: dueq.Task{ID: "after"}, When: dueq.In(0)}})
		return err == nil
	})
	eventually(t, "it is pushed", func() bool {
		for _, got := range rec.all() {
			if got.header.Get("Dueq-Id") == "after" {
				return true
			}
		}
		return false
	})
}

func TestIdleQueuesOnRedisCostFewCommands(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store, rec := onRedis(t, server.URL()), receive(t, nil)
	const queues = 100
	for i := range queues {
		set(t, store, fmt.Sprint("q", i), quick(rec.URL))
		schedule(t, store, fmt.Sprint("q", i), dueq.Task{ID: "t"})
	}
	start(t, store, anywhere)
	rec.await(t, queues)
	total := func() (n int64) {
		for name, calls := range server.Commands(t) {
			if name == "evalsha" || name == "evalsha_ro" || name == "hgetall" {
				n += calls
			}
		}
		return n
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	before := total()
	<-ctx.Done()
	rate := float64(total()-before) / 5
	t.Logf("%.0f calls a second for %d idle queues", rate, queues)
	if n := server.Commands(t)["subscribe"]; n < 1 || n > 3 {
		t.Errorf("%d subscriptions, want one for all queues", n)
	}
	if rate > 8*queues || rate < queues/4 {
		t.Errorf("%.0f calls a second for %d idle queues", rate, queues)
	}
}
