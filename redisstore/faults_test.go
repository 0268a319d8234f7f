package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

func TestBurst_thirty_thousand_tasks_of_one_millisecond_run_once_each(t *testing.T) {
	t.Parallel()
	const n = 30_000
	srv := startQuick(t)
	raw := srv.Client(t)
	producer := openStore(t, srv.URL(), patient)
	due := time.Now().Add(1500 * time.Millisecond).Truncate(time.Millisecond)
	done := newLedger()
	early := newCounter()
	handler := dueq.HandlerFunc(func(ctx context.Context, task *dueq.Task) error {
		if time.Now().Before(due) || task.Attempt != 1 {
			early.add(task.ID, 1)
		}
		return done.Handle(ctx, task)
	})
	observer := dueq.Observer{Claimed: func(_ string, c dueq.Claim) {
		if most := dueq.DefaultSettings().Batch; len(c.Tasks) > most {
			t.Errorf("a claim returned %d tasks, want at most %d", len(c.Tasks), most)
		}
	}}
	for range 2 {
		startWorker(t, openStore(t, srv.URL(), patient), dueq.WorkerOptions{Observer: observer}, handler, "burst")
	}
	began := time.Now()
	scheduleAll(t, producer, items("burst", n-1, dueq.At(due)))
	scheduleAll(t, producer, []dueq.Item{item("burst", "with_a_body", dueq.At(due), "b")})
	t.Logf("scheduled in %v", time.Since(began))

	// Others go on scheduling meanwhile.
	client := dueq.NewClient(producer, dueq.ClientOptions{})
	var took []time.Duration
	for end := time.Now().Add(60 * time.Second); done.size() < n; {
		if time.Now().After(end) {
			t.Fatalf("%d of %d handled within 60 s: %+v", done.size(), n, statsOf(t, producer, "burst"))
		}
		began := time.Now()
		_, err := client.Schedule(t.Context(), "other", dueq.Task{ID: fmt.Sprint(len(took))}, dueq.In(time.Hour))
		must(t, err)
		took = append(took, time.Since(began))
		pass(t, 2*time.Millisecond)
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	t.Logf("handled %v after they were due; %d schedules meanwhile, p99 %v", time.Since(due), len(took), p99)
	if p99 > 500*time.Millisecond {
		t.Errorf("schedule p99 was %v, want about 100 ms at most", p99)
	}
	eventually(t, 10*time.Second, "all is settled", func() bool { return statsOf(t, producer, "burst").Active == 0 })
	if repeated := done.repeated(); len(repeated) > 0 {
		t.Errorf("handled more than once: %.10q", repeated)
	}
	if len(early.n) > 0 {
		t.Errorf("%d ran early or not at the first attempt", len(early.n))
	}
	if st := statsOf(t, producer, "burst"); st.Totals.Claimed != n || st.Totals.Acked != n || st.Scheduled+st.Dead != 0 {
		t.Errorf("got %+v, want %d claimed and acked", st, n)
	}
	slowScripts(t, raw, srv)
}

func TestBurst_twenty_thousand_tasks_of_a_killed_worker_are_handled_by_another(t *testing.T) {
	t.Parallel()
	const n = 20_000
	srv := startQuick(t)
	raw := srv.Client(t)
	dead := openStore(t, srv.URL(), patient)
	scheduleAll(t, dead, items("killed", n, past, "body"))
	taken := 0
	for taken < n {
		c, err := dead.Claim(t.Context(), dueq.ClaimRequest{Queue: "killed", Max: dueq.MaxItems, Lease: time.Second})
		must(t, err)
		taken += len(c.Tasks)
	}
	killed := time.Now()
	must(t, dead.Close())

	store := openStore(t, srv.URL(), patient)
	done := newLedger()
	startWorker(t, store, dueq.WorkerOptions{}, done, "killed")
	eventually(t, 60*time.Second, "all are handled", func() bool { return done.size() == n })
	t.Logf("handled %v after the kill", time.Since(killed))
	eventually(t, 10*time.Second, "all is settled", func() bool { return statsOf(t, store, "killed").Active == 0 })
	if repeated := done.repeated(); len(repeated) > 0 {
		t.Errorf("handled more than once: %.10q", repeated)
	}
	for id, attempt := range done.tries {
		if attempt < 2 {
			t.Fatalf("%s was handled as attempt %d, want 2: its lease ended once", id, attempt)
		}
	}
	st := statsOf(t, store, "killed")
	if st.Totals.Acked != n || st.Totals.Ended < n || st.Dead+st.Scheduled != 0 || st.Totals.Claimed != endedRuns(st.Totals) {
		t.Errorf("got %+v, want all ended once and acked", st)
	}
	slowScripts(t, raw, srv)
}

func TestBurst_a_large_future_does_not_slow_the_present(t *testing.T) {
	t.Parallel()
	srv := startQuick(t)
	raw := srv.Client(t)
	key := redisstore.DefaultPrefix + "future"
	day := float64(time.Now().Add(24 * time.Hour).UnixMilli())
	zs := make([]redis.Z, 1000)
	for i := range 300 {
		for j := range zs {
			zs[j] = redis.Z{Score: day + float64((i*7919+j*104729)%86_400_000), Member: fmt.Sprintf("future_%06d:k", 1000*i+j)}
		}
		must(t, raw.ZAdd(t.Context(), key, zs...).Err())
	}
	must(t, raw.SlowLogReset(t.Context()).Err())
	store := openStore(t, srv.URL(), patient)
	done := newLedger()
	startWorker(t, store, dueq.WorkerOptions{}, done, "future")
	const now = 2000
	for i := range now / 10 {
		var all []dueq.Item
		for j := range 10 {
			all = append(all, item("future", fmt.Sprintf("now_%d", 10*i+j), dueq.In(0), "b"))
		}
		scheduleAll(t, store, all)
	}
	eventually(t, 20*time.Second, "what is due is handled", func() bool { return done.size() == now })
	if st := statsOf(t, store, "future"); st.Scheduled != 300_000 {
		t.Errorf("%d scheduled, want 300,000", st.Scheduled)
	}
	_, err := store.List(t.Context(), dueq.ListQuery{Queue: "future", State: dueq.StateScheduled})
	must(t, err)
	slowScripts(t, raw, srv)
}

func TestPool_of_ten_serves_fifty_claimers_and_a_thousand_producers(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr(), PoolSize: 10, MaxActiveConns: 12})
	defer client.Close()
	store, err := redisstore.New(client, patient)
	must(t, err)
	claiming, stop := context.WithCancel(t.Context())
	defer stop()
	var claimers, group sync.WaitGroup
	done := newLedger()
	errs := newCounter()
	var mu sync.Mutex // guards what follows
	var took, settles []time.Duration
	for range 50 {
		claimers.Go(func() {
			for claiming.Err() == nil {
				c, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: "pool", Max: 10})
				if err != nil {
					errs.add("claim: "+err.Error(), 1)
					continue
				}
				var results []dueq.Result
				for _, task := range c.Tasks {
					_ = done.Handle(t.Context(), task)
					results = append(results, dueq.Result{Task: task})
				}
				began := time.Now()
				if _, err := store.Settle(t.Context(), "pool", results); err != nil {
					errs.add("settle: "+err.Error(), 1)
				}
				mu.Lock()
				settles = append(settles, time.Since(began))
				mu.Unlock()
			}
		})
	}
	for i := range 1000 {
		group.Go(func() {
			began := time.Now()
			_, err := store.Schedule(t.Context(), []dueq.Item{item("pool", fmt.Sprint(i), dueq.In(0))})
			if err != nil {
				errs.add("schedule: "+err.Error(), 1)
			}
			mu.Lock()
			took = append(took, time.Since(began))
			mu.Unlock()
		})
	}
	group.Wait()
	slices.Sort(took)
	t.Logf("1,000 schedules beside 50 claimers: p50 %v, p99 %v", took[500], took[990])
	if took[990] > busy {
		t.Errorf("schedule p99 is %v, want under 1 s on an idle machine", took[990])
	}
	eventually(t, 20*time.Second, "all are handled", func() bool { return done.size() == 1000 })
	stop()
	claimers.Wait()
	slices.Sort(settles)
	if p99 := settles[len(settles)*99/100]; p99 > busy {
		t.Errorf("settle p99 is %v, want under 1 s on an idle machine", p99)
	}
	if len(errs.n) > 0 {
		t.Errorf("calls failed: %v", errs.n)
	}
	if repeated := done.repeated(); len(repeated) > 0 {
		t.Errorf("handled more than once: %.10q", repeated)
	}
}

func TestFlush_of_the_scripts_under_load_is_seen_by_nobody(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), patient)
	done, log := newLedger(), &logCounter{}
	startWorker(t, openStore(t, srv.URL(), patient), dueq.WorkerOptions{Logger: log.logger()}, done, "flush", "flush:2")
	began := time.Now()
	flushes := 0
	var group sync.WaitGroup
	for n := range 4 {
		group.Go(func() {
			client := dueq.NewClient(store, dueq.ClientOptions{})
			for i := 0; time.Since(began) < 3*time.Second; i++ {
				id := fmt.Sprintf("%d-%d", n, i)
				outcomes, err := client.ScheduleAll(t.Context(), []dueq.Item{item("flush", id, dueq.In(0), "b"), item("flush:2", id, dueq.In(0))})
				if err != nil || outcomes[0].Status != dueq.StatusScheduled || outcomes[1].Status != dueq.StatusScheduled {
					t.Errorf("schedule: got %v, %v", outcomes, err)
					return
				}
				if _, err := store.Stats(t.Context(), "flush", "flush:2"); err != nil {
					t.Errorf("stats: %v", err)
				}
				pass(t, time.Millisecond)
			}
		})
	}
	scheduled := func() int64 {
		return statsOf(t, store, "flush").Totals.Scheduled + statsOf(t, store, "flush:2").Totals.Scheduled
	}
	for tick := time.Tick(50 * time.Millisecond); time.Since(began) < 3*time.Second; flushes++ {
		<-tick
		must(t, raw.ScriptFlush(t.Context()).Err())
	}
	group.Wait()
	eventually(t, 10*time.Second, "all are handled", func() bool { return int64(done.size()) == scheduled() })
	eventually(t, 10*time.Second, "all is settled", func() bool {
		return statsOf(t, store, "flush").Totals.Acked+statsOf(t, store, "flush:2").Totals.Acked == scheduled()
	})
	t.Logf("%d tasks over %d flushes, %d scripts sent with their source", done.size(), flushes, srv.Commands(t)["eval"])
	if repeated := done.repeated(); len(repeated) > 0 {
		t.Errorf("handled more than once: %.10q", repeated)
	}
	if strings.Contains(log.String(), "level=WARN") || strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("the worker complained:\n%s", log)
	}
	if srv.Commands(t)["eval"] == 0 || done.size() < 50 {
		t.Error("too little happened to mean anything")
	}
}

func TestFlush_of_the_database_does_not_stop_new_tasks(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), patient)
	done, log := newLedger(), &logCounter{}
	release := make(chan struct{})
	handler := dueq.HandlerFunc(func(ctx context.Context, task *dueq.Task) error {
		if task.ID == "held" {
			<-release
		}
		return done.Handle(ctx, task)
	})
	startWorker(t, store, dueq.WorkerOptions{Logger: log.logger()}, handler, "emptied")
	scheduleAll(t, store, []dueq.Item{item("emptied", "before", past), item("emptied", "held", past), item("emptied", "lost", dueq.In(time.Hour))})
	eventually(t, 5*time.Second, "the worker works", func() bool { return done.size() == 1 })
	eventually(t, 5*time.Second, "a task is held", func() bool { return statsOf(t, store, "emptied").Active == 1 })
	must(t, raw.FlushAll(t.Context()).Err())
	must(t, raw.ScriptFlush(t.Context()).Err())
	emptied := time.Now()
	close(release) // its lease is gone
	eventually(t, 5*time.Second, "the loss is logged", func() bool { return strings.Contains(log.String(), "lease was lost") })
	scheduleAll(t, store, []dueq.Item{item("emptied", "after", dueq.In(100*time.Millisecond), "body")})
	eventually(t, 5*time.Second, "a new task is handled", func() bool { n, _ := done.of("emptied", "after"); return n == 1 })
	t.Logf("a new task was handled %v after the flush", time.Since(emptied))

	n := 0
	eventually(t, 60*time.Second, "the list of queues is back", func() bool {
		n++
		if n%40 == 1 { // now and then somebody schedules
			scheduleAll(t, store, []dueq.Item{item("emptied", fmt.Sprint(n), past)})
		}
		all, err := store.Stats(t.Context())
		must(t, err)
		return len(all) == 1 && all[0].Queue == "emptied"
	})
	t.Logf("the list of queues was back %v after the flush", time.Since(emptied))
}

// A server without memory to spare refuses what is new and can be drained.

func TestFull_server_refuses_schedules_and_can_be_drained(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	store := openStore(t, srv.URL(), patient)
	ctx := t.Context()
	_, err := store.SetSettings(ctx, "full", dueq.SettingsPatch{"retry_first": "1ms", "retry_jitter": "0%"})
	must(t, err)
	scheduleAll(t, store, items("full", 100, past, "body"))
	scheduleAll(t, store, []dueq.Item{item("full", "cancelled", dueq.In(time.Hour), "b")})
	srv.Fill(t)

	before := statsOf(t, store, "full")
	for _, queue := range []string{"full", "full:new"} {
		outcomes, err := store.Schedule(ctx, []dueq.Item{item(queue, "new", past, "body"), item(queue, "t000001", dueq.In(time.Hour))})
		wantUnavailable(t, "schedule", err, "OOM")
		if mayHaveHappened(err) || len(outcomes) > 0 && outcomes[0].Status != dueq.StatusUnknown {
			t.Errorf("schedule: got %v, %v, want it known that nothing happened", outcomes, err)
		}
	}
	_, err = store.SetSettings(ctx, "full", dueq.SettingsPatch{"batch": "7"})
	wantUnavailable(t, "settings", err, "OOM")
	wantUnavailable(t, "probe", store.Probe(ctx), "OOM")
	after := statsOf(t, store, "full")
	before.Now, before.LastClaim, after.Now, after.LastClaim = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	if before != after || statsOf(t, store, "full:new").Scheduled != 0 {
		t.Errorf("refused calls changed the queue:\n got %+v\nwant %+v", after, before)
	}

	c := claim(t, store, "full", 50)
	if len(c.Tasks) != 50 {
		t.Fatalf("claimed %d of a full server, want 50", len(c.Tasks))
	}
	verdicts := []dueq.Verdict{dueq.VerdictAck, dueq.VerdictRetry, dueq.VerdictAgain, dueq.VerdictRelease, dueq.VerdictDead}
	var results []dueq.Result
	var leases []dueq.Lease
	for i, task := range c.Tasks[:40] {
		results = append(results, dueq.Result{Task: task, Verdict: verdicts[i%5], Delay: time.Hour, Err: "why"})
	}
	for _, task := range c.Tasks[40:] {
		leases = append(leases, task.Lease)
	}
	extended, err := store.Extend(ctx, "full", leases, time.Minute)
	must(t, err)
	outcomes, err := store.Settle(ctx, "full", results)
	must(t, err)
	for i, o := range append(outcomes, extended...) {
		if o.Status != dueq.StatusDone {
			t.Errorf("outcome %d on a full server: got %v, want done", i, o.Status)
		}
	}
	must(t, dueq.NewClient(store, dueq.ClientOptions{}).Cancel(ctx, "full", "cancelled:k"))
	srv.Relieve(t)

	scheduleAll(t, store, []dueq.Item{item("full", "new", past)})
	st := statsOf(t, store, "full")
	want := dueq.Totals{Scheduled: 102, Claimed: 50, Acked: 8, Retried: 8, Again: 8, Released: 8, Died: 8, Cancelled: 1}
	if st.Totals != want || st.Scheduled != 100-50+24+1 || st.Active != 10 || st.Dead != 8 {
		t.Errorf("got %+v, want totals %+v, 75 scheduled, 10 active, 8 dead", st, want)
	}
	done := newLedger()
	startWorker(t, store, dueq.WorkerOptions{}, done, "full")
	eventually(t, 5*time.Second, "the rest is worked off", func() bool { return done.size() >= 51 })
}

// refusals are states of a server in which it answers, but not with what was

// asked for.

func TestBodies_up_to_the_limit_go_through_and_larger_ones_leave_nothing(t *testing.T) {
	t.Parallel()
	const limit = 16 << 20 // the most that body_max can be
	srv := redistest.Start(t)
	store := openStore(t, srv.URL(), redisstore.Options{Timeout: 20 * time.Second})
	_, err := store.SetSettings(t.Context(), "large", dueq.SettingsPatch{"body_max": fmt.Sprint(limit)})
	must(t, err)
	for _, size := range []int{0, 1, limit - 1, limit, limit + 1} {
		id := fmt.Sprint("b", size)
		body := strings.Repeat("x", size)
		outcomes, err := store.Schedule(t.Context(), []dueq.Item{item("large", id, past, body)})
		must(t, err)
		tooLarge := size > limit
		if errors.Is(outcomes[0].Err, dueq.ErrTooLarge) != tooLarge {
			t.Fatalf("%d bytes: got %v (%v)", size, outcomes[0].Status, outcomes[0].Err)
		}
		c := claim(t, store, "large", 10)
		if tooLarge {
			if st := statsOf(t, store, "large"); len(c.Tasks) != 0 || st.Scheduled+st.Dead != 0 {
				t.Errorf("%d bytes left something: %+v", size, st)
			}
			continue
		}
		if len(c.Tasks) != 1 || string(c.Tasks[0].Body) != body {
			t.Errorf("%d bytes: claimed %d tasks, want one with its body", size, len(c.Tasks))
		}
		_, err = store.Settle(t.Context(), "large", []dueq.Result{{Task: c.Tasks[0]}})
		must(t, err)
	}
	// Many of them: a claim and a list stay bounded.
	const many = 100
	for i := range many {
		scheduleAll(t, store, []dueq.Item{item("large", fmt.Sprintf("m%03d", i), past, strings.Repeat("y", 300_000))})
	}
	page, err := store.List(t.Context(), dueq.ListQuery{Queue: "large", State: dueq.StateScheduled})
	must(t, err)
	for _, info := range page.Tasks {
		if !info.HasBody || info.Body != nil {
			t.Fatalf("%s is listed with body %v of %d bytes, want it told but not sent", info.Member, info.HasBody, len(info.Body))
		}
	}
	for taken := 0; taken < many; {
		c := claim(t, store, "large", 1000)
		if n := len(c.Tasks); n == 0 || n > 3 {
			t.Fatalf("claimed %d tasks of 300 kB, want 1 to 3: a claim carries 1 MiB", n)
		}
		taken += len(c.Tasks)
	}
}
