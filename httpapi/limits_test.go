package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestBody_must_be_declared_as_JSON(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	for _, media := range []string{
		"Content-Type: text/plain", "Content-Type: application/x-www-form-urlencoded", "Content-Type: ", "Content-Type: application/json; charset=latin1",
		"Content-Type: text/plain, application/json", "Content-Type: application/vnd.api+json", "Content-Type: multipart/form-data; boundary=x",
	} {
		a.do("POST", "/v1/queues/q/tasks", `{"id":"a","delay_ms":0}`, media).refuses(415, "wrong_type", "", "")
		a.do("POST", "/v1/queues/q/pause", `{}`, media).refuses(415, "wrong_type", "", "")
		a.do("DELETE", "/v1/queues/q/tasks/a", `{}`, media).refuses(415, "wrong_type", "", "")
	}
	a.do("POST", "/v1/queues/q/tasks", `{"id":"a","delay_ms":0}`, "Content-Encoding: gzip").refuses(415, "wrong_type", "", "")
	a.do("GET", "/v1/queues", nil).is(200).has(`{"queues":[]}`)
	a.do("POST", "/v1/queues/q/tasks", `{"id":"a","delay_ms":0}`, "Content-Type: Application/JSON; Charset=UTF-8").is(201)
}

func TestBody_is_bounded(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	long := strings.Repeat(" ", smallBody+1)
	a.do("POST", "/v1/queues/q/claim", long).refuses(413, "too_large", "", "")
	a.do("POST", "/v1/queues/q/tasks", strings.Repeat(" ", largeBody+1)).refuses(413, "too_large", "", "")
	a.do("POST", "/v1/queues/q/tasks", `{"id":"a","delay_ms":0}`+long).is(201)

	// Chunked, so that nobody knows how long it is.
	for _, path := range []string{"/v1/queues/q/claim", "/v1/queues/q/tasks", "/v1/queues/q/tasks/batch"} {
		request := a.request("POST", path, nil, "Content-Type: application/json")
		request.Body, request.ContentLength = io.NopCloser(endless{}), -1
		response, err := a.http.Do(request)
		if err != nil {
			t.Logf("%s: %v", path, err) // hung up on while it sent: fine as well
			continue
		}
		if _ = response.Body.Close(); response.StatusCode != 413 {
			t.Errorf("%s: got %d", path, response.StatusCode)
		}
	}
	a.do("GET", "/v1/queues/q/stats", nil).is(200).has(`"scheduled":1`)
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// dial sends the beginning of a request and returns what is answered.
func (a *api) dial(text string) (net.Conn, *bufio.Reader) {
	a.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		a.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

func TestBody_must_arrive_in_time(t *testing.T) {
	t.Parallel()
	a := newAPITest(t, tokens)
	a.server.bodyTimeout = 50 * time.Millisecond
	for token, want := range map[string]int{"consume": 408, "nobody": 401} {
		_, answer := a.dial("POST /v1/queues/a/claim HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token +
			"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
		response, err := http.ReadResponse(answer, nil)
		if err != nil || response.StatusCode != want {
			t.Fatalf("%s: got %v, %v, want %d", token, response, err, want)
		}
		if _, err := io.Copy(io.Discard, answer); err != nil { // the connection is closed, or this would wait for ever
			t.Errorf("%s: %v", token, err)
		}
	}
}

func TestAnswer_must_be_read_in_time(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	a.server.Drain() // a stream ends after its first event
	for _, path := range []string{"/v1/queues", "/livez", "/openapi.json", "/v1/wake"} {
		request := httptest.NewRequest("GET", path, nil)
		request.Host = "localhost"
		w := &timedWriter{ResponseRecorder: httptest.NewRecorder()}
		a.server.Handler().ServeHTTP(w, request)
		if w.Code != 200 || w.Body.Len() == 0 || w.untimed {
			t.Errorf("%s: got %d, %d bytes; written without a limit of time: %t", path, w.Code, w.Body.Len(), w.untimed)
		}
	}
}

// timedWriter notes whether something is written that may take for ever.
type timedWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
	untimed  bool
}

func (w *timedWriter) SetWriteDeadline(t time.Time) error {
	w.deadline = t
	return nil
}

func (w *timedWriter) Write(b []byte) (int, error) {
	left := time.Until(w.deadline)
	w.untimed = w.untimed || left <= 0 || left > time.Minute
	return w.ResponseRecorder.Write(b)
}

func TestHeader_is_bounded(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	_, answer := a.dial("GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("x", 33<<10))
	response, err := http.ReadResponse(answer, nil)
	if err != nil || response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %v, %v", response, err)
	}
	if a.server.HTTPServer().ReadHeaderTimeout <= 0 || a.server.HTTPServer().IdleTimeout <= 15*time.Second {
		t.Error("header or idle time has no limit, or one that is shorter than clients keep connections for")
	}
}

// Limits of time are for bodies, not for claims that wait on purpose.
func TestClaim_may_wait_for_longer_than_a_body_may_take(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	a.server.bodyTimeout = 100 * time.Millisecond
	begin := time.Now()
	a.do("POST", "/v1/queues/q/claim", obj{"wait_ms": 600}).is(200).has(`"tasks":[]`)
	if took := time.Since(begin); took < 500*time.Millisecond {
		t.Errorf("it waited for %v only", took)
	}
	var wait sync.WaitGroup
	wait.Go(func() { a.do("POST", "/v1/queues/q/claim", obj{"wait_ms": 20_000}).is(200).has(`"member":"late"`) })
	a.await("a claim waits", func() bool { return a.server.polls.waiting() == 1 })
	a.schedule("q", "late", 0)
	wait.Wait()
}

func (a *api) await(what string, holds func() bool) {
	a.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			a.Fatalf("not in time: %s", what)
		}
	}
}

func TestClaim_of_a_client_that_vanished_is_nobodys(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	ctx, leave := context.WithCancel(t.Context())
	request := a.request("POST", "/v1/queues/q/claim", obj{"wait_ms": 20_000})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if response, err := a.http.Do(request.WithContext(ctx)); err == nil {
			_ = response.Body.Close()
		}
	}()
	a.await("a claim waits", func() bool { return a.server.polls.waiting() == 1 })
	leave()
	<-gone
	a.await("nobody waits", func() bool { return a.server.polls.waiting() == 0 })
	a.schedule("q", "t", 0)
	if task := a.claim("q", obj{"wait_ms": 20_000}); task.Attempt != 1 {
		t.Errorf("got attempt %d", task.Attempt)
	}
}

func TestClaim_has_room_for_so_many_that_wait(t *testing.T) {
	t.Parallel()
	a := newAPITest(t, func(o *Options) { o.WaitingMax = 1 })
	var wait sync.WaitGroup
	wait.Go(func() { a.do("POST", "/v1/queues/q/claim", obj{"wait_ms": 20_000}).is(200) })
	a.await("a claim waits", func() bool { return a.server.polls.waiting() == 1 })
	r := a.do("POST", "/v1/queues/q/claim", obj{"wait_ms": 1})
	r.refuses(429, "too_many", "", "")
	if r.header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After in %v", r.header)
	}
	a.do("POST", "/v1/queues/q/claim", obj{}).is(200)
	a.server.Drain()
	wait.Wait()
	a.do("POST", "/v1/queues/q/claim", obj{"wait_ms": 20_000}).is(200).has(`"tasks":[]`)
	a.do("GET", "/readyz", nil).refuses(503, "not_ready", "", "")
}

func TestLarge_bodies_are_read_a_few_at_once(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	front := fmt.Sprintf("POST /v1/queues/q/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", largeBody, strings.Repeat(" ", smallBody+1))
	var slow []net.Conn
	for range largeMost {
		conn, _ := a.dial(front)
		slow = append(slow, conn)
	}
	a.await("all places are taken", func() bool { return len(a.server.large) == largeMost })
	item := `{"id":"a","delay_ms":0}` + strings.Repeat(" ", smallBody)
	a.do("POST", "/v1/queues/q/tasks", item).refuses(429, "too_many", "", "")
	a.do("POST", "/v1/queues/q/tasks", obj{"id": "small", "delay_ms": 0}).is(201)
	for _, conn := range slow {
		_ = conn.Close()
	}
	a.await("all places are free", func() bool { return len(a.server.large) == 0 })
	a.do("POST", "/v1/queues/q/tasks", item).is(201)
}

func TestPaths_and_methods_that_are_none(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	for _, path := range []string{"/", "/v1", "/v2/queues", "/v1/queues/q", "/v1/queues/q/nothing", "/v1/queues/q/tasks/a/b", "/favicon.ico"} {
		for _, method := range []string{"GET", "POST", "OPTIONS"} {
			a.do(method, path, nil).refuses(404, "no_route", "", "")
		}
	}
	for path, allow := range map[string]string{
		"/livez":                    "GET, HEAD, OPTIONS",
		"/v1/queues/q/claim":        "POST, OPTIONS",
		"/v1/queues/q/tasks":        "GET, HEAD, POST, OPTIONS",
		"/v1/queues/q/tasks/a":      "GET, HEAD, PATCH, DELETE, OPTIONS",
		"/v1/queues/q/tasks/batch":  "GET, HEAD, POST, PATCH, DELETE, OPTIONS",
		"/v1/queues/q/settings":     "GET, HEAD, PATCH, OPTIONS",
		"/v1/queues/q/dead/requeue": "POST, OPTIONS",
	} {
		r := a.do("PUT", path, `{}`)
		r.refuses(405, "method_not_allowed", "", "")
		if got := r.header.Get("Allow"); got != allow {
			t.Errorf("%s: got Allow %s, want %s", path, got, allow)
		}
		r = a.do("OPTIONS", path, nil).is(204)
		if got := r.header.Get("Allow"); got != allow || len(r.body) > 0 {
			t.Errorf("OPTIONS %s: got Allow %s, want %s", path, got, allow)
		}
	}
	r := a.do("HEAD", "/v1/queues/q/settings", nil).is(200)
	if len(r.body) > 0 || r.header.Get("Content-Type") != "application/json" || r.header.Get("Content-Length") == "0" {
		t.Errorf("HEAD: got %v %s", r.header, r.body)
	}
	a.do("HEAD", "/v1/queues/q/tasks/a", nil).is(404)
}

// No GET changes anything, and no other path than those that are documented
// takes anything else.
func TestRoutes_that_change_something_take_no_GET(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	for path, item := range a.server.api.OpenAPI().Paths {
		if item.Get != nil {
			continue
		}
		path = strings.NewReplacer("{queue}", "q", "{member}", "a").Replace(path)
		r := a.undocumented("GET", path, nil)
		readable := slices.Contains([]string{"batch", "get", "change"}, path[strings.LastIndexByte(path, '/')+1:]) // a member's name there
		if r.status != 405 && !(readable && r.status == 404) {
			t.Errorf("GET %s: got %d %s", path, r.status, r.body)
		}
	}
	a.do("GET", "/v1/queues", nil).is(200).has(`{"queues":[]}`)
}

func TestAnswers_of_the_server_say_what_they_are(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	a.do("GET", "/livez", nil, "Host: evil.example").refuses(421, "wrong_host", "", "")
	a.do("POST", "/v1/queues/q/pause", `{}`, "Origin: http://evil.example", "Sec-Fetch-Site: cross-site").refuses(403, "cross_origin", "", "")
	a.undocumented("GET", "/v1/queues/q/../r/stats", nil).refuses(400, "invalid", "path", "")
	r := a.do("GET", "/livez", nil).is(200).has(`{"status":"ok"}`)
	if r.header.Get("X-Request-Id") == "" || r.header.Get("Cache-Control") != "no-store" {
		t.Errorf("got %v", r.header)
	}
	a.do("GET", "/metrics", nil).is(200).has("up 1")
	bare := newAPITest(t, func(o *Options) { o.Metrics = nil })
	bare.undocumented("GET", "/metrics", nil).refuses(404, "no_route", "", "")
	if err := a.store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/queues", "/v1/queues/q/stats", "/v1/queues/q/tasks", "/v1/queues/q/tasks/a", "/v1/queues/q/settings", "/v1/wake"} {
		a.do("GET", path, nil).refuses(503, "closed", "", "")
	}
}

func TestOptions_are_checked(t *testing.T) {
	t.Parallel()
	for _, opts := range []Options{
		{MemberMax: 513}, {MemberMax: -1}, {WaitingMax: -1}, {StreamsMax: 2_000_000}, {Tokens: []Token{{}}},
	} {
		if s, err := New(nil, opts); err == nil {
			t.Errorf("%+v: got %v", opts, s)
		}
	}
}
