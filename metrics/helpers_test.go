package metrics_test

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
	"github.com/dueq/dueq/metrics"
)

// page is what a scrape says, by series as they are written.
type page map[string]float64

// scrape reads all metrics the way Prometheus does.
func scrape(t *testing.T, m *metrics.Metrics) page {
	t.Helper()
	return parse(t, scrapeText(t, m.Handler()))
}

func scrapeText(t *testing.T, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("a scrape answers %d: %s", w.Code, w.Body)
	}
	text, err := io.ReadAll(w.Body)
	must(t, err)
	return string(text)
}

func parse(t *testing.T, text string) page {
	t.Helper()
	p := page{}
	for line := range strings.Lines(text) {
		series, value, ok := cutLast(strings.TrimSpace(line), " ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		must(t, err)
		p[series] = v
	}
	return p
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// want checks values; a series that is missing is not 0.
func (p page) want(t *testing.T, want page) {
	t.Helper()
	for _, series := range slices.Sorted(maps.Keys(want)) {
		if got, ok := p[series]; !ok {
			t.Errorf("there is no %s, want it to be %v", series, want[series])
		} else if got != want[series] {
			t.Errorf("%s is %v, want %v", series, got, want[series])
		}
	}
}

// within returns the series whose name and labels contain all parts.
func (p page) within(parts ...string) page {
	found := page{}
	for series, v := range p {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(series, part) }) {
			found[series] = v
		}
	}
	return found
}

func (p page) sum(parts ...string) (sum float64) {
	for _, v := range p.within(parts...) {
		sum += v
	}
	return sum
}

// ours leaves out what the collectors of Go and the process say.
func (p page) ours() page {
	found := page{}
	for series, v := range p {
		if strings.HasPrefix(series, "dueq_") {
			found[series] = v
		}
	}
	return found
}

// epoch is where the clocks of tests begin.
var epoch = time.UnixMilli(1_800_000_000_000).UTC()

// frozen returns a store in memory whose clock moves by the returned function
// only.
func frozen() (*memstore.Store, func(time.Duration)) {
	var now atomic.Int64
	now.Store(epoch.UnixMicro())
	store := memstore.New(memstore.Options{Now: func() time.Time { return time.UnixMicro(now.Load()).UTC() }})
	return store, func(d time.Duration) { now.Add(d.Microseconds()) }
}

// schedule schedules ids[:kind] of one queue for the same time.
func schedule(t *testing.T, store dueq.Store, queue string, when dueq.When, members ...string) {
	t.Helper()
	items := make([]dueq.Item, len(members))
	for i, member := range members {
		task, err := dueq.ParseMember(member)
		must(t, err)
		items[i] = dueq.Item{Queue: queue, Task: task, When: when}
	}
	outcomes, err := store.Schedule(t.Context(), items)
	must(t, err)
	for i, o := range outcomes {
		must(t, o.Error())
		if o.Status != dueq.StatusScheduled {
			t.Fatalf("%s is %v", members[i], o.Status)
		}
	}
}

func set(t *testing.T, store dueq.Store, queue string, patch dueq.SettingsPatch) {
	t.Helper()
	_, err := store.SetSettings(t.Context(), queue, patch)
	must(t, err)
}

// work runs a worker until stop is called or the test ends.
func work(t *testing.T, store dueq.Store, opts dueq.WorkerOptions, register func(*dueq.Worker)) (stop func()) {
	t.Helper()
	opts.Logger = slog.New(slog.DiscardHandler)
	worker := dueq.NewWorker(store, opts)
	register(worker)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = worker.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return stop
}

// handles is a worker's registration of one handler for all kinds of queues.
func handles(f dueq.HandlerFunc, queues ...string) func(*dueq.Worker) {
	return func(w *dueq.Worker) {
		for _, queue := range queues {
			w.Handle(queue, dueq.AnyKind, f)
		}
	}
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		<-tick.C
	}
}

func statsOf(t *testing.T, store dueq.Store, queue string) dueq.QueueStats {
	t.Helper()
	stats, err := store.Stats(t.Context(), queue)
	must(t, err)
	return stats[0]
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
