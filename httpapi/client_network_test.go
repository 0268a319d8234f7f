package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/httpapi"
)

// slack is what a busy machine may add to a bound.
const slack = 10 * time.Second

const secret = "s3cr3t"

func open(t *testing.T, address string, opts httpapi.ClientOptions) *httpapi.Client {
	t.Helper()
	c, err := httpapi.Open(address, opts)
	must(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until ok, for as long as a slow machine may need.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen within 30 s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func mayHaveHappened(err error) bool {
	var call *dueq.CallError
	return errors.As(err, &call) && call.MayHaveHappened
}

// calls are all methods that make a request, and whether they change something.
func calls(c *httpapi.Client) []struct {
	name   string
	writes bool
	run    func(ctx context.Context) error
} {
	lease := dueq.Lease{Member: "m", Token: 1}
	return []struct {
		name   string
		writes bool
		run    func(ctx context.Context) error
	}{
		{"schedule", true, func(ctx context.Context) error {
			_, err := c.Schedule(ctx, []dueq.Item{{Queue: "q", Task: dueq.Task{ID: "m"}}})
			return err
		}},
		{"change", true, func(ctx context.Context) error {
			_, err := c.Change(ctx, "q", dueq.OpDelete, []dueq.Target{{Member: "m"}})
			return err
		}},
		{"settle", true, func(ctx context.Context) error {
			_, err := c.Settle(ctx, "q", []dueq.Result{{Task: &dueq.Task{Lease: lease}}})
			return err
		}},
		{"extend", true, func(ctx context.Context) error {
			_, err := c.Extend(ctx, "q", []dueq.Lease{lease}, time.Minute)
			return err
		}},
		{"get", false, func(ctx context.Context) error {
			_, err := c.Get(ctx, "q", []string{"m"})
			return err
		}},
		{"list", false, func(ctx context.Context) error {
			_, err := c.List(ctx, dueq.ListQuery{Queue: "q", State: dueq.StateDead})
			return err
		}},
		{"stats", false, func(ctx context.Context) error {
			_, err := c.Stats(ctx, "q")
			return err
		}},
		{"settings", false, func(ctx context.Context) error {
			_, err := c.Settings(ctx, "q")
			return err
		}},
		{"wake", false, func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			_, err := c.Wake(ctx)
			return err
		}},
		{"claim", true, func(ctx context.Context) error { // last: the next one would ask whether the server is there
			_, err := c.Claim(ctx, dueq.ClaimRequest{Queue: "q", Max: 1})
			return err
		}},
	}
}

// A server that reads requests and does as serve says with the connection. It
// counts what it read.
type rawServer struct {
	url      string
	requests atomic.Int64
	conns    atomic.Int64
}

// serveRaw has serve called for the n-th request of each connection; false ends
// the connection.
func serveRaw(t *testing.T, serve func(conn net.Conn, req *http.Request, n int) bool) *rawServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &rawServer{url: "http://" + listener.Addr().String()}
	var group sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		group.Wait()
	})
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			group.Go(func() {
				defer conn.Close()
				stop := context.AfterFunc(t.Context(), func() { conn.Close() })
				defer stop()
				from := bufio.NewReader(conn)
				for n := 1; ; n++ {
					req, err := http.ReadRequest(from)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					s.requests.Add(1)
					if !serve(conn, req, n) {
						return
					}
				}
			})
		}
	})
	return s
}

func reply(conn net.Conn, status int, kind, body string) bool {
	_, err := fmt.Fprintf(conn, "HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", status, kind, len(body), body)
	return err == nil
}

const emptyClaim = `{"tasks":[],"now":"2026-12-01T08:00:00.000Z","next_in_ms":null,"previous_at":null,"paused":false}`

func TestClientSendsAWriteOnceThoughItsConnectionDies(t *testing.T) {
	t.Parallel()
	s := serveRaw(t, func(conn net.Conn, req *http.Request, n int) bool {
		answer := `{"results":[{"member":"m","status":"done","due_at":null}]}`
		if strings.HasSuffix(req.URL.Path, "/claim") {
			answer = emptyClaim
		}
		return n == 1 && reply(conn, 200, "application/json", answer) // and hangs up at the second
	})
	c := open(t, s.url, httpapi.ClientOptions{})
	for _, call := range calls(c) {
		if !call.writes {
			continue
		}
		s.requests.Store(0)
		must(t, call.run(t.Context()))
		if err := call.run(t.Context()); !errors.Is(err, dueq.ErrUnavailable) || !mayHaveHappened(err) {
			t.Errorf("%s: got %v, want ErrUnavailable that may have happened", call.name, err)
		}
		if n := s.requests.Load(); n != 2 {
			t.Errorf("%s: the server read %d requests of two calls", call.name, n)
		}
	}
}

func TestClientReadsAgainWhenAKeptConnectionIsGone(t *testing.T) {
	t.Parallel()
	s := serveRaw(t, func(conn net.Conn, req *http.Request, n int) bool {
		return n == 1 && reply(conn, 200, "application/json", `{"queue":"q","tasks":[],"cursor":""}`)
	})
	c := open(t, s.url, httpapi.ClientOptions{})
	for range 4 {
		if _, err := c.List(t.Context(), dueq.ListQuery{Queue: "q", State: dueq.StateDead}); err != nil {
			t.Error(err)
		}
	}
}

func TestClientWithoutAnAnswerInTime(t *testing.T) {
	t.Parallel()
	s := serveRaw(t, func(net.Conn, *http.Request, int) bool {
		<-t.Context().Done()
		return false
	})
	const timeout = 50 * time.Millisecond
	c := open(t, s.url, httpapi.ClientOptions{Timeout: timeout, Token: secret})
	for _, call := range calls(c) {
		began := time.Now()
		err := call.run(t.Context())
		if !errors.Is(err, dueq.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || mayHaveHappened(err) != call.writes {
			t.Errorf("%s: got %v (may have happened: %v), want ErrUnavailable, may have happened: %v", call.name, err, mayHaveHappened(err), call.writes)
		}
		if took := time.Since(began); took > timeout+slack {
			t.Errorf("%s took %v, the time-out is %v", call.name, took, timeout)
		}
		wantNoSecret(t, err)
	}
	s.requests.Store(0)
	for range 3 {
		_, err := c.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 1})
		if !errors.Is(err, dueq.ErrUnavailable) || mayHaveHappened(err) {
			t.Errorf("a claim after one without an answer: got %v, want one that did not happen", err)
		}
	}
}

func TestClientEndsWithItsCallersContext(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	s := serveRaw(t, func(conn net.Conn, _ *http.Request, _ int) bool {
		asked <- struct{}{}
		_, _ = conn.Read(make([]byte, 1)) // until the client hangs up
		return false
	})
	c := open(t, s.url, httpapi.ClientOptions{Timeout: time.Hour})
	why := errors.New("the caller left")
	for _, call := range calls(c) {
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-asked
			cancel(why)
		}()
		err := call.run(ctx)
		if !errors.Is(err, dueq.ErrUnavailable) || mayHaveHappened(err) != call.writes || !errors.Is(err, why) && call.name != "wake" {
			t.Errorf("%s: got %v", call.name, err)
		}
	}
}

func TestClientWithoutAServerDidNothing(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	listener.Close()
	for _, url := range []string{"http://" + address, "https://" + address, "http://nosuchhost.invalid"} {
		c := open(t, url, httpapi.ClientOptions{Token: secret})
		for _, call := range calls(c) {
			err := call.run(t.Context())
			if !errors.Is(err, dueq.ErrUnavailable) || mayHaveHappened(err) {
				t.Errorf("%s at %s: got %v, want ErrUnavailable that did not happen", call.name, url, err)
			}
			wantNoSecret(t, err)
		}
	}
}

func TestClientDoesNotTrustACertificateThatNobodySigned(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	c := open(t, s.URL, httpapi.ClientOptions{Token: secret})
	_, err := c.Schedule(t.Context(), []dueq.Item{{Queue: "q", Task: dueq.Task{ID: "m"}}})
	if !errors.Is(err, dueq.ErrUnavailable) || mayHaveHappened(err) || requests.Load() > 0 {
		t.Errorf("got %v after %d requests", err, requests.Load())
	}
	trusting := open(t, s.URL, httpapi.ClientOptions{HTTP: s.Client()})
	if _, err := trusting.Stats(t.Context(), "q"); err == nil || requests.Load() != 1 {
		t.Errorf("got %v after %d requests, want one request", err, requests.Load())
	}
}

func TestClientDoesNotFollowRedirects(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(other.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := httptest.NewServer(http.RedirectHandler(other.URL, status))
		t.Cleanup(s.Close)
		for _, custom := range []*http.Client{nil, {Timeout: time.Nanosecond}} {
			c := open(t, s.URL, httpapi.ClientOptions{Token: secret, HTTP: custom})
			for _, call := range calls(c) {
				err := call.run(t.Context())
				if err == nil || errors.Is(err, dueq.ErrUnavailable) || mayHaveHappened(err) || !strings.Contains(err.Error(), "redirect") {
					t.Errorf("%d, %s: got %v, want an error about the redirect", status, call.name, err)
				}
				wantNoSecret(t, err)
			}
		}
	}
	if n := reached.Load(); n > 0 {
		t.Errorf("%d requests went where redirects pointed", n)
	}
}

// What stands before a server, or is none of dueq's.
func TestClientIsNotFooledByAnswersOfOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status      int
		kind, body  string
		unavailable bool
		uncertain   bool // a write may have happened
	}{
		"a page":                   {200, "text/html", "<h1>Welcome</h1>", true, true},
		"a page without type":      {200, "", "Welcome", true, true},
		"JSON cut off":             {200, "application/json", `{"results":[{"mem`, true, true},
		"another JSON":             {200, "application/json", `[1,2,3]`, true, true},
		"no path":                  {404, "text/html", "<h1>Not Found</h1>", false, false},
		"a token is wanted":        {401, "text/html", "", false, false},
		"too many":                 {429, "text/plain", "slow down", true, false},
		"bad gateway":              {502, "text/html", "<h1>Bad Gateway</h1>", true, true},
		"unavailable":              {503, "text/html", "<h1>Unavailable</h1>", true, true},
		"gateway timeout":          {504, "text/html", "<h1>Timeout</h1>", true, true},
		"internal error":           {500, "text/plain", "oops", true, true},
		"a problem of another":     {503, "application/problem+json", `{"type":"about:blank","title":"no backend","status":503}`, true, true},
		"a problem without a type": {502, "application/problem+json", `{"title":"no backend"}`, true, true},
		"an unreadable one":        {503, "application/problem+json", `{"title":`, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{c.kind}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			t.Cleanup(s.Close)
			for _, call := range calls(open(t, s.URL, httpapi.ClientOptions{Token: secret})) {
				err := call.run(t.Context())
				if err == nil || errors.Is(err, dueq.ErrUnavailable) != c.unavailable || mayHaveHappened(err) != (c.uncertain && call.writes) {
					t.Errorf("%s: got %v, may have happened: %v", call.name, err, mayHaveHappened(err))
				}
				for _, sentinel := range []error{dueq.ErrNotFound, dueq.ErrInvalid, dueq.ErrLeaseLost} {
					if errors.Is(err, sentinel) {
						t.Errorf("%s: %v is %v", call.name, err, sentinel)
					}
				}
				wantNoSecret(t, err)
			}
		})
	}
}

func TestClientReadsNoAnswerWithoutAnEnd(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		chunk := []byte(strings.Repeat(" ", 1<<20))
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	c := open(t, s.URL, httpapi.ClientOptions{Timeout: time.Minute})
	_, err := c.Settle(t.Context(), "q", []dueq.Result{{Task: &dueq.Task{Lease: dueq.Lease{Member: "m"}}}})
	if !errors.Is(err, dueq.ErrUnavailable) || !mayHaveHappened(err) || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("got %v", err)
	}
}

func TestClientUsesConnectionsAgain(t *testing.T) {
	t.Parallel()
	problem := `{"type":"urn:dueq:problem:forbidden","title":"no","status":403,"retryable":false}`
	s := serveRaw(t, func(conn net.Conn, req *http.Request, n int) bool {
		switch {
		case n%3 == 1:
			return reply(conn, 403, "application/problem+json", problem)
		case n%3 == 2:
			return reply(conn, 404, "text/html", strings.Repeat("<p>", 100_000))
		}
		return reply(conn, 200, "application/json", emptyClaim)
	})
	c := open(t, s.url, httpapi.ClientOptions{})
	for range 30 {
		_, _ = c.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 1})
	}
	if n := s.conns.Load(); n != 1 || s.requests.Load() != 30 {
		t.Errorf("%d connections for %d requests, want 1 for 30", n, s.requests.Load())
	}
}

func TestClientKnowsTheProblemsOfItsServer(t *testing.T) {
	t.Parallel()
	var answer atomic.Value
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
		w.WriteHeader(418)
		_, _ = io.WriteString(w, answer.Load().(string))
	}))
	t.Cleanup(s.Close)
	c := open(t, s.URL, httpapi.ClientOptions{})
	for kind, want := range map[string]error{
		"not_found": dueq.ErrNotFound, "running": dueq.ErrRunning, "dead": dueq.ErrDead, "changed": dueq.ErrChanged,
		"lease_lost": dueq.ErrLeaseLost, "too_large": dueq.ErrTooLarge, "invalid": dueq.ErrInvalid,
		"unavailable": dueq.ErrUnavailable, "closed": dueq.ErrClosed,
	} {
		for _, happened := range []bool{false, true} {
			text, err := json.Marshal(map[string]any{
				"type": "urn:dueq:problem:" + kind, "title": "t", "status": 418, "may_have_happened": happened,
				"errors": []map[string]string{{"field": "batch", "reason": "is too much"}},
			})
			must(t, err)
			answer.Store(string(text))
			for _, call := range calls(c) {
				err := call.run(t.Context())
				var field *dueq.FieldError
				if !errors.Is(err, want) || mayHaveHappened(err) != (happened && call.writes) || !errors.As(err, &field) || field.Field != "batch" {
					t.Errorf("%s, %s: got %v, may have happened: %v", kind, call.name, err, mayHaveHappened(err))
				}
			}
		}
	}
	answer.Store(`{"type":"urn:dueq:problem:something_new","title":"Come later","status":418,"retryable":true}`)
	if _, err := c.Stats(t.Context(), "q"); !errors.Is(err, dueq.ErrUnavailable) || !strings.Contains(err.Error(), "Come later") {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

func TestErrorsOfAServerThatFailedNameTheRequest(t *testing.T) {
	t.Parallel()
	for status, named := range map[int]bool{403: false, 409: false, 500: true, 503: true} {
		problem := fmt.Sprintf(`{"type":"urn:dueq:problem:internal","title":"Oops","status":%d,"request_id":"KX4"}`, status)
		s := serveRaw(t, func(conn net.Conn, _ *http.Request, _ int) bool {
			return reply(conn, status, "application/problem+json", problem)
		})
		for _, call := range calls(open(t, s.url, httpapi.ClientOptions{})) {
			err := call.run(t.Context())
			if err == nil || !strings.Contains(err.Error(), "Oops") || strings.Contains(err.Error(), "KX4") != named {
				t.Errorf("%d, %s: got %v; want the request named: %v", status, call.name, err, named)
			}
		}
	}
}

func wantNoSecret(t *testing.T, err error) {
	t.Helper()
	if text := fmt.Sprintf("%v %+v %q", err, err, err); strings.Contains(text, secret) {
		t.Errorf("the token is in %s", text)
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if strings.Contains(fmt.Sprintf("%+v", err), secret) {
			t.Errorf("the token is in %+v", err)
		}
	}
}
