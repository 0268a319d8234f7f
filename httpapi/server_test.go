package httpapi

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/contract"
	"github.com/dueq/dueq/memstore"
)

// api is a server on a store in memory whose clock the test moves. Each answer
// that a test gets is held against /openapi.json.
type api struct {
	*testing.T
	store  dueq.Store
	server *Server
	url    string
	http   *http.Client // holds answers against the contract
	plain  *http.Client

	mu  sync.Mutex // guards now
	now time.Time
}

// start is the first time that the store's clock shows.
var start = time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)

func newAPITest(t *testing.T, change ...func(*Options)) *api {
	t.Helper()
	a := &api{T: t, now: start}
	a.store = memstore.New(memstore.Options{Now: a.clock})
	a.serve(t, change...)
	return a
}

// serve serves a.store.
func (a *api) serve(t *testing.T, change ...func(*Options)) {
	t.Helper()
	opts := Options{Logger: slog.New(slog.DiscardHandler), Metrics: http.HandlerFunc(someMetrics), Version: "test"}
	for _, f := range change {
		f(&opts)
	}
	var err error
	if a.server, err = New(a.store, opts); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(nil)
	server.Config = a.server.HTTPServer()
	server.Start()
	c, err := definition()
	if err != nil {
		t.Fatal(err)
	}
	a.url, a.plain = server.URL, server.Client()
	a.http = &http.Client{Transport: c.Transport(t, a.plain.Transport)}
	t.Cleanup(func() {
		a.server.Close()
		server.Close()
		_ = a.store.Close()
	})
}

func someMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	_, _ = io.WriteString(w, "up 1\n")
}

func (a *api) clock() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now
}

func (a *api) advance(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now = a.now.Add(d)
}

// reply is the answer to a request.
type reply struct {
	t       *testing.T
	request string
	status  int
	header  http.Header
	body    []byte
}

// do sends a request. A body that is no text is sent as JSON; headers are
// "Name: value", and replace those that are sent otherwise.
func (a *api) do(method, path string, body any, headers ...string) *reply {
	a.Helper()
	return a.exchange(a.http, method, path, body, headers...)
}

// undocumented is do for what /openapi.json does not describe.
func (a *api) undocumented(method, path string, body any, headers ...string) *reply {
	a.Helper()
	return a.exchange(a.plain, method, path, body, headers...)
}

func (a *api) exchange(client *http.Client, method, path string, body any, headers ...string) *reply {
	a.Helper()
	response, err := client.Do(a.request(method, path, body, headers...))
	if err != nil {
		a.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		a.Fatal(err)
	}
	return &reply{a.T, method + " " + path, response.StatusCode, response.Header, text}
}

func (a *api) request(method, path string, body any, headers ...string) *http.Request {
	a.Helper()
	text, isText := body.(string)
	if body != nil && !isText {
		encoded, err := json.Marshal(body)
		if err != nil {
			a.Fatal(err)
		}
		text = string(encoded)
	}
	request, err := http.NewRequestWithContext(a.Context(), method, a.url+path, strings.NewReader(text))
	if err != nil {
		a.Fatal(err)
	}
	if text != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			request.Host = value
		}
		request.Header.Set(name, value)
	}
	return request
}

// definition is the contract of all answers; every server of tests has the same.
var definition = sync.OnceValues(func() (*contract.Contract, error) {
	s, err := New(memstore.New(memstore.Options{}), Options{Metrics: http.HandlerFunc(someMetrics), Version: "test"})
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s.api.OpenAPI())
	if err != nil {
		return nil, err
	}
	return contract.Parse(text)
})

// is checks the status and returns the answer.
func (r *reply) is(status int) *reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("%s: got %d, want %d: %s", r.request, r.status, status, r.body)
	}
	return r
}

// refuses checks that the request is refused with a problem that names a field.
func (r *reply) refuses(status int, problem, field, reason string) {
	r.t.Helper()
	var p Problem
	if err := json.Unmarshal(r.is(status).body, &p); err != nil {
		r.t.Fatal(err)
	}
	first := FieldProblem{}
	if len(p.Errors) > 0 {
		first = p.Errors[0]
	}
	if p.Type != typePrefix+problem || first.Field != field || !strings.Contains(first.Reason, reason) {
		r.t.Errorf("%s: got %s, want %s of %s %s", r.request, r.body, problem, field, reason)
	}
}

// into reads the answer.
func (r *reply) into(v any) {
	r.t.Helper()
	if err := json.Unmarshal(r.body, v); err != nil {
		r.t.Fatalf("%s: %s: %v", r.request, r.body, err)
	}
}

// has checks parts of the answer's text.
func (r *reply) has(parts ...string) *reply {
	r.t.Helper()
	for _, part := range parts {
		if !bytes.Contains(r.body, []byte(part)) {
			r.t.Errorf("%s: got %s, want %s", r.request, r.body, part)
		}
	}
	return r
}
