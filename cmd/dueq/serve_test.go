package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

// served is a dueq serve of its own.
type served struct {
	*process
	urls   []string
	client *http.Client
}

// inMemory is for what needs no look into the store.
func inMemory() *cli { return &cli{url: "memory:"} }

// serve starts a dueq serve and returns when it listens, on a port of its own
// unless the arguments say otherwise.
func (c *cli) serve(t *testing.T, args ...string) *served {
	t.Helper()
	s := &served{process: c.start(t, append([]string{"serve", "-o", "json", "--listen", "127.0.0.1:0"}, args...)...)}
	var view servedView
	if line := s.line(t); json.Unmarshal([]byte(line), &view) != nil || len(view.URLs) == 0 || len(view.URLs) != len(view.Addresses) {
		t.Fatalf("not what is listened on: %s", line)
	}
	s.urls = view.URLs
	s.client = &http.Client{Transport: &http.Transport{DialContext: s.dial}, Timeout: time.Minute}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// dial connects to the server, to its socket if it has one.
func (s *served) dial(ctx context.Context, _, address string) (net.Conn, error) {
	var dialer net.Dialer
	if path, ok := strings.CutPrefix(s.urls[0], "unix:"); ok {
		return dialer.DialContext(ctx, "unix", path)
	}
	return dialer.DialContext(ctx, "tcp", address)
}

// ready is a dueq serve whose store is open.
func (c *cli) ready(t *testing.T, args ...string) *served {
	t.Helper()
	s := c.serve(t, args...)
	s.until(t, "GET /readyz", 200)
	return s
}

type answer struct {
	status int
	body   string
}

// call sends a request, written "POST /path", with headers written "Name: value".
func (s *served) call(t *testing.T, request, body string, headers ...string) answer {
	t.Helper()
	got, err := s.try(t.Context(), request, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (s *served) try(ctx context.Context, request, body string, headers ...string) (answer, error) {
	method, path, _ := strings.Cut(request, " ")
	base := s.urls[0]
	if strings.HasPrefix(base, "unix:") {
		base = "http://localhost"
	}
	r, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	res, err := s.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, string(text)}, err
}

// must fails the test if the answer is another.
func (a answer) must(t *testing.T, status int, texts ...string) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			t.Fatalf("lacks %q: %s", text, a.body)
		}
	}
	return a
}

// until calls until the answer has the status.
func (s *served) until(t *testing.T, request string, status int) (got answer) {
	t.Helper()
	eventually(t, func() bool {
		got = s.call(t, request, "")
		return got.status == status
	})
	return got
}

// inFlight waits until a request is being answered, beside the one that asks.
func (s *served) inFlight(t *testing.T) {
	t.Helper()
	eventually(t, func() bool { return s.metric(t, "dueq_http_requests_in_flight") == 2 })
}

// metric returns the value of one series, written with its labels.
func (s *served) metric(t *testing.T, series string) float64 {
	t.Helper()
	for line := range strings.Lines(s.call(t, "GET /metrics", "").must(t, 200).body) {
		if text, ok := strings.CutPrefix(line, series+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	return -1
}

// stop ends it as an orchestrator does.
func (s *served) stop(t *testing.T) {
	t.Helper()
	s.signal(t, syscall.SIGTERM)
	if code := s.exit(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// delivered is what a claim answers.
type delivered struct {
	Tasks []struct {
		Member, Lease string
		Body          any
	}
}

func (a answer) delivered(t *testing.T) delivered {
	t.Helper()
	var got delivered
	if err := json.Unmarshal([]byte(a.must(t, 200).body), &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestServeATask(t *testing.T) {
	for name, on := range map[string]func(*testing.T) *cli{"redis": onRedis, "sqlite": onSQLite} {
		t.Run("on "+name, func(t *testing.T) {
			t.Parallel()
			c := on(t)
			s := c.ready(t)
			s.call(t, "POST /v1/queues/order:close/tasks", `{"id": "o_1", "kind": "k", "delay_ms": 300, "body": {"n": 1}}`).must(t, 201, `"scheduled"`)
			if info := c.info(t, "order:close", "o_1:k"); info.State != dueq.StateScheduled || string(info.Body) != `{"n":1}` && string(info.Body) != `{"n": 1}` {
				t.Errorf("got %+v", info)
			}
			got := s.call(t, "POST /v1/queues/order:close/claim", `{"max": 10, "wait_ms": 20000}`).delivered(t)
			if len(got.Tasks) != 1 || got.Tasks[0].Member != "o_1:k" {
				t.Fatalf("got %+v", got)
			}
			s.call(t, "POST /v1/queues/order:close/settle", `{"results": [{"member": "o_1:k", "outcome": "ack", "lease": "`+got.Tasks[0].Lease+`"}]}`).must(t, 200, `"done"`)
			if totals := c.stats(t, "order:close").Totals; totals.Acked != 1 {
				t.Errorf("got %+v", totals)
			}
			s.stop(t)
		})
	}
}

func TestServeListens(t *testing.T) {
	t.Parallel()
	t.Run("on several addresses", func(t *testing.T) {
		t.Parallel()
		socket := filepath.Join(t.TempDir(), "a.sock")
		s := inMemory().serve(t, "--listen", "unix:"+socket+",127.0.0.1:0,localhost:0")
		if s.urls[0] != "unix:"+socket || len(s.urls) != 3 || s.urls[1] == s.urls[2] {
			t.Errorf("got %v", s.urls)
		}
		s.call(t, "GET /livez", "").must(t, 200)
		for _, s.urls[0] = range s.urls[1:] {
			s.call(t, "GET /livez", "").must(t, 200)
		}
		s.stop(t)
		if _, err := os.Lstat(socket); !os.IsNotExist(err) {
			t.Errorf("the socket is left: %v", err)
		}
	})
	t.Run("and prints their URLs", func(t *testing.T) {
		t.Parallel()
		p := inMemory().start(t, "serve", "--listen", "127.0.0.1:0,0.0.0.0:0", "--insecure-any-host")
		for range 2 {
			if line := p.line(t); !strings.HasPrefix(line, "http://127.0.0.1:") || strings.HasSuffix(line, ":0") {
				t.Errorf("got %s", line)
			} else if res, err := http.Get(line + "/livez"); err != nil || res.StatusCode != 200 {
				t.Error(err)
			} else {
				res.Body.Close()
			}
		}
	})
	t.Run("not where somebody else does", func(t *testing.T) {
		t.Parallel()
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, address := range []string{taken.Addr().String(), "unix:" + file} {
			p := inMemory().start(t, "serve", "--listen", "127.0.0.1:0,"+address)
			want := "dueq: serve: cannot listen on " + address + ": address already in use\n"
			if code := p.exit(t); code != 1 || p.stderr.String() != want {
				t.Errorf("exit code %d, stderr %q, want %q", code, p.stderr.String(), want)
			}
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != "kept" {
			t.Errorf("the file has changed: %q %v", text, err)
		}
	})
	t.Run("on a socket that a killed process left", func(t *testing.T) {
		t.Parallel()
		c, address := onSQLite(t), "unix:"+filepath.Join(t.TempDir(), "a.sock")
		c.schedule(t, "q", "m", dueq.In(0))
		s := c.ready(t, "--listen", address)
		if got := s.call(t, "POST /v1/queues/q/claim", `{"lease_ms": 1000}`).delivered(t); len(got.Tasks) != 1 {
			t.Fatalf("got %+v", got)
		}
		if code := inMemory().start(t, "serve", "--listen", address).exit(t); code != 1 {
			t.Errorf("exit code %d while the first one lives, want 1", code)
		}
		s.call(t, "GET /livez", "").must(t, 200)
		s.signal(t, syscall.SIGKILL)
		s.exit(t)
		s = c.ready(t, "--listen", address)
		if got := s.call(t, "POST /v1/queues/q/claim", `{"wait_ms": 20000}`).delivered(t); len(got.Tasks) != 1 || got.Tasks[0].Member != "m" {
			t.Errorf("what the killed one had handed out does not come back: %+v", got)
		}
		s.stop(t)
	})
}

// TestServeWithoutTokens is for this machine only, unless somebody insists.
func TestServeWithoutTokens(t *testing.T) {
	t.Parallel()
	p := inMemory().start(t, "serve", "--listen", "0.0.0.0:0")
	if code := p.exit(t); code != 2 || !strings.HasPrefix(p.stderr.String(), `dueq: serve: listen[0] "0.0.0.0:0" can be reached from other machines and there are no tokens: add one (dueq token`) {
		t.Errorf("exit code %d", code)
	}
	s := inMemory().ready(t)
	s.call(t, "GET /v1/queues", "", "Host: dueq.example").must(t, 421)
	s.call(t, "POST /v1/queues/q/tasks", `{"id": "a", "delay_ms": 0}`, "Origin: https://evil.example").must(t, 403)
	s.call(t, "GET /v1/queues", "", "Host: localhost:8080").must(t, 200)
	s.stop(t)
	s = inMemory().ready(t, "--insecure-any-host", "--listen", "0.0.0.0:0")
	s.call(t, "GET /v1/queues", "", "Host: dueq.example").must(t, 200)
	s.stop(t)
}

// TestServeWithTokens takes tokens as dueq token prints them.
func TestServeWithTokens(t *testing.T) {
	t.Parallel()
	c := onSQLite(t)
	file := filepath.Join(t.TempDir(), "dueq.yaml")
	shop := c.run(t, "", "token", "shop", "--scope", "publish,consume", "--queue", "order:*").must(t, 0)
	secret, lines, _ := strings.Cut(shop.stdout, "\n\n")
	ops := c.run(t, "", "token", "ops", "--scope", "read", "-o", "json").must(t, 0).object(t)
	lines += "  - {name: ops, hash: \"" + ops["hash"].(string) + "\", scopes: [read]}\ntrusted_origins: [\"https://ops.example\"]\n"
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	s := c.ready(t, "--config", file, "--listen", "0.0.0.0:0")
	const task = `{"id": "a", "delay_ms": 0}`
	bearer := "Authorization: Bearer " + secret
	s.call(t, "GET /livez", "", "Host: dueq.example").must(t, 200)
	s.call(t, "POST /v1/queues/order:close/tasks", task).must(t, 401)
	s.call(t, "POST /v1/queues/order:close/tasks", task, bearer+"x").must(t, 401)
	s.call(t, "POST /v1/queues/order:close/tasks", task, bearer, "Host: dueq.example").must(t, 201)
	s.call(t, "POST /v1/queues/sms/tasks", task, bearer).must(t, 403)
	s.call(t, "GET /v1/queues/order:close/stats", "", bearer).must(t, 403)
	s.call(t, "GET /metrics", "").must(t, 401)
	s.call(t, "GET /metrics", "", "Authorization: Bearer "+ops["secret"].(string)).must(t, 200, "dueq_http_requests_total")
	s.call(t, "POST /v1/queues/order:close/tasks", task, bearer, "Origin: https://ops.example").must(t, 200)
	s.call(t, "POST /v1/queues/order:close/tasks", task, bearer, "Origin: https://evil.example").must(t, 403)
	s.stop(t)
	if strings.Contains(s.stderr.String(), secret) || strings.Contains(s.stderr.String(), ops["hash"].(string)) {
		t.Error("a secret is in the log")
	}
}
