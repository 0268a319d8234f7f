package httpapi_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/httpapi"
	"github.com/dueq/dueq/internal/contract"
	"github.com/dueq/dueq/memstore"
)

// site is a server, with a task in each state in the queues a1 and b.
type site struct {
	*testing.T
	store *memstore.Store
	url   string
	http  *http.Client // holds answers against the contract, follows nothing
	lease string       // of the active task
}

// callers are the tokens of a site by name. Theirs is their secret, too.
var callers = []httpapi.Token{
	callerOf("publish", httpapi.ScopePublish), callerOf("consume", httpapi.ScopeConsume),
	callerOf("read", httpapi.ScopeRead), callerOf("admin", httpapi.ScopeAdmin),
	{Name: "other", Hash: httpapi.HashToken("other"), Queues: []string{"b"}, Scopes: []httpapi.Scope{
		httpapi.ScopePublish, httpapi.ScopeConsume, httpapi.ScopeRead, httpapi.ScopeAdmin,
	}},
}

func callerOf(name string, scope httpapi.Scope) httpapi.Token {
	return httpapi.Token{Name: name, Hash: httpapi.HashToken(name), Scopes: []httpapi.Scope{scope}}
}

// newSite starts one. The options lack nothing but what is to be different; the
// store that is served is what over makes of the one in memory.
func newSite(t *testing.T, c *contract.Contract, opts httpapi.Options, over func(dueq.Store) dueq.Store) *site {
	t.Helper()
	now := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	s := &site{T: t, store: memstore.New(memstore.Options{Now: func() time.Time { return now }})}
	t.Cleanup(func() { _ = s.store.Close() })
	for _, queue := range []string{"b", "a1"} {
		s.seed(queue)
	}
	opts.Logger = slog.New(slog.DiscardHandler)
	opts.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = io.WriteString(w, "up 1\n")
	})
	var store dueq.Store = s.store
	if over != nil {
		store = over(store)
	}
	server, err := httpapi.New(store, opts)
	must(t, err)
	listening := httptest.NewUnstartedServer(nil)
	listening.Config = server.HTTPServer()
	listening.Config.Handler = slowly(listening.Config.Handler)
	listening.Start()
	t.Cleanup(func() {
		server.Drain()
		listening.Close()
		server.Close()
	})
	transport := listening.Client().Transport.(*http.Transport)
	transport.ExpectContinueTimeout = time.Minute // a body that is refused before it is sent stays here
	s.url, s.http = listening.URL, &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if c != nil {
		s.http.Transport = c.Transport(t, transport)
	}
	return s
}

// seed leaves in a queue a task that runs, r, a dead letter, d, one that is due,
// t, and one that will be, f.
func (s *site) seed(queue string) {
	s.Helper()
	s.schedule(queue, "d", 0)
	task := s.claimed(queue)
	s.outcome(s.store.Settle(s.Context(), queue, []dueq.Result{{Task: task, Verdict: dueq.VerdictDead, Err: "boom"}}))
	s.schedule(queue, "r", 0)
	task = s.claimed(queue)
	s.lease = httpapi.FormatLease(task)
	s.schedule(queue, "t", 0)
	s.schedule(queue, "f", time.Hour)
}

func (s *site) schedule(queue, id string, delay time.Duration) {
	s.Helper()
	s.outcome(s.store.Schedule(s.Context(), []dueq.Item{{Queue: queue, Task: dueq.Task{ID: id}, When: dueq.In(delay)}}))
}

func (s *site) claimed(queue string) *dueq.Task {
	s.Helper()
	claim, err := s.store.Claim(s.Context(), dueq.ClaimRequest{Queue: queue, Max: 1, Lease: time.Minute})
	must(s.T, err)
	return claim.Tasks[0]
}

func (s *site) outcome(outcomes []dueq.Outcome, err error) {
	s.Helper()
	must(s.T, err)
	must(s.T, outcomes[0].Error())
}

// contents are all that lies in the store.
type siteContents struct {
	Queues   map[string]memstore.Contents
	Settings map[string]dueq.Settings
	Stats    []dueq.QueueStats
}

func (s *site) contents() (all siteContents) {
	s.Helper()
	all = siteContents{map[string]memstore.Contents{}, map[string]dueq.Settings{}, nil}
	var err error
	all.Stats, err = s.store.Stats(s.Context())
	must(s.T, err)
	for _, q := range all.Stats {
		all.Queues[q.Queue] = s.store.Contents(q.Queue)
		all.Settings[q.Queue], err = s.store.Settings(s.Context(), q.Queue)
		must(s.T, err)
	}
	return all
}

// unchanged fails the test if anything in the store is not as it was.
func (s *site) unchanged(what string, before siteContents) {
	s.Helper()
	if after := s.contents(); !reflect.DeepEqual(before, after) {
		s.Errorf("%s has changed the store: %+v, it was %+v", what, after, before)
	}
}

// slowly lets the body of a request that says so not arrive in time.
func slowly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Slow") != "" {
			r.Body = late{}
		}
		next.ServeHTTP(w, r)
	})
}

// late is the body of a connection whose deadline has passed.
type late struct{}

func (late) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }
func (late) Close() error             { return nil }

// request is one to a site, written as its operation is.
func (s *site) request(operation, sent string, headers ...string) *http.Request {
	s.Helper()
	method, path, _ := strings.Cut(operation, " ")
	path = strings.NewReplacer("{queue}", "a1", "{member}", "t").Replace(path)
	r, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(strings.ReplaceAll(sent, "LEASE", s.lease)))
	must(s.T, err)
	if sent != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	return r
}

// as is the header of a caller, none for "none".
func as(caller string) string {
	if caller == "none" {
		return "X-Nothing: x"
	}
	return "Authorization: Bearer " + caller
}

// send returns the status of the answer and what is known of its body, which of
// a stream is nothing.
func (s *site) send(r *http.Request) (*http.Response, string) {
	s.Helper()
	response, err := s.http.Do(r)
	must(s.T, err)
	defer response.Body.Close()
	if response.Header.Get("Content-Type") == "text/event-stream" {
		return response, ""
	}
	body, err := io.ReadAll(response.Body)
	must(s.T, err)
	return response, string(body)
}

// servedContract is the one that the server shows.
func servedContract(t *testing.T) (*contract.Contract, []byte) {
	t.Helper()
	s := newSite(t, nil, httpapi.Options{Tokens: callers}, nil)
	response, text := s.send(s.request("GET /openapi.json", "", as("read")))
	if response.StatusCode != 200 || !json.Valid([]byte(text)) {
		t.Fatalf("got %d %s", response.StatusCode, text)
	}
	c, err := contract.Parse([]byte(text))
	must(t, err)
	return c, []byte(text)
}
