package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

// crowdTest is many HTTP clients of one server on a Redis of its own.
type crowdTest struct {
	*pollRedis
	server *Server
	url    string
	http   *http.Client
	handed atomic.Int64 // answers with tasks that the server began to write
}

func newCrowdTest(t testing.TB) *crowdTest {
	c := &crowdTest{pollRedis: newPollRedis(t, pollPatient)}
	var err error
	if c.server, err = New(c.store, Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	front := httptest.NewUnstartedServer(nil)
	front.Config = c.server.HTTPServer()
	front.Config.Handler = c.countHanded(front.Config.Handler)
	front.Start()
	c.url = front.URL
	c.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	t.Cleanup(func() {
		c.http.CloseIdleConnections()
		c.server.Close()
		front.Close()
	})
	return c
}

func (c *crowdTest) countHanded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(handing{w, &c.handed}, r)
	})
}

// handing counts the answers that have tasks.
type handing struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (w handing) Write(text []byte) (int, error) {
	if bytes.Contains(text, []byte(`"lease":`)) {
		w.n.Add(1)
	}
	return w.ResponseWriter.Write(text)
}

func (w handing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// post sends JSON and reads the answer into out. The error is that of a client
// without an answer.
func (c *crowdTest) post(ctx context.Context, path string, in, out any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		c.Errorf("%s: %d %s", path, response.StatusCode, answer)
		return nil
	}
	return json.Unmarshal(answer, out)
}

// given is what a claim answers, as far as these tests look at it.
type given struct {
	Tasks []struct {
		Member  string `json:"member"`
		Attempt int    `json:"attempt"`
		Lease   string `json:"lease"`
	} `json:"tasks"`
}

// pollOne waits for one task of a queue.
func (c *crowdTest) pollOne(ctx context.Context, queue string) (got given, err error) {
	err = c.post(ctx, "/v1/queues/"+queue+"/claim", obj{"max": 1, "wait_ms": 20_000, "lease_ms": 2000}, &got)
	return got, err
}

func (c *crowdTest) redisConnections() int {
	var n int
	text := c.srv.Client(c).Info(c.Context(), "clients").Val()
	for line := range bytes.Lines([]byte(text)) {
		if _, err := fmt.Sscanf(string(line), "connected_clients:%d", &n); err == nil {
			return n
		}
	}
	c.Fatal("Redis does not tell its clients")
	return 0
}

func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

func TestThousandIdlePollsHoldNoConnectionOfRedis(t *testing.T) {
	t.Parallel()
	const n = 1000
	c := newCrowdTest(t)
	var group sync.WaitGroup
	var handed sync.Map
	poll := func(i int) {
		group.Go(func() {
			got, err := c.pollOne(t.Context(), fmt.Sprint("q", i%10))
			if err != nil || len(got.Tasks) != 1 {
				t.Errorf("poll %d: %+v, %v", i, got, err)
				return
			}
			if _, twice := handed.LoadOrStore(got.Tasks[0].Member, true); twice {
				t.Errorf("%s was handed out twice", got.Tasks[0].Member)
			}
		})
	}
	for i := range 10 {
		poll(i)
	}
	c.eventually(15*time.Second, "one waits at each queue", func() bool { return c.server.polls.waiting() == 10 })
	before, memoryBefore := c.redisConnections(), memory()
	for i := range n - 10 {
		poll(i)
	}
	c.eventually(15*time.Second, "all wait", func() bool { return c.server.polls.waiting() == n })
	during := c.redisConnections()
	t.Logf("%d connections to Redis with 10 polls, %d with %d; %d KiB a poll, its client's side included",
		before, during, n, (memory()-memoryBefore)/n/1024)
	if during > before+claimsAtOnce {
		t.Errorf("%d connections to Redis, %d with 10 polls", during, before)
	}
	for i := range 10 {
		c.schedule(fmt.Sprint("q", i), in(0), n/10)
	}
	group.Wait()
}

func TestThousandAbortedPollsKeepNoTask(t *testing.T) {
	t.Parallel()
	const n = 1000
	c := newCrowdTest(t)
	_ = c.post(t.Context(), "/v1/queues/q/claim", obj{}, &given{})
	before := runtime.NumGoroutine()
	ctx, leave := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			if got, err := c.pollOne(ctx, "q"); err == nil {
				t.Errorf("an answer before anything was due: %+v", got)
			}
		})
	}
	c.eventually(15*time.Second, "all wait", func() bool { return c.server.polls.waiting() == n })
	leave()
	group.Wait()
	c.eventually(pollSlack, "nobody waits", func() bool { return c.server.polls.waiting() == 0 })
	c.schedule("q", in(0), n)
	began, left := time.Now(), n
	for left > 0 {
		var got given
		if err := c.post(t.Context(), "/v1/queues/q/claim", obj{"max": 100, "wait_ms": 5000}, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Tasks) == 0 {
			t.Fatalf("%d tasks are with clients that have left", left)
		}
		for _, task := range got.Tasks {
			if task.Attempt != 1 {
				t.Errorf("%s: attempt %d", task.Member, task.Attempt)
			}
		}
		left -= len(got.Tasks)
	}
	took := time.Since(began)
	t.Logf("another client had all %d tasks %v after they were due", n, took)
	if took > time.Second+pollSlack {
		t.Errorf("it took %v", took)
	}
	c.http.CloseIdleConnections()
	c.eventually(20*time.Second, "their goroutines are gone", func() bool { return runtime.NumGoroutine() <= before+20 })
}

// Clients leave while tasks come due for them: whoever has no answer has no
// task, but for answers that were on their way, and nothing is lost.
func TestPollsAbortedWhileTasksComeDueLoseNothing(t *testing.T) {
	t.Parallel()
	const n = 500
	c := newCrowdTest(t)
	c.schedule("q", func(int) dueq.When { return dueq.In(200*time.Millisecond + rand.N(800*time.Millisecond)) }, n)
	var group sync.WaitGroup
	var answered atomic.Int64
	var had sync.Map
	keep := func(got given) {
		for _, task := range got.Tasks {
			if _, twice := had.LoadOrStore(task.Member, true); twice {
				t.Errorf("%s was handed out twice", task.Member)
			}
			_ = c.post(t.Context(), "/v1/queues/q/settle", obj{"results": []obj{{"member": task.Member, "lease": task.Lease, "outcome": "ack"}}}, &struct{}{})
		}
	}
	for range n {
		group.Go(func() {
			ctx, leave := context.WithTimeout(t.Context(), 200*time.Millisecond+rand.N(800*time.Millisecond))
			defer leave()
			if got, err := c.pollOne(ctx, "q"); err == nil {
				answered.Add(int64(len(got.Tasks)))
				keep(got)
			}
		})
	}
	group.Wait()
	c.eventually(pollSlack, "nobody waits", func() bool { return c.server.polls.waiting() == 0 })
	var st dueq.QueueStats
	c.eventually(time.Second+pollSlack, "no task is with a client to whom the server sent nothing", func() bool {
		st = c.stats("q")
		return st.Active+st.Scheduled+st.Totals.Acked == n && st.Active <= c.handed.Load()-st.Totals.Acked
	})
	t.Logf("%d of %d were answered; %d answers were on their way when their client left", answered.Load(), n, st.Active)
	c.eventually(30*time.Second, "all are handled", func() bool {
		var got given
		if err := c.post(t.Context(), "/v1/queues/q/claim", obj{"max": 100, "wait_ms": 1000}, &got); err != nil {
			t.Fatal(err)
		}
		keep(got)
		return c.stats("q").Totals.Acked == n
	})
}

// One operation is one task: scheduled in batches of 100, or claimed and
// settled in batches of 100, by clients that each wait for their answer.
func BenchmarkHTTP(b *testing.B) {
	const size = 100
	for _, clients := range []int{1, 8} {
		b.Run(fmt.Sprintf("schedule/%d", clients), func(b *testing.B) {
			c := newCrowdTest(b)
			b.ResetTimer()
			c.scheduleBatches(b.N, size, clients)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
		b.Run(fmt.Sprintf("drain/%d", clients), func(b *testing.B) {
			c := newCrowdTest(b)
			c.scheduleBatches(b.N, size, 8)
			b.ResetTimer()
			var left atomic.Int64
			left.Store(int64(b.N))
			var group sync.WaitGroup
			for range clients {
				group.Go(func() {
					for left.Load() > 0 {
						left.Add(-c.drainBatch(size))
					}
				})
			}
			group.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}

func (c *crowdTest) scheduleBatches(n, size, clients int) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			for start := next.Add(int64(size)) - int64(size); start < int64(n); start = next.Add(int64(size)) - int64(size) {
				var items []obj
				for i := start; i < min(start+int64(size), int64(n)); i++ {
					items = append(items, obj{"id": fmt.Sprintf("order_%08d", i), "kind": "pay_timeout", "due_at": time.Now().Add(-rand.N(time.Hour)).UTC().Format("2006-01-02T15:04:05.000Z")})
				}
				if err := c.post(context.Background(), "/v1/queues/q/tasks/batch", obj{"items": items}, &struct{}{}); err != nil {
					c.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// drainBatch claims and acknowledges up to so many tasks.
func (c *crowdTest) drainBatch(size int) int64 {
	var got given
	if err := c.post(context.Background(), "/v1/queues/q/claim", obj{"max": size}, &got); err != nil {
		c.Error(err)
	}
	var results []obj
	for _, task := range got.Tasks {
		results = append(results, obj{"member": task.Member, "lease": task.Lease, "outcome": "ack"})
	}
	if len(results) > 0 {
		if err := c.post(context.Background(), "/v1/queues/q/settle", obj{"results": results}, &struct{}{}); err != nil {
			c.Error(err)
		}
	}
	return int64(len(results))
}
