package metrics_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/metrics"
)

// Whatever comes in, the number of series is bounded, nothing is lost, and who
// has a name keeps it.
func TestSeriesAreBoundedWhateverComesIn(t *testing.T) {
	t.Parallel()
	const queues, own, ids, paths = 500, 50, 5000, 300
	plain, _ := frozen()
	m := metrics.New(plain, metrics.Options{Queues: own})
	store, o := m.Wrap(plain), m.Observer()
	name := func(i int) string { return fmt.Sprintf("tenant-%03d:job", i%queues) }
	for i := range own {
		o.Started(&dueq.Task{Queue: name(i)}, 0) // the first keep their names
	}
	for i := range ids {
		id := fmt.Sprintf("secret_%d", i)
		task := &dueq.Task{ID: id, Kind: "kind" + id, Queue: name(i), Lease: dueq.Lease{Member: id}}
		schedule(t, store, name(i), dueq.In(time.Hour), task.Member())
		_, err := store.Schedule(t.Context(), []dueq.Item{{Queue: name(i), Task: dueq.Task{ID: id + " bad"}, When: dueq.In(0)}})
		must(t, err)
		o.Claimed(name(i), dueq.Claim{Tasks: []*dueq.Task{task}})
		o.Ended(task, dueq.VerdictAck, time.Second, fmt.Errorf("trouble with %s", id))
		o.Settled(task, dueq.Outcome{Status: dueq.StatusLeaseLost})
	}
	h := m.HTTP(routes())
	for i := range paths {
		ask(h, "GET", fmt.Sprintf("/.secret/%d", i))
		ask(h, fmt.Sprintf("SECRET%d", i), "/v1/queues/q/tasks/x")
		ask(h, "GET", fmt.Sprintf("/v1/queues/secret_%d/tasks/x", i))
	}
	text := scrapeText(t, m.Handler())
	if i := strings.Index(strings.ToLower(text), "secret"); i >= 0 {
		t.Errorf("what nobody may see is a label: %s", text[i-60:i+60])
	}
	p := parse(t, text)
	boundedSeries(t, p, own)
	checkOthers(t, p, queues, own, ids)
	p.want(t, page{
		`dueq_http_requests_total{method="GET",route="other",status="404"}`:                             paths,
		`dueq_http_requests_total{method="other",route="other",status="405"}`:                           paths,
		`dueq_http_requests_total{method="GET",route="/v1/queues/{queue}/tasks/{member}",status="200"}`: paths,
	})
	if n := len(p.within("dueq_http_requests_total")); n != 3 {
		t.Errorf("%d series of requests", n)
	}
}

// boundedSeries checks how many labels and series there are.
func boundedSeries(t *testing.T, p page, own int) {
	t.Helper()
	if n := len(p.within("dueq_tasks", `state="dead"`)); n != own+1 {
		t.Errorf("%d queues have tasks, want %d and the others", n, own)
	}
	const perQueue, perProcess = 96, 400
	all := len(p.ours())
	t.Logf("%d series: %d with a queue, which is %.1f a queue", all, len(p.within("queue=")), float64(len(p.within("queue=")))/float64(own+1))
	if all > perQueue*(own+1)+perProcess {
		t.Errorf("%d series for %d queues", all, own)
	}
}

func checkOthers(t *testing.T, p page, queues, own, ids int) {
	t.Helper()
	each := float64(ids / queues)
	rest := float64(ids) - each*float64(own)
	for _, name := range []string{
		`dueq_tasks{queue=%q,state="scheduled"}`, `dueq_task_events_total{event="scheduled",queue=%q}`,
		`dueq_rejected_total{queue=%q,reason="invalid"}`, `dueq_runs_total{outcome="ack",queue=%q}`,
		`dueq_leases_lost_total{queue=%q}`, `dueq_handler_seconds_sum{queue=%q}`, `dueq_task_age_seconds_count{queue=%q}`,
	} {
		want := page{fmt.Sprintf(name, "other"): rest}
		for i := range own {
			want[fmt.Sprintf(name, fmt.Sprintf("tenant-%03d:job", i))] = each
		}
		p.want(t, want)
	}
}

func TestQueuesKeepTheLabelTheyHadFirst(t *testing.T) {
	t.Parallel()
	m := metrics.New(nil, metrics.Options{Queues: 3})
	o := m.Observer()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range 10 {
				o.Overran(&dueq.Task{Queue: fmt.Sprint("q", i)})
			}
			o.Overran(&dueq.Task{Queue: "no queue's name"})
		})
	}
	group.Wait()
	first := scrape(t, m).within("dueq_deadlines_ignored_total")
	if len(first) != 4 || first[`dueq_deadlines_ignored_total{queue="other"}`] != 8*8 {
		t.Fatalf("there are %v", first)
	}
	for i := range 10 {
		o.Overran(&dueq.Task{Queue: fmt.Sprint("q", i)})
	}
	want := page{}
	for series, v := range first {
		want[series] = v + 1
	}
	want[`dueq_deadlines_ignored_total{queue="other"}`] += 6
	scrape(t, m).want(t, want)
}

func TestQueuesSeenAtOnceDoNotPassTheBound(t *testing.T) {
	t.Parallel()
	for range 100 {
		m := metrics.New(nil, metrics.Options{Queues: 3})
		o := m.Observer()
		start := make(chan struct{})
		var group sync.WaitGroup
		for i := range 16 {
			group.Go(func() {
				<-start
				o.Overran(&dueq.Task{Queue: fmt.Sprint("q", i)})
			})
		}
		close(start)
		group.Wait()
		if got := scrape(t, m).within("dueq_deadlines_ignored_total"); len(got) != 4 || got.sum("") != 16 {
			t.Fatalf("there are %v", got)
		}
	}
}

func TestOptionsOutOfBoundsPanic(t *testing.T) {
	t.Parallel()
	for _, opts := range []metrics.Options{{Queues: -1}, {Queues: 100_001}, {Timeout: -time.Second}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v does not panic", opts)
				}
			}()
			metrics.New(nil, opts)
		}()
	}
}

func TestTwoMetricsInOneProcessAreApart(t *testing.T) {
	t.Parallel()
	a, b := metrics.New(nil, metrics.Options{}), metrics.New(nil, metrics.Options{})
	ask(a.HTTP(http.NotFoundHandler()), "GET", "/")
	scrape(t, a).want(t, page{`dueq_http_requests_total{method="GET",route="other",status="404"}`: 1})
	if got := scrape(t, b).within("dueq_http_requests_total"); len(got) > 0 {
		t.Errorf("the other has %v", got)
	}
}

// Of several queues under one label the worst counts, and the latest claim.
func TestOthersAreTheSumTheOldestAndTheLatest(t *testing.T) {
	t.Parallel()
	store, advance := frozen()
	for i, queue := range []string{"a", "b", "c", "d"} {
		schedule(t, store, queue, dueq.At(epoch.Add(-time.Minute*time.Duration((7*i)%4+1))), "1", "2")
	}
	set(t, store, "b", dueq.SettingsPatch{"paused": "on"})
	set(t, store, "d", dueq.SettingsPatch{"paused": "on"})
	for _, queue := range []string{"d", "c", "b"} {
		_, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: queue, Max: 1})
		must(t, err)
		advance(time.Second)
	}
	_, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: "c", Max: 1})
	must(t, err)
	scrape(t, metrics.New(store, metrics.Options{Queues: 1})).want(t, page{
		`dueq_tasks{queue="other",state="scheduled"}`:           4,
		`dueq_tasks{queue="other",state="active"}`:              2,
		`dueq_overdue_tasks{queue="other"}`:                     4,
		`dueq_oldest_overdue_age_seconds{queue="other"}`:        4*60 + 3,
		`dueq_last_claim_timestamp_seconds{queue="other"}`:      1_800_000_003,
		`dueq_queue_paused{queue="other"}`:                      2,
		`dueq_task_events_total{event="claimed",queue="other"}`: 2,
		`dueq_oldest_overdue_age_seconds{queue="a"}`:            60 + 3,
	})
}
