package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/httpapi"
	"github.com/dueq/dueq/memstore"
)

// ledger counts how often each task was handled.
type ledger struct {
	mu     sync.Mutex // guards what follows
	runs   map[string]int
	drifts []time.Duration
}

func (l *ledger) note(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs == nil {
		l.runs = map[string]int{}
	}
	l.runs[id]++
}

func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.runs)
}

func (l *ledger) started(_ *dueq.Task, drift time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drifts = append(l.drifts, drift)
}

// wantEachOnce expects that n tasks ran, once each.
func (l *ledger) wantEachOnce(t *testing.T, n int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.runs) != n {
		t.Errorf("%d tasks ran, want %d", len(l.runs), n)
	}
	for id, runs := range l.runs {
		if runs != 1 {
			t.Errorf("%s ran %d times", id, runs)
		}
	}
}

// work runs a worker until stop is called, which returns what Run did.
func work(t *testing.T, store dueq.Store, opts dueq.WorkerOptions, handle func(ctx context.Context, task *dueq.Task) error) (stop func() error) {
	t.Helper()
	opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	w := dueq.NewWorker(store, opts)
	w.Handle("q", dueq.AnyKind, dueq.HandlerFunc(handle))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

func scheduleMany(t *testing.T, store dueq.Store, n int, when func(i int) dueq.When) {
	t.Helper()
	var items []dueq.Item
	for i := range n {
		items = append(items, dueq.Item{Queue: "q", Task: dueq.Task{ID: fmt.Sprintf("t%05d", i), Body: fmt.Append(nil, i)}, When: when(i)})
	}
	outcomes, err := dueq.NewClient(store, dueq.ClientOptions{}).ScheduleAll(t.Context(), items)
	must(t, err)
	for _, o := range outcomes {
		must(t, o.Error())
	}
}

func soon(int) dueq.When { return dueq.In(0) }

func totals(t *testing.T, store dueq.Store) dueq.QueueStats {
	t.Helper()
	stats, err := store.Stats(t.Context(), "q")
	must(t, err)
	return stats[0]
}

func acked(t *testing.T, store dueq.Store, n int) func() bool {
	return func() bool { return totals(t, store).Totals.Acked == int64(n) }
}

// A worker, the server and its store in one bubble, over connections in memory:
// time passes only while all of them wait, so what they add themselves shows.
func TestWorkerOverHTTPIsExact(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c := inBubble(t, store)
		var done ledger
		stop := work(t, c, dueq.WorkerOptions{Observer: dueq.Observer{Started: done.started}}, func(_ context.Context, task *dueq.Task) error {
			done.note(task.ID)
			return nil
		})
		const n = 500
		scheduleMany(t, c, n, func(int) dueq.When { return dueq.In(rand.N(10 * time.Second)) })
		time.Sleep(11 * time.Second)
		done.wantEachOnce(t, n)
		if most := slices.Max(done.drifts); slices.Min(done.drifts) < 0 || most > time.Millisecond {
			t.Errorf("drift %v to %v, want 0 to 1ms", slices.Min(done.drifts), most)
		}
		must(t, stop())
	})
}

// Without hints a worker would find a task with its next scan, on average half a
// second later.
func TestWorkerOverHTTPIsWokenByHints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c := inBubble(t, store)
		var done ledger
		stop := work(t, c, dueq.WorkerOptions{Observer: dueq.Observer{Started: done.started}}, func(_ context.Context, task *dueq.Task) error {
			done.note(task.ID)
			return nil
		})
		const n = 20
		for i := range n {
			time.Sleep(10*time.Second + rand.N(time.Second))
			_, err := c.Schedule(t.Context(), []dueq.Item{{Queue: "q", Task: dueq.Task{ID: fmt.Sprint(i)}}})
			must(t, err)
		}
		time.Sleep(10 * time.Second)
		done.wantEachOnce(t, n)
		if most := slices.Max(done.drifts); most > time.Millisecond {
			t.Errorf("drift up to %v, want none over 1ms", most)
		}
		must(t, stop())
	})
}

// Idle is what a worker costs its server while nothing happens.
func TestWorkerOverHTTPIsIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int64
		c := inBubble(t, memstore.New(memstore.Options{}), &counting{seen: func(*http.Request) { requests.Add(1) }})
		stop := work(t, c, dueq.WorkerOptions{}, func(context.Context, *dueq.Task) error { return nil })
		time.Sleep(time.Minute)
		requests.Store(0)
		time.Sleep(time.Minute)
		t.Logf("%d requests a minute", requests.Load())
		if n := requests.Load(); n < 30 || n > 150 {
			t.Errorf("%d requests in an idle minute, want about one a second", n)
		}
		must(t, stop())
	})
}

// layer is something between a client and its transport.
type layer interface {
	over(next http.RoundTripper) http.RoundTripper
}

// inBubble is a store behind a server in the bubble of the test.
func inBubble(t *testing.T, store dueq.Store, layers ...layer) *httpapi.Client {
	t.Helper()
	server, err := httpapi.New(store, httpapi.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	must(t, err)
	t.Cleanup(server.Close)
	var transport http.RoundTripper = pipeTransport(t, server.Handler())
	for _, l := range layers {
		transport = l.over(transport)
	}
	c, err := httpapi.Open("http://localhost", httpapi.ClientOptions{HTTP: &http.Client{Transport: transport}})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestWorkersOverHTTPShareAQueue(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	address := serve(t, store, httpapi.Options{})
	var done ledger
	var by [2]ledger
	for i := range by {
		work(t, open(t, address, httpapi.ClientOptions{}), dueq.WorkerOptions{Concurrency: 4}, func(_ context.Context, task *dueq.Task) error {
			if string(task.Body) != fmt.Sprint(number(task.ID)) {
				t.Errorf("%s has the body %q", task.ID, task.Body)
			}
			done.note(task.ID)
			by[i].note(task.ID)
			time.Sleep(time.Millisecond)
			return nil
		})
	}
	const n = 2000
	scheduleMany(t, open(t, address, httpapi.ClientOptions{}), n, soon)
	eventually(t, "all acknowledged", acked(t, store, n))
	done.wantEachOnce(t, n)
	if by[0].size() == 0 || by[1].size() == 0 {
		t.Errorf("%d and %d tasks: want both workers to have some", by[0].size(), by[1].size())
	}
}

func number(id string) (n int) {
	_, _ = fmt.Sscanf(id, "t%d", &n)
	return n
}

func TestWorkerOverHTTPRenewsLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c := inBubble(t, store)
		_, err := c.SetSettings(t.Context(), "q", dueq.SettingsPatch{"lease": "1s", "timeout": "1m"})
		must(t, err)
		var done ledger
		for range 2 { // one would take from the other what it does not renew
			work(t, c, dueq.WorkerOptions{}, func(ctx context.Context, task *dueq.Task) error {
				done.note(task.ID)
				select {
				case <-time.After(50 * time.Second):
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
		}
		scheduleMany(t, c, 3, soon)
		time.Sleep(time.Minute)
		done.wantEachOnce(t, 3)
		if st := totals(t, store); st.Totals.Ended != 0 || st.Totals.Acked != 3 {
			t.Errorf("%d leases ended, %d tasks acknowledged, want 0 and 3", st.Totals.Ended, st.Totals.Acked)
		}
	})
}

func TestWorkerOverHTTPLosesALeaseThatWasTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c := inBubble(t, store)
		cause := make(chan error, 1)
		work(t, c, dueq.WorkerOptions{}, func(ctx context.Context, task *dueq.Task) error {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil
		})
		_, err := c.SetSettings(t.Context(), "q", dueq.SettingsPatch{"timeout": "1h"})
		must(t, err)
		time.Sleep(2 * time.Second)
		scheduleMany(t, c, 1, soon)
		time.Sleep(time.Second)
		outcomes, err := c.Change(t.Context(), "q", dueq.OpStop, []dueq.Target{{Member: "t00000"}})
		if err != nil || outcomes[0].Status != dueq.StatusDone {
			t.Errorf("stop: %v, %v", outcomes, err)
		}
		if got := <-cause; !errors.Is(got, dueq.ErrLeaseLost) {
			t.Errorf("the context of the run ended by %v, want ErrLeaseLost", got)
		}
	})
}

func TestWorkerOverHTTPStopsGracefully(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c := inBubble(t, store)
		var done ledger
		stop := work(t, c, dueq.WorkerOptions{Concurrency: 4}, func(_ context.Context, task *dueq.Task) error {
			done.note(task.ID)
			time.Sleep(2 * time.Second)
			return nil
		})
		const n = 100
		scheduleMany(t, c, n, soon)
		time.Sleep(time.Second)
		began := time.Now()
		must(t, stop())
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %v to stop, the handlers had 1s to go", took)
		}
		st := totals(t, store)
		if done.size() != 4 || st.Totals.Acked != 4 || st.Scheduled != n-4 || st.Active+st.Dead+st.Totals.Retried+st.Totals.Ended != 0 {
			t.Errorf("%d handled; %+v, want 4 acknowledged and the others scheduled as they were", done.size(), st)
		}
	})
}

func TestWorkerOverHTTPSurvivesItsServer(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	shut := serveOn(t, store, listener)
	c := open(t, "http://"+address, httpapi.ClientOptions{})
	var done ledger
	work(t, c, dueq.WorkerOptions{Concurrency: 2}, func(_ context.Context, task *dueq.Task) error {
		done.note(task.ID)
		time.Sleep(time.Millisecond)
		return nil
	})
	const n = 600
	scheduleMany(t, c, n, soon)
	for restart := range 3 {
		eventually(t, "some progress", func() bool { return done.size() > (restart+1)*n/6 })
		shut()
		listener, err = net.Listen("tcp", address)
		must(t, err)
		shut = serveOn(t, store, listener)
	}
	eventually(t, "all handled", func() bool { return done.size() == n })
	eventually(t, "nothing left", func() bool { st := totals(t, store); return st.Active+st.Scheduled == 0 })
	shut()
}

// serveOn serves until what it returns is called, which cuts all connections.
func serveOn(t *testing.T, store dueq.Store, listener net.Listener) (shut func()) {
	t.Helper()
	server, err := httpapi.New(store, httpapi.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	must(t, err)
	s := server.HTTPServer()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(listener)
	}()
	return sync.OnceFunc(func() {
		_ = s.Close()
		<-ended
		server.Close()
	})
}

// Answers that are lost on their way: what was claimed comes back, what was
// settled stays so.
func TestWorkerOverHTTPBearsLostAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		_, err := store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"lease": "1s", "retries": "1000"})
		must(t, err)
		lossy := &losing{share: 0.2}
		c := inBubble(t, store, lossy)
		var done ledger
		stop := work(t, c, dueq.WorkerOptions{Concurrency: 8}, func(_ context.Context, task *dueq.Task) error {
			done.note(task.ID)
			return nil
		})
		const n = 200
		for i := range n {
			item := dueq.Item{Queue: "q", Task: dueq.Task{ID: fmt.Sprintf("t%05d", i)}, When: dueq.In(time.Second), IfExists: dueq.Keep}
			for {
				_, err := c.Schedule(t.Context(), []dueq.Item{item})
				if err == nil {
					break
				}
				if !errors.Is(err, dueq.ErrUnavailable) || !mayHaveHappened(err) {
					t.Fatalf("got %v, want that it may have happened", err)
				}
			}
		}
		time.Sleep(time.Hour)
		if done.size() != n {
			t.Errorf("%d of %d tasks ran", done.size(), n)
		}
		if st := totals(t, store); st.Active+st.Scheduled+st.Dead != 0 || lossy.lost == 0 {
			t.Errorf("%d answers were lost, left is %+v", lossy.lost, st)
		}
		lossy.lose(0)
		must(t, stop())
	})
}

// losing loses a share of the answers to what is posted, after the server gave
// them.
type losing struct {
	http.RoundTripper

	mu    sync.Mutex // guards what follows
	share float64
	lost  int
}

func (l *losing) lose(share float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.share = share
}

func (l *losing) over(next http.RoundTripper) http.RoundTripper {
	l.RoundTripper = next
	return l
}

func (l *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.RoundTripper.RoundTrip(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || r.Method != http.MethodPost || rand.Float64() >= l.share {
		return res, err
	}
	l.lost++
	_, _ = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	return nil, fmt.Errorf("%s: the answer is lost", strings.TrimPrefix(r.URL.Path, "/v1"))
}
