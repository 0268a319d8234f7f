package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
	"github.com/dueq/dueq/metrics"
)

func TestStateOfQueuesIsWhatTheStoreSays(t *testing.T) {
	t.Parallel()
	store, advance := frozen()
	schedule(t, store, "q", dueq.At(epoch.Add(-time.Hour)), "late:a", "late:b")
	schedule(t, store, "q", dueq.At(epoch.Add(time.Minute)), "soon:a", "soon:b", "soon:c")
	schedule(t, store, "q", dueq.At(epoch.Add(24*time.Hour)), "far")
	schedule(t, store, "idle", dueq.At(epoch.Add(time.Hour)), "x")
	set(t, store, "idle", dueq.SettingsPatch{"paused": "on"})
	store.Add("q", "no good member", 1_700_000_000_000)
	claim, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 3})
	must(t, err)
	_, err = store.Settle(t.Context(), "q", []dueq.Result{{Task: claim.Tasks[0], Verdict: dueq.VerdictDead}})
	must(t, err)
	advance(62500 * time.Millisecond)

	p := scrape(t, metrics.New(store, metrics.Options{}))
	p.want(t, page{
		`dueq_store_up`:                                       1,
		`dueq_unreadable_queues`:                              0,
		`dueq_tasks{queue="q",state="scheduled"}`:             4,
		`dueq_tasks{queue="q",state="active"}`:                1,
		`dueq_tasks{queue="q",state="dead"}`:                  2,
		`dueq_tasks{queue="idle",state="scheduled"}`:          1,
		`dueq_overdue_tasks{queue="q"}`:                       3,
		`dueq_overdue_tasks{queue="idle"}`:                    0,
		`dueq_oldest_overdue_age_seconds{queue="q"}`:          2.5,
		`dueq_oldest_overdue_age_seconds{queue="idle"}`:       0,
		`dueq_last_claim_timestamp_seconds{queue="q"}`:        1_800_000_000,
		`dueq_queue_paused{queue="q"}`:                        0,
		`dueq_queue_paused{queue="idle"}`:                     1,
		`dueq_task_events_total{event="scheduled",queue="q"}`: 6,
		`dueq_task_events_total{event="claimed",queue="q"}`:   2,
		`dueq_task_events_total{event="died",queue="q"}`:      1,
		`dueq_task_events_total{event="refused",queue="q"}`:   1,
		`dueq_task_events_total{event="acked",queue="q"}`:     0,
		`dueq_rejected_total{queue="q",reason="dead"}`:        1,
		`dueq_rejected_total{queue="q",reason="refused"}`:     1,
		`dueq_rejected_total{queue="idle",reason="refused"}`:  0,
	})
	if never := p.within("last_claim", `"idle"`); len(never) > 0 {
		t.Errorf("a queue never claimed from has %v", never)
	}
}

func TestManyTasksOfTheFutureAreNotOverdue(t *testing.T) {
	t.Parallel()
	store, _ := frozen()
	for i := range 50 {
		members := make([]string, dueq.MaxItems)
		for j := range members {
			members[j] = fmt.Sprintf("%d-%d", i, j)
		}
		schedule(t, store, "q", dueq.At(epoch.Add(24*time.Hour)), members...)
	}
	scrape(t, metrics.New(store, metrics.Options{})).want(t, page{
		`dueq_tasks{queue="q",state="scheduled"}`:    50_000,
		`dueq_overdue_tasks{queue="q"}`:              0,
		`dueq_oldest_overdue_age_seconds{queue="q"}`: 0,
	})
}

// gate is a store whose Stats can be counted, held up and made to fail.
type gate struct {
	dueq.Store
	reads atomic.Int64
	mu    sync.Mutex // guards the answers to come
	err   error
	lost  map[string]error // by queue
	hold  time.Duration
}

func (g *gate) Stats(ctx context.Context, queues ...string) ([]dueq.QueueStats, error) {
	g.reads.Add(1)
	g.mu.Lock()
	err, lost, hold := g.err, g.lost, g.hold
	g.mu.Unlock()
	select {
	case <-time.After(hold):
	case <-ctx.Done():
		return nil, dueq.Unavailable(context.Cause(ctx))
	}
	if err != nil {
		return nil, err
	}
	stats, err := g.Store.Stats(ctx, queues...)
	for i := range stats {
		if why := lost[stats[i].Queue]; why != nil {
			stats[i] = dueq.QueueStats{Queue: stats[i].Queue, Err: why}
		}
	}
	return stats, err
}

func (g *gate) answer(err error, hold time.Duration, lost ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err, g.hold, g.lost = err, hold, map[string]error{}
	for _, queue := range lost {
		g.lost[queue] = dueq.Unavailable(errors.New("its server is away"))
	}
}

func TestStoreIsReadOnceASecondHoweverManyScrape(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &gate{Store: memstore.New(memstore.Options{})}
		schedule(t, store, "q", dueq.In(time.Hour), "x")
		m := metrics.New(store, metrics.Options{})
		store.answer(nil, 100*time.Millisecond)
		for second := range int64(5) {
			var group sync.WaitGroup
			for range 20 {
				group.Go(func() { scrape(t, m).want(t, page{`dueq_tasks{queue="q",state="scheduled"}`: 1}) })
			}
			group.Wait()
			scrape(t, m)
			if got := store.reads.Load(); got != second+1 {
				t.Errorf("%d reads after %d s", got, second)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestStoreThatHangsHoldsAScrapeForItsTimeoutOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &gate{Store: memstore.New(memstore.Options{})}
		schedule(t, store, "q", dueq.In(time.Hour), "x")
		m := metrics.New(store, metrics.Options{Timeout: 700 * time.Millisecond})
		store.answer(nil, time.Hour)
		began := time.Now()
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				p := scrape(t, m)
				p.want(t, page{`dueq_store_up`: 0, `dueq_http_requests_in_flight`: 0})
				if stale := p.within("dueq_tasks"); len(stale) > 0 {
					t.Errorf("says %v of a store that hangs", stale)
				}
			})
		}
		group.Wait()
		if took := time.Since(began); took != 700*time.Millisecond {
			t.Errorf("ten scrapes took %v", took)
		}
		store.answer(nil, 0)
		time.Sleep(time.Second)
		scrape(t, m).want(t, page{
			`dueq_store_up`: 1, `dueq_tasks{queue="q",state="scheduled"}`: 1,
			`dueq_store_errors_total{error="unavailable",op="stats"}`: 1,
		})
	})
}

func TestScrapeThatWaitsForTheStoreHoldsNoWorkerUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &gate{Store: memstore.New(memstore.Options{})}
		m := metrics.New(store, metrics.Options{Timeout: time.Minute})
		store.answer(nil, time.Hour)
		scraped := make(chan time.Time, 1)
		began := time.Now()
		go func() {
			scrape(t, m).want(t, page{`dueq_store_up`: 0})
			scraped <- time.Now()
		}()
		synctest.Wait()
		var handled time.Time
		stop := work(t, m.Wrap(store.Store), dueq.WorkerOptions{Observer: m.Observer()}, handles(func(context.Context, *dueq.Task) error {
			handled = time.Now()
			return nil
		}, "q"))
		schedule(t, m.Wrap(store.Store), "q", dueq.In(time.Second), "x")
		if ended := <-scraped; ended.Sub(began) != time.Minute {
			t.Errorf("the scrape took %v", ended.Sub(began))
		}
		stop()
		if took := handled.Sub(began); took < time.Second || took > 2*time.Second {
			t.Errorf("a task due in a second was handled after %v", took)
		}
	})
}

func TestQueueThatCannotBeReadIsLeftOutAndDoesNotSetCountersBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &gate{Store: memstore.New(memstore.Options{})}
		for _, queue := range []string{"a", "b", "c", "d"} {
			schedule(t, store, queue, dueq.In(time.Hour), "x", "y")
		}
		m := metrics.New(store, metrics.Options{Queues: 2}) // c and d are the others
		all := scrape(t, m)
		all.want(t, page{
			`dueq_tasks{queue="a",state="scheduled"}`:                 2,
			`dueq_tasks{queue="other",state="scheduled"}`:             4,
			`dueq_task_events_total{event="scheduled",queue="other"}`: 4,
		})
		for _, c := range []struct{ lost, label, left string }{{"a", "a", "other"}, {"d", "other", "a"}} {
			store.answer(nil, 0, c.lost)
			time.Sleep(time.Second)
			p := scrape(t, m)
			p.want(t, page{`dueq_store_up`: 1, `dueq_unreadable_queues`: 1})
			p.want(t, all.within("_total", fmt.Sprintf("queue=%q", c.left)))
			if got := p.within(fmt.Sprintf("queue=%q", c.label)); len(got) > 0 {
				t.Errorf("without %s there is %v", c.lost, got)
			}
		}
		store.answer(nil, 0)
		time.Sleep(time.Second)
		p := scrape(t, m)
		p.want(t, all.within("queue="))
		p.want(t, page{`dueq_unreadable_queues`: 0, `dueq_store_errors_total{error="unavailable",op="stats"}`: 2})
	})
}

// What has no store says nothing of one.
func TestMetricsWithoutAStoreTellWhatTheProcessDoes(t *testing.T) {
	t.Parallel()
	store, _ := frozen()
	m := metrics.New(nil, metrics.Options{Version: "v1.2.3"})
	schedule(t, m.Wrap(store), "q", dueq.In(time.Hour), "x")
	p := scrape(t, m)
	p.want(t, page{`dueq_store_call_seconds_count{op="schedule"}`: 1})
	if len(p.within(`dueq_build_info{`, `version="v1.2.3"`)) != 1 {
		t.Errorf("no build info of v1.2.3 in %v", p.ours())
	}
	for series := range maps.Keys(p.within("dueq_tasks")) {
		t.Errorf("there is %s", series)
	}
	if _, up := p["dueq_store_up"]; up {
		t.Error("there is dueq_store_up")
	}
}
