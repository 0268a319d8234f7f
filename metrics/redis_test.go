package metrics_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/metrics"
	"github.com/dueq/dueq/redisstore"
)

func openRedis(t *testing.T, server *redistest.Server) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(server.URL(), redisstore.Options{})
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func TestWorkerOnRedisIsCountedToTheTask(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	plain := openRedis(t, server)
	m := metrics.New(plain, metrics.Options{})
	store := m.Wrap(plain)
	set(t, store, "q", dueq.SettingsPatch{"retries": "2", "max_late": "1h"})
	late := dueq.At(time.Now().Add(-time.Minute))
	schedule(t, store, "q", late, "1:ack", "2:ack", "3:ack", "4:retry", "5:again", "6:dead", "7:fail")
	schedule(t, store, "q", dueq.At(time.Now().Add(-2*time.Hour)), "8:ack", "9:ack") // too late
	raw := server.Client(t)
	must(t, raw.ZAdd(t.Context(), "delay:q", redis.Z{Score: 0, Member: "10:ack"}, redis.Z{Score: 1_700_000_000_000, Member: "no good member"}).Err())
	stop := work(t, store, dueq.WorkerOptions{Observer: m.Observer()}, handles(verdicts, "q"))
	eventually(t, "all tasks have ended", func() bool {
		q := statsOf(t, plain, "q").Totals
		return q.Acked == 5 && q.Died == 2 && q.Refused == 4
	})
	stop()
	p := scrape(t, m)
	p.want(t, page{
		`dueq_runs_total{outcome="ack",queue="q"}`:                5,
		`dueq_runs_total{outcome="retry",queue="q"}`:              5,
		`dueq_runs_total{outcome="again",queue="q"}`:              1,
		`dueq_runs_total{outcome="release",queue="q"}`:            0,
		`dueq_runs_total{outcome="dead",queue="q"}`:               1,
		`dueq_rejected_total{queue="q",reason="dead"}`:            2,
		`dueq_rejected_total{queue="q",reason="refused"}`:         4,
		`dueq_rejected_total{queue="q",reason="dropped"}`:         0,
		`dueq_task_events_total{event="scheduled",queue="q"}`:     9,
		`dueq_task_events_total{event="claimed",queue="q"}`:       12,
		`dueq_task_age_seconds_count{queue="q"}`:                  12,
		`dueq_task_age_seconds_bucket{queue="q",le="30"}`:         5,
		`dueq_task_age_seconds_bucket{queue="q",le="300"}`:        12,
		`dueq_score_drift_seconds_count{queue="q"}`:               12,
		`dueq_handler_seconds_count{queue="q"}`:                   12,
		`dueq_tasks{queue="q",state="dead"}`:                      6,
		`dueq_tasks{queue="q",state="scheduled"}`:                 0,
		`dueq_tasks{queue="q",state="active"}`:                    0,
		`dueq_overdue_tasks{queue="q"}`:                           0,
		`dueq_leases_lost_total{queue="q"}`:                       0,
		`dueq_store_up`:                                           1,
		`dueq_store_errors_total{error="unavailable",op="claim"}`: 0,
	})
	if observed, made := p[`dueq_scan_latency_seconds_count`], p[`dueq_store_call_seconds_count{op="claim"}`]; observed != made || made < 3 {
		t.Errorf("the worker made %v claims, the store got %v", observed, made)
	}
	if since := float64(time.Now().Unix()) - p[`dueq_last_claim_timestamp_seconds{queue="q"}`]; since < -1 || since > 60 {
		t.Errorf("the last claim is %v s ago", since)
	}
}

// Handlers that are stopped, ignore their deadline, or stop.
func TestWorkerOnRedisLosesLeasesIgnoresDeadlinesAndGivesBack(t *testing.T) {
	t.Parallel()
	plain := openRedis(t, redistest.Start(t))
	m := metrics.New(plain, metrics.Options{})
	set(t, plain, "q", dueq.SettingsPatch{"timeout": "50ms"})
	set(t, plain, "stopping", dueq.SettingsPatch{"timeout": "1h"})
	release := make(chan struct{})
	stop := work(t, m.Wrap(plain), dueq.WorkerOptions{Observer: m.Observer(), Grace: -1}, func(w *dueq.Worker) {
		handles(func(context.Context, *dueq.Task) error { <-release; return nil }, "q")(w)
		handles(func(ctx context.Context, _ *dueq.Task) error { <-ctx.Done(); return ctx.Err() }, "stopping")(w)
	})
	schedule(t, plain, "q", dueq.In(0), "slow", "stopped")
	schedule(t, plain, "stopping", dueq.In(0), "x")
	eventually(t, "all run", func() bool {
		return statsOf(t, plain, "q").Active == 2 && scrape(t, m)[`dueq_score_drift_seconds_count{queue="stopping"}`] == 1
	})
	change(t, plain, "q", dueq.OpStop, "stopped")
	eventually(t, "deadlines are ignored", func() bool { return scrape(t, m)[`dueq_deadlines_ignored_total{queue="q"}`] == 2 })
	close(release)
	eventually(t, "both have ended", func() bool { return scrape(t, m)[`dueq_runs_total{outcome="ack",queue="q"}`] == 2 })
	stop()
	scrape(t, m).want(t, page{
		`dueq_leases_lost_total{queue="q"}`:                   1,
		`dueq_deadlines_ignored_total{queue="q"}`:             2,
		`dueq_runs_total{outcome="release",queue="stopping"}`: 1,
		`dueq_handler_seconds_count{queue="stopping"}`:        1,
		`dueq_leases_lost_total{queue="stopping"}`:            0,
		`dueq_rejected_total{queue="q",reason="dropped"}`:     0,
	})
	if took := scrape(t, m)[`dueq_handler_seconds_sum{queue="q"}`]; took < 2 || took > 120 {
		t.Errorf("two handlers that ran over a second took %v s", took)
	}
}

// Without its store a process still says how it is.
func TestScrapeWithoutRedisTellsTheRest(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF())
	plain := openRedis(t, server)
	m := metrics.New(plain, metrics.Options{Timeout: 300 * time.Millisecond})
	schedule(t, m.Wrap(plain), "q", dueq.In(time.Hour), "x")
	m.Observer().Overran(&dueq.Task{Queue: "q"})
	up := func() bool { return scrape(t, m)[`dueq_store_up`] == 1 }
	down := func(what string) {
		t.Helper()
		eventually(t, what, func() bool { return !up() })
		before := runtime.NumGoroutine()
		for range 50 {
			scrape(t, m)
		}
		p := scrape(t, m)
		p.want(t, page{`dueq_store_up`: 0, `dueq_deadlines_ignored_total{queue="q"}`: 1, `dueq_store_call_seconds_count{op="schedule"}`: 1})
		if len(p.within("go_goroutines")) != 1 || len(p.within("process_start_time_seconds")) != 1 {
			t.Error("Go and the process are missing")
		}
		if stale := p.within("dueq_tasks"); len(stale) > 0 {
			t.Errorf("what nobody knows is told: %v", stale)
		}
		if p[`dueq_store_errors_total{error="unavailable",op="stats"}`] == 0 {
			t.Error("no error of the store is counted")
		}
		eventually(t, "scrapes leave no goroutines", func() bool { return runtime.NumGoroutine() < before+20 })
	}
	eventually(t, "the store is up", up)
	server.Kill()
	down("the store is away")
	server.Restart()
	eventually(t, "the store is up again", up)
	server.Pause()
	down("the store hangs")
	server.Resume()
	eventually(t, "the store answers again", up)
	scrape(t, m).want(t, page{`dueq_tasks{queue="q",state="scheduled"}`: 1, `dueq_task_events_total{event="scheduled",queue="q"}`: 1})
}
