package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

// half is a request whose body has not come to its end.
type half struct {
	net.Conn
	rest string
}

// sendHalf returns when the server is reading the body.
func (s *served) sendHalf(t *testing.T) *half {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.urls[0], "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	const body = `{"id": "half", "delay_ms": 3600000}`
	fmt.Fprintf(conn, "POST /v1/queues/q/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:9])
	s.inFlight(t)
	return &half{conn, body[9:]}
}

func (h *half) finish(t *testing.T) *http.Response {
	t.Helper()
	if _, err := io.WriteString(h, h.rest); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(h), nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res
}

// poll sends a claim that waits for the longest time, and returns when the
// server has it.
func (s *served) poll(t *testing.T) <-chan answer {
	t.Helper()
	answers := make(chan answer, 1)
	go func() {
		got, err := s.try(t.Context(), "POST /v1/queues/q/claim", `{"wait_ms": 20000}`)
		if err != nil {
			got.body = err.Error()
		}
		answers <- got
	}()
	s.inFlight(t)
	return answers
}

func TestServeStops(t *testing.T) {
	t.Parallel()
	t.Run("and answers a poll with nothing", func(t *testing.T) {
		t.Parallel()
		s := inMemory().ready(t)
		answers, began := s.poll(t), time.Now()
		s.stop(t)
		got := <-answers
		got.must(t, 200, `"tasks":[]`)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("it took %v", took)
		}
	})
	t.Run("after the requests that run", func(t *testing.T) {
		t.Parallel()
		c := onSQLite(t)
		s := c.ready(t)
		request := s.sendHalf(t)
		s.signal(t, syscall.SIGTERM)
		eventually(t, func() bool { // it has stopped listening
			_, err := s.try(t.Context(), "GET /livez", "")
			return err != nil
		})
		if res := request.finish(t); res.StatusCode != 201 {
			t.Errorf("status %d, want 201", res.StatusCode)
		}
		if code := s.exit(t); code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
		if info := c.info(t, "q", "half"); info.State != dueq.StateScheduled {
			t.Errorf("it is %v, want scheduled", info.State)
		}
	})
	t.Run("without those that outlast the grace", func(t *testing.T) {
		t.Parallel()
		s := inMemory().ready(t, "--grace", "200ms")
		request := s.sendHalf(t)
		s.stop(t)
		if n, err := request.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("the connection still lives")
		}
		if !strings.Contains(s.stderr.String(), "cut off") {
			t.Error("the log does not say so")
		}
	})
	t.Run("accepting requests while others notice, and at once when told again", func(t *testing.T) {
		t.Parallel()
		s := inMemory().ready(t, "--drain", "1h")
		answers := s.poll(t)
		s.signal(t, syscall.SIGTERM)
		got := <-answers
		got.must(t, 200, `"tasks":[]`)
		s.until(t, "GET /readyz", 503).must(t, 503, "about to stop")
		s.call(t, "GET /livez", "").must(t, 200)
		s.call(t, "POST /v1/queues/q/tasks", `{"id": "a", "delay_ms": 3600000}`).must(t, 201)
		s.call(t, "POST /v1/queues/q/claim", `{"wait_ms": 20000}`).must(t, 200, `"tasks":[]`)
		s.signal(t, syscall.SIGINT)
		if code := s.exit(t); code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
	})
}

func TestServeKeepsItsLimits(t *testing.T) {
	t.Parallel()
	s := inMemory().ready(t, "--config", configFile(t, "limits: {member: 70, header: 8KiB, header_timeout: 300ms, idle_timeout: 1s, open_polls: 1, open_streams: 1}\n"))
	member := func(n int) string { return `{"id": "` + strings.Repeat("a", n) + `", "delay_ms": 0}` }
	s.call(t, "POST /v1/queues/other/tasks", member(70)).must(t, 201)
	s.call(t, "POST /v1/queues/other/tasks", member(71)).must(t, 400, "the limit is 70")
	s.call(t, "GET /livez", "", "X-Long: "+strings.Repeat("a", 7<<10)).must(t, 200)
	s.call(t, "GET /livez", "", "X-Long: "+strings.Repeat("a", 16<<10)).must(t, 431)
	s.poll(t)
	s.call(t, "POST /v1/queues/q/claim", `{"wait_ms": 20000}`).must(t, 429)
	for name, text := range map[string]string{"header": "GET /livez HTTP/1.1\r\nHost: loc", "idle": "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.urls[0], "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		began := time.Now()
		fmt.Fprint(conn, text)
		if _, err := io.Copy(io.Discard, conn); err != nil || time.Since(began) > 9*time.Second {
			t.Errorf("%s: %v after %v, want the connection closed after a second at most", name, err, time.Since(began))
		}
	}
	s.stop(t)
}
