package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
	"github.com/dueq/dueq/metrics"
)

var errHandler = errors.New("did not work")

// verdicts does what the kind of a task says; a task of the kind retry fails
// twice, one of again runs twice.
func verdicts(_ context.Context, t *dueq.Task) error {
	switch {
	case t.Kind == "retry" && t.Attempt < 3, t.Kind == "fail":
		return dueq.RetryIn(0, errHandler)
	case t.Kind == "again" && t.Round == 0:
		return dueq.Again(0)
	case t.Kind == "dead":
		return dueq.Dead(errHandler)
	}
	return nil
}

func TestObserverCountsWhatAWorkerDoes(t *testing.T) {
	t.Parallel()
	store, _ := frozen() // so ages are exact
	m := metrics.New(store, metrics.Options{})
	set(t, store, "q", dueq.SettingsPatch{"retries": "2"})
	schedule(t, store, "q", dueq.At(epoch.Add(-2500*time.Millisecond)), "1:ack", "2:ack", "3:ack", "4:retry", "5:again", "6:dead", "7:fail")
	schedule(t, store, "r", dueq.At(epoch.Add(-time.Minute)), "1:ack")
	stop := work(t, store, dueq.WorkerOptions{Observer: m.Observer()}, handles(verdicts, "q", "r"))
	eventually(t, "all tasks have ended", func() bool {
		q, r := statsOf(t, store, "q").Totals, statsOf(t, store, "r").Totals
		return q.Acked == 5 && q.Died == 2 && r.Acked == 1
	})
	stop()

	p := scrape(t, m)
	p.want(t, page{
		`dueq_runs_total{outcome="ack",queue="q"}`:            5,
		`dueq_runs_total{outcome="retry",queue="q"}`:          5, // 4 fails twice, 7 three times
		`dueq_runs_total{outcome="again",queue="q"}`:          1,
		`dueq_runs_total{outcome="release",queue="q"}`:        0,
		`dueq_runs_total{outcome="dead",queue="q"}`:           1,
		`dueq_runs_total{outcome="ack",queue="r"}`:            1,
		`dueq_handler_seconds_count{queue="q"}`:               12,
		`dueq_score_drift_seconds_count{queue="q"}`:           12,
		`dueq_task_age_seconds_count{queue="q"}`:              12,
		`dueq_task_age_seconds_sum{queue="q"}`:                17.5, // seven were 2.5 s late, what runs again is due at once
		`dueq_task_age_seconds_bucket{queue="q",le="0.0005"}`: 5,
		`dueq_task_age_seconds_bucket{queue="q",le="1"}`:      5,
		`dueq_task_age_seconds_bucket{queue="q",le="5"}`:      12,
		`dueq_task_age_seconds_sum{queue="r"}`:                60,
		`dueq_leases_lost_total{queue="q"}`:                   0,
		`dueq_deadlines_ignored_total{queue="q"}`:             0,
		`dueq_rejected_total{queue="q",reason="dead"}`:        2,
		`dueq_rejected_total{queue="q",reason="dropped"}`:     0,
	})
	if drift := p[`dueq_score_drift_seconds_sum{queue="q"}`]; drift < 17.5 {
		t.Errorf("drifts add up to %v s, less than the ages", drift)
	}
	if claims, deliveries := p[`dueq_scan_latency_seconds_count`], p[`dueq_task_events_total{event="claimed",queue="q"}`]; claims < 3 || deliveries != 12 {
		t.Errorf("%v claims of %v tasks, want at least 3 of 12", claims, deliveries)
	}
}

// A worker with a lease that it cannot keep drops what it buffered.
func TestObserverCountsWhatIsDroppedLostAndLate(t *testing.T) {
	t.Parallel()
	m := metrics.New(nil, metrics.Options{})
	o := m.Observer()
	task := &dueq.Task{Queue: "q"}
	for range 2 {
		o.Dropped(task)
	}
	for _, status := range []dueq.Status{dueq.StatusDone, dueq.StatusSuperseded, dueq.StatusLeaseLost} {
		o.Settled(task, dueq.Outcome{Status: status})
	}
	o.Overran(task)
	o.Started(task, 3500*time.Microsecond)
	o.Ended(task, dueq.VerdictRelease, 90*time.Second, errHandler)
	o.Call("claim", "q", 0, 8*time.Millisecond, nil)
	o.Call("claim", "q", 0, 2*time.Second, dueq.ErrUnavailable)
	o.Call("settle", "q", 1, time.Second, nil)
	o.Claimed("q", dueq.Claim{})
	scrape(t, m).want(t, page{
		`dueq_rejected_total{queue="q",reason="dropped"}`:       2,
		`dueq_leases_lost_total{queue="q"}`:                     3,
		`dueq_deadlines_ignored_total{queue="q"}`:               1,
		`dueq_score_drift_seconds_bucket{queue="q",le="0.003"}`: 0,
		`dueq_score_drift_seconds_bucket{queue="q",le="0.005"}`: 1,
		`dueq_score_drift_seconds_sum{queue="q"}`:               0.0035,
		`dueq_handler_seconds_sum{queue="q"}`:                   90,
		`dueq_runs_total{outcome="release",queue="q"}`:          1,
		`dueq_scan_latency_seconds_count`:                       2,
		`dueq_scan_latency_seconds_sum`:                         2.008,
		`dueq_scan_latency_seconds_bucket{le="0.0075"}`:         0,
		`dueq_scan_latency_seconds_bucket{le="0.01"}`:           1,
		`dueq_task_age_seconds_count{queue="q"}`:                0,
	})
}

// Consumers over HTTP have no Worker.
func TestObserveCountsConsumersThatAreNoWorkers(t *testing.T) {
	t.Parallel()
	plain, advance := frozen()
	m := metrics.New(plain, metrics.Options{})
	store := m.Observe(m.Wrap(plain))
	schedule(t, store, "q", dueq.At(epoch.Add(-time.Second)), "1:ack", "2:retry", "3:again", "4:release", "5:dead", "6:lost", "7:cancelled")
	advance(time.Second)
	claim, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 100})
	must(t, err)
	change(t, store, "q", dueq.OpStop, "6:lost")
	change(t, store, "q", dueq.OpCancel, "7:cancelled")
	results := make([]dueq.Result, 0, 8)
	for _, task := range claim.Tasks {
		verdict, err := dueq.ParseVerdict(task.Kind)
		if err != nil {
			verdict = dueq.VerdictAck
		}
		results = append(results, dueq.Result{Task: task, Verdict: verdict})
	}
	results = append(results, dueq.Result{})
	outcomes, err := store.Settle(t.Context(), "q", results)
	must(t, err)
	if last := outcomes[7]; last.Status != dueq.StatusRefused {
		t.Errorf("a result without a task is %v", last.Status)
	}
	p := scrape(t, m)
	p.want(t, page{
		`dueq_runs_total{outcome="ack",queue="q"}`:     2, // one of them cancelled
		`dueq_runs_total{outcome="retry",queue="q"}`:   1,
		`dueq_runs_total{outcome="again",queue="q"}`:   1,
		`dueq_runs_total{outcome="release",queue="q"}`: 1,
		`dueq_runs_total{outcome="dead",queue="q"}`:    1,
		`dueq_leases_lost_total{queue="q"}`:            1,
		`dueq_task_age_seconds_count{queue="q"}`:       7,
		`dueq_task_age_seconds_sum{queue="q"}`:         14,
		`dueq_scan_latency_seconds_count`:              1,
		`dueq_store_call_seconds_count{op="claim"}`:    1,
		`dueq_store_call_seconds_count{op="settle"}`:   1,
		`dueq_handler_seconds_count{queue="q"}`:        0,
		`dueq_score_drift_seconds_count{queue="q"}`:    0,
	})
}

func change(t *testing.T, store dueq.Store, queue string, op dueq.Op, member string) {
	t.Helper()
	_, err := store.Change(t.Context(), queue, op, []dueq.Target{{Member: member}})
	must(t, err)
}

// Sums must be right although nobody waits for anybody. It is for -race too.
func TestObservationsAndScrapesAtOnceLoseNothing(t *testing.T) {
	t.Parallel()
	const workers, each = 8, 2000
	store := memstore.New(memstore.Options{})
	m := metrics.New(store, metrics.Options{Queues: 10})
	o := m.Observer()
	wrapped := m.Wrap(store)
	watching, stop := context.WithCancel(t.Context())
	var scrapers, group sync.WaitGroup
	for range 3 {
		scrapers.Go(func() {
			for watching.Err() == nil {
				scrape(t, m)
			}
		})
	}
	for w := range workers {
		group.Go(func() {
			for i := range each {
				task := &dueq.Task{Queue: fmt.Sprint("q", (w+i)%20), Age: time.Second}
				o.Claimed(task.Queue, dueq.Claim{Tasks: []*dueq.Task{task}})
				o.Started(task, time.Millisecond)
				o.Ended(task, dueq.Verdict(i%5), time.Millisecond, nil)
				o.Settled(task, dueq.Outcome{Status: dueq.StatusLeaseLost})
				if i%100 == 0 {
					schedule(t, wrapped, task.Queue, dueq.In(time.Hour), fmt.Sprint(w, "-", i))
				}
			}
		})
	}
	group.Wait()
	stop()
	scrapers.Wait()
	p := scrape(t, m)
	for _, name := range []string{"dueq_runs_total", "dueq_score_drift_seconds_count", "dueq_task_age_seconds_count", "dueq_handler_seconds_count", "dueq_leases_lost_total"} {
		if got := p.sum(name + "{"); got != workers*each {
			t.Errorf("%s adds up to %v, want %d", name, got, workers*each)
		}
		if n := len(p.within(name+"{", `queue="other"`)); n == 0 {
			t.Errorf("%s has no others", name)
		}
	}
	p.want(t, page{`dueq_store_call_seconds_count{op="schedule"}`: workers * each / 100})
}
