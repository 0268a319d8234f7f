package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// onRedis is a server on a real Redis.
func onRedis(t *testing.T, redisURL string) *api {
	t.Helper()
	store, err := redisstore.Open(redisURL, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := &api{T: t, store: store}
	a.serve(t)
	return a
}

// turns waits until /readyz answers so, which it must within 10 s.
func (a *api) turns(status int, details ...string) {
	a.Helper()
	begin := time.Now()
	for {
		r := a.do("GET", "/readyz", nil)
		if r.status == status {
			r.has(details...)
			return
		}
		if time.Since(begin) > 10*time.Second {
			a.Fatalf("/readyz is %d after 10 s, want %d: %s", r.status, status, r.body)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestReady_is_red_while_Redis_is_full(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a := onRedis(t, redis.URL())
	a.turns(200, `{"status":"ready"}`)
	redis.Fill(t)
	a.turns(503, "takes no writes", "OOM")
	r := a.do("POST", "/v1/queues/q/tasks", obj{"id": "a", "delay_ms": 0})
	r.refuses(503, "unavailable", "", "")
	r.has(`"retryable":true`)
	if r.header.Get("Retry-After") == "" || strings.Contains(string(r.body), "may_have_happened") {
		t.Errorf("got %v %s", r.header, r.body)
	}
	redis.Relieve(t)
	a.turns(200)
	a.do("GET", "/v1/queues", nil).is(200).has(`{"queues":[]}`) // a probe leaves no queue
}

func TestReady_is_red_on_a_server_that_takes_no_writes(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	a := onRedis(t, master.URL())
	a.turns(200)
	other := redistest.Start(t)
	if err := master.Client(t).Do(t.Context(), "replicaof", "127.0.0.1", strings.Split(other.Addr(), ":")[1]).Err(); err != nil {
		t.Fatal(err)
	}
	a.turns(503, "takes no writes", "READONLY")
	master.Promote()
	a.turns(200)
}

func TestReady_does_not_wait_for_a_Redis_that_hangs(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a := onRedis(t, redis.URL())
	a.turns(200)
	redis.Pause()
	a.turns(503)
	r := a.do("POST", "/v1/queues/q/tasks", obj{"id": "a", "delay_ms": 0})
	r.refuses(503, "unavailable", "", "")
	r.has(`"may_have_happened":true`, `"retryable":true`)
	a.do("GET", "/livez", nil).is(200)
	redis.Resume()
	a.turns(200)
}

func TestReady_is_red_without_Redis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a := onRedis(t, redis.URL())
	a.turns(200)
	redis.Kill()
	a.turns(503, "the store cannot be reached")
	if r := a.do("GET", "/readyz", nil); strings.Contains(string(r.body), redis.Addr()) {
		t.Errorf("it tells everybody where the store is: %s", r.body)
	}
	redis.Restart()
	a.turns(200)
}

func TestReady_in_a_cluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 0)
	a := onRedis(t, cluster.URL())
	a.turns(200)
	for _, node := range cluster.Masters() {
		node.Fill(t)
	}
	a.turns(503, "OOM")
	cluster.Masters()[0].Relieve(t)
	a.turns(200) // some queues can be written
}

// newReadyTest returns a readiness where no claim waits, and its log.
func newReadyTest(probe func(context.Context) error) (*readiness, *bytes.Buffer) {
	var log bytes.Buffer
	store := &pulse{}
	p := newPolls(store, slog.New(slog.DiscardHandler))
	return newReadiness(Options{Probe: probe, Logger: slog.New(slog.NewJSONHandler(&log, nil))}, store, p, store), &log
}

func TestReady_probes_at_most_so_often_and_tells_the_log_once(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		probes, err := 0, error(nil)
		r, log := newReadyTest(func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			probes++
			return err
		})
		for range 100 {
			if got := r.check(); got != nil {
				t.Fatal(got)
			}
		}
		mu.Lock()
		if probes != 1 {
			t.Errorf("%d probes for 100 requests at one time", probes)
		}
		err = errors.New("full")
		mu.Unlock()
		for range 10 {
			time.Sleep(probeEvery)
			if got := r.check(); got == nil || !strings.Contains(got.Error(), "full") {
				t.Errorf("got %v", got)
			}
		}
		mu.Lock()
		err = nil
		mu.Unlock()
		time.Sleep(probeEvery)
		if got := r.check(); got != nil {
			t.Error(got)
		}
		r.close()
		var lines []string
		for line := range strings.Lines(log.String()) {
			var entry struct{ Msg string }
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, entry.Msg)
		}
		if strings.Join(lines, ", ") != "not ready, ready again" {
			t.Errorf("got %q", lines)
		}
	})
}

func TestReady_outlives_a_slow_probe_but_not_one_that_hangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := time.Duration(0)
		var mu sync.Mutex
		r, _ := newReadyTest(func(ctx context.Context) error {
			mu.Lock()
			d := wait
			mu.Unlock()
			select {
			case <-time.After(d):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err := r.check(); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		wait = time.Minute
		mu.Unlock()
		var red time.Duration
		for begin := time.Now(); red == 0; time.Sleep(100 * time.Millisecond) {
			asked := time.Now()
			if err := r.check(); err != nil {
				red = time.Since(begin)
			}
			if took := time.Since(asked); took > probeWait {
				t.Errorf("a request waited for %v", took)
			}
		}
		if red < probeEvery || red > 10*time.Second {
			t.Errorf("it is red after %v", red)
		}
		r.close()
	})
}

func TestReady_is_red_when_claims_that_wait_are_not_looked_after(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		store := &pulse{Store: &stuck{hang: hang}}
		p := newPolls(store, slog.New(slog.DiscardHandler))
		r := newReadiness(Options{Probe: func(context.Context) error { return nil }, Logger: slog.New(slog.DiscardHandler)}, store, p, store)
		if err := r.check(); err != nil {
			t.Errorf("nobody waits, and it is red: %v", err)
		}
		ctx, leave := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() { _, _ = p.claim(ctx, dueq.ClaimRequest{Queue: "q", Max: 1}, time.Hour) })
		time.Sleep(time.Minute)
		if err := r.check(); err == nil || !strings.Contains(err.Error(), "claims wait") {
			t.Errorf("got %v", err)
		}
		leave()
		close(hang)
		wait.Wait()
		p.close()
		r.close()
	})
}

// stuck is a store that hangs, whatever the context.
type stuck struct {
	dueq.Store
	hang chan struct{}
}

func (s *stuck) Wake(ctx context.Context) (<-chan dueq.Hint, error) {
	hints := make(chan dueq.Hint)
	context.AfterFunc(ctx, func() { close(hints) })
	return hints, nil
}

func (s *stuck) Claim(context.Context, dueq.ClaimRequest) (dueq.Claim, error) {
	<-s.hang
	return dueq.Claim{Wait: -1}, nil
}

func (s *stuck) Stats(context.Context, ...string) ([]dueq.QueueStats, error) {
	<-s.hang
	return nil, dueq.ErrUnavailable
}

func (s *stuck) Settings(context.Context, string) (dueq.Settings, error) {
	return dueq.DefaultSettings(), nil
}
