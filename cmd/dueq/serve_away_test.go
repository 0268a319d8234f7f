package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dueq/dueq/internal/redistest"
)

// TestServeWhileRedisIsAway starts and lives without its store, says that it is
// not ready, and works as soon as it can.
func TestServeWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	const task = `{"id": "a", "delay_ms": 0}`
	t.Run("from the start", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		c := &cli{url: server.URL()}
		server.Stop()
		s := c.serve(t)
		s.call(t, "GET /livez", "").must(t, 200)
		s.call(t, "GET /readyz", "").must(t, 503, "store unavailable")
		s.call(t, "POST /v1/queues/q/tasks", task).must(t, 503, `"retryable":true`)
		answers := s.poll(t)
		server.Restart()
		s.until(t, "GET /readyz", 200)
		began := time.Now()
		got := <-answers
		got.must(t, 503, `"retryable":true`) // and asks again, where there is a store now
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("a claim that waited from before went on waiting for %v", took)
		}
		s.call(t, "POST /v1/queues/q/tasks", task).must(t, 201)
		if got := s.call(t, "POST /v1/queues/q/claim", `{"wait_ms": 20000}`).delivered(t); len(got.Tasks) != 1 {
			t.Errorf("got %+v", got)
		}
		s.stop(t)
		if log := s.stderr.String(); strings.Count(log, "the store cannot be opened yet") != 1 || !strings.Contains(log, "msg=serving store=redis://") {
			t.Errorf("the log does not say once what it waits for, or that it serves: %s", log)
		}
	})
	t.Run("and it is told to stop", func(t *testing.T) {
		t.Parallel()
		(&cli{url: "redis://127.0.0.1:1"}).serve(t).stop(t)
	})
	t.Run("and comes back after a freeze, with no goroutine or connection more", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		s := (&cli{url: server.URL()}).ready(t)
		use := func() {
			s.call(t, "POST /v1/queues/q/tasks", task).must(t, 201)
			s.call(t, "POST /v1/queues/q/claim", `{"wait_ms": 20000}`).must(t, 200, `"member":"a"`)
			s.call(t, "DELETE /v1/queues/q/tasks/a?running=true", "").must(t, 200)
		}
		use()
		client := server.Client(t)
		connections := func() int { return strings.Count(client.ClientList(t.Context()).Val(), "\n") }
		goroutines, connected := s.metric(t, "go_goroutines"), connections()
		server.Pause()
		s.until(t, "GET /readyz", 503)
		for range 50 {
			s.call(t, "GET /livez", "").must(t, 200)
		}
		for range 5 {
			s.call(t, "POST /v1/queues/q/tasks", task).must(t, 503, `"retryable":true`)
		}
		server.Resume()
		s.until(t, "GET /readyz", 200)
		s.call(t, "DELETE /v1/queues/q/tasks/a?running=true", "")
		use()
		const slack = 5 // what a pool keeps and a probe needs
		eventually(t, func() bool {
			return s.metric(t, "go_goroutines") <= goroutines+slack && connections() <= connected+slack
		})
		server.Fill(t)
		s.until(t, "GET /readyz", 503).must(t, 503, "takes no writes")
		server.Relieve(t)
		s.until(t, "GET /readyz", 200)
		s.stop(t)
		eventually(t, func() bool { return connections() == 1 })
		if n := strings.Count(s.stderr.String(), "status=503"); n > 2 {
			t.Errorf("%d lines in the log about calls that failed", n)
		}
	})
	t.Run("but not with what waiting does not mend", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.WithConfig("requirepass", "right"))
		for url, want := range map[string]struct {
			code int
			text string
		}{
			"redis://:wr0ng@" + server.Addr(): {1, "WRONGPASS"},
			"nosuch://":                       {2, "store is none of redis://"},
			server.URL() + "?nosuch=1":        {2, "store "},
			"sqlite:/proc/nosuch/dueq.db":     {1, "/proc/nosuch"},
			"redis://127.0.0.1:1/notanumber":  {2, "store "},
		} {
			p := (&cli{url: url}).start(t, "serve", "--listen", "127.0.0.1:0")
			if code := p.exit(t); code != want.code || !strings.Contains(p.stderr.String(), want.text) {
				t.Errorf("%s: exit code %d, want %d and %s", url, code, want.code, want.text)
			}
			if strings.Contains(p.stderr.String(), "wr0ng") {
				t.Errorf("the password is shown")
			}
		}
	})
}

// TestServeAfterRedisWasKilled loses nothing that was answered, and a poll that
// was open all the time gets its task.
func TestServeAfterRedisWasKilled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF())
	s := (&cli{url: server.URL()}).ready(t)
	s.call(t, "POST /v1/queues/q/tasks", `{"id": "a", "delay_ms": 2000}`).must(t, 201)
	answers := s.poll(t)
	server.Kill()
	server.Restart()
	if got := (<-answers).delivered(t); len(got.Tasks) != 1 || got.Tasks[0].Member != "a" {
		t.Errorf("got %+v", got)
	}
	s.signal(t, syscall.SIGTERM)
	if code := s.exit(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}
