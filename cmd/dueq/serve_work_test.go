package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
)

const webhookSecret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

// receiver is a webhook that hands its requests to a test, and answers when it
// is told what.
type receiver struct {
	*httptest.Server
	got  chan *http.Request // with their bodies read
	body chan []byte
	then chan int // the status to answer
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{got: make(chan *http.Request, 10), body: make(chan []byte, 10), then: make(chan int, 10)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.got <- req
		r.body <- body
		w.WriteHeader(<-r.then)
	}))
	t.Cleanup(r.Close)
	return r
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dueq.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestServePushes(t *testing.T) {
	t.Parallel()
	t.Run("signed, by settings that change while it runs", func(t *testing.T) {
		t.Parallel()
		c, to := onSQLite(t), newReceiver(t)
		s := c.ready(t, "--config", configFile(t, "push:\n  secrets: [{queue: \"order:*\", secrets: ["+webhookSecret+"]}]\n  allowed_networks: [127.0.0.0/8]\n"))
		c.scheduleBody(t, "order:close", "o_1:k", `{"n":1}`)
		c.run(t, "", "settings", "order:close", "set", "push="+to.URL+"/hook", "timeout=1m").must(t, 0)
		to.then <- 200
		got, body := <-to.got, <-to.body
		hook, err := webhooks.NewWebhook(webhookSecret)
		if err == nil {
			err = hook.Verify(body, got.Header)
		}
		if err != nil || string(body) != `{"n":1}` || got.URL.Path != "/hook" || got.Header.Get("Dueq-Id") != "o_1" {
			t.Errorf("%v, got %s %v", err, body, got.Header)
		}
		eventually(t, func() bool { return c.stats(t, "order:close").Totals.Acked == 1 })
		s.stop(t)
	})
	t.Run("and finishes a delivery when it stops", func(t *testing.T) {
		t.Parallel()
		c, to := onSQLite(t), newReceiver(t)
		c.scheduleAll(t, "q", []string{"m"}, dueq.In(0))
		c.run(t, "", "settings", "q", "set", "push="+to.URL, "timeout=1m").must(t, 0)
		s := c.ready(t, "--config", configFile(t, "push: {unsigned: true, allow_private: true}\n"))
		<-to.got
		s.signal(t, syscall.SIGTERM)
		eventually(t, func() bool {
			_, err := s.try(t.Context(), "GET /livez", "")
			return err != nil
		})
		to.then <- 200
		if code := s.exit(t); code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
		if totals := c.stats(t, "q").Totals; totals.Acked != 1 || totals.Claimed != 1 {
			t.Errorf("got %+v", totals)
		}
	})
	t.Run("neither to private addresses nor unsigned unless it may", func(t *testing.T) {
		t.Parallel()
		c, to := onSQLite(t), newReceiver(t)
		c.scheduleAll(t, "signed", []string{"m"}, dueq.In(0))
		c.scheduleAll(t, "unsigned", []string{"m"}, dueq.In(0))
		for _, queue := range []string{"signed", "unsigned"} {
			c.run(t, "", "settings", queue, "set", "push="+to.URL, "retry_first=1h").must(t, 0)
		}
		s := c.ready(t, "--config", configFile(t, "push: {secrets: [{queue: signed, secrets: ["+webhookSecret+"]}]}\n"))
		eventually(t, func() bool { return c.info(t, "signed", "m").Failures == 1 })
		if text := c.info(t, "signed", "m").LastError; !strings.Contains(text, "127.0.0.1") {
			t.Errorf("the error does not name the address: %s", text)
		}
		if totals := c.stats(t, "unsigned").Totals; totals.Claimed != 0 {
			t.Errorf("got %+v", totals)
		}
		s.stop(t)
		if len(to.got) != 0 || !strings.Contains(s.stderr.String(), `msg="queue is not pushed" queue=unsigned`) {
			t.Errorf("%d were pushed, or the log does not say why not", len(to.got))
		}
	})
}

func TestServeForwards(t *testing.T) {
	t.Parallel()
	t.Run("to lists, by settings that change while it runs", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		client := server.Client(t)
		c := onServer(t, server.URL(), client)
		s := c.ready(t)
		c.schedule(t, "q", "later", farWhen)
		for _, to := range []string{"first", "second"} {
			c.run(t, "", "settings", "q", "set", "forward=list:"+to).must(t, 0)
			c.scheduleAll(t, "q", []string{"to_" + to}, dueq.In(100*time.Millisecond))
			if got, err := client.BLPop(t.Context(), 30*time.Second, to).Result(); err != nil || got[1] != "to_"+to {
				t.Errorf("got %v, %v", got, err)
			}
		}
		if stats := c.stats(t, "q"); stats.Scheduled != 1 || stats.Totals.Forwarded != 2 || stats.Active != 0 {
			t.Errorf("got %+v", stats)
		}
		s.stop(t)
	})
	t.Run("not where there are no lists, and says so", func(t *testing.T) {
		t.Parallel()
		c := onSQLite(t)
		c.scheduleAll(t, "q", []string{"m"}, dueq.In(0))
		if r := c.run(t, "", "settings", "q", "set", "forward=list:x"); r.code == 0 {
			s := c.ready(t)
			c.scheduleAll(t, "other", []string{"m"}, dueq.In(0))
			s.call(t, "POST /v1/queues/other/claim", `{"wait_ms": 20000}`).must(t, 200, `"member":"m"`)
			s.stop(t)
			if n := strings.Count(s.stderr.String(), `msg="queue is not forwarded" queue=q`); n > 2 {
				t.Errorf("the log says %d times that q is not forwarded", n)
			}
		} else {
			r.must(t, 2).says(t, "forward")
		}
	})
}

func TestServeShowsMetrics(t *testing.T) {
	t.Parallel()
	c := onSQLite(t)
	s := c.ready(t)
	for range 3 {
		s.call(t, "POST /v1/queues/order:close/tasks", `{"id": "a", "delay_ms": 0}`)
	}
	got := s.call(t, "POST /v1/queues/order:close/claim", `{"wait_ms": 20000}`).delivered(t)
	s.call(t, "POST /v1/queues/order:close/settle", `{"results": [{"member": "a", "outcome": "ack", "lease": "`+got.Tasks[0].Lease+`"}]}`).must(t, 200)
	for series, want := range map[string]float64{
		`dueq_http_requests_total{method="POST",route="/v1/queues/{queue}/tasks",status="201"}`: 1,
		`dueq_http_requests_total{method="POST",route="/v1/queues/{queue}/tasks",status="200"}`: 2,
		`dueq_http_request_seconds_count{method="POST",route="/v1/queues/{queue}/claim"}`:       1,
		`dueq_store_call_seconds_count{op="schedule"}`:                                          3,
	} {
		if value := s.metric(t, series); value != want {
			t.Errorf("%s is %v, want %v", series, value, want)
		}
	}
	if body := s.call(t, "GET /metrics", "").body; !strings.Contains(body, `queue="order:close"`) || !strings.Contains(body, `outcome="ack"`) {
		t.Errorf("nothing of the queue:\n%s", body)
	}
	s.stop(t)
	s = c.ready(t, "--config", configFile(t, "metrics: {enabled: false}\n"))
	s.call(t, "GET /metrics", "").must(t, 404)
	s.stop(t)
}
