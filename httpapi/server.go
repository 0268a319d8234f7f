package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dueq/dueq"
)

// Options configure a Server.
type Options struct {
	// Tokens that are let in. None at all lets everybody in.
	Tokens []Token
	// AnyHost lets everybody in under any Host header when there are no tokens;
	// otherwise only those that name this machine.
	AnyHost bool
	// TrustedOrigins are web pages, as https://dueq.example.com, that may change
	// something although their origin is not the Host of their requests: behind a
	// proxy that does not pass Host on.
	TrustedOrigins []string
	// Logger defaults to slog.Default().
	Logger *slog.Logger
	// Metrics is served at /metrics. Nil is nothing there.
	Metrics http.Handler
	// Version is the one that /openapi.json tells.
	Version string
	// MemberMax is the longest member that is scheduled, 1 to dueq.MemberMax
	// bytes; defaults to dueq.DefaultMemberMax.
	MemberMax int
	// Probe finds out whether the store can write, for /readyz. Nil asks the
	// store, if it is a dueq.Prober; if not, reading has to do.
	Probe func(context.Context) error
	// WaitingMax is how many claims may wait for tasks at once, StreamsMax how
	// many streams of hints may be open; they default to 10,000 and 1,000.
	WaitingMax, StreamsMax int
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Version = cmp.Or(o.Version, "unknown")
	o.MemberMax = cmp.Or(o.MemberMax, dueq.DefaultMemberMax)
	o.WaitingMax = cmp.Or(o.WaitingMax, 10_000)
	o.StreamsMax = cmp.Or(o.StreamsMax, 1000)
	return o
}

func (o Options) validate() error {
	for _, bound := range []struct {
		name             string
		value, low, high int
	}{
		{"member_max", o.MemberMax, 1, dueq.MemberMax},
		{"waiting_max", o.WaitingMax, 1, 1_000_000},
		{"streams_max", o.StreamsMax, 1, 1_000_000},
	} {
		if bound.value < bound.low || bound.value > bound.high {
			return refused(bound.name, fmt.Sprintf("%d is not %d to %d", bound.value, bound.low, bound.high))
		}
	}
	return nil
}

// Server serves a store over HTTP. It is safe for concurrent use.
type Server struct {
	opts     Options
	store    dueq.Store
	client   *dueq.Client // schedules: requests share round trips
	gate     *gate
	polls    *polls
	hints    *hints
	ready    *readiness
	api      huma.API
	handler  http.Handler
	waiting  crowd // claims that wait
	streams  crowd // of hints
	large    crowd // requests whose body is large
	draining chan struct{}
	drain    sync.Once // closes draining

	bodyTimeout   time.Duration // how long a client may take to send a body
	answerTimeout time.Duration // … to read an answer, or one event of a stream
	keepAlive     time.Duration // between signs of life in a stream
}

// largeMost is how many large bodies are read at once.
const largeMost = 8

// New returns a server of store, which stays the caller's to close.
//
// Errors: ErrInvalid naming a token's field or an option.
func New(store dueq.Store, opts Options) (*Server, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	gate, err := newGate(opts.Tokens, opts.AnyHost)
	if err != nil {
		return nil, err
	}
	for _, origin := range opts.TrustedOrigins {
		if err := gate.trust(origin); err != nil {
			return nil, err
		}
	}
	watched := &pulse{Store: store}
	s := &Server{
		opts: opts, store: store, gate: gate,
		client:  dueq.NewClient(store, dueq.ClientOptions{MemberMax: opts.MemberMax}),
		polls:   newPolls(watched, opts.Logger),
		hints:   &hints{store: store},
		waiting: newCrowd(opts.WaitingMax), streams: newCrowd(opts.StreamsMax), large: newCrowd(largeMost),
		draining:      make(chan struct{}),
		bodyTimeout:   20 * time.Second,
		answerTimeout: 30 * time.Second,
		keepAlive:     15 * time.Second, // what proxies want to see
	}
	s.ready = newReadiness(opts, store, s.polls, watched)
	s.handler = s.routes()
	return s, nil
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	s.api = newAPI(mux, s.opts.Version)
	s.taskRoutes()
	s.manyTaskRoutes()
	s.workRoutes()
	s.queueRoutes()
	s.deadRoutes()
	s.wakeRoute()
	s.serverRoutes()
	s.definitionRoute()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.noRoute(mux, w, r) })
	return record(s.opts.Logger, s.limitTime(s.gate.protect(mux)))
}

// Handler returns what answers requests.
func (s *Server) Handler() http.Handler { return s.handler }

// HTTPServer returns a server for Handler with the limits that keep slow and
// greedy clients from harm. Answers have limits of their own, since claims and
// streams wait on purpose.
func (s *Server) HTTPServer() *http.Server {
	return &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    28 << 10, // net/http adds 4 KiB
		ErrorLog:          slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug),
	}
}

// Drain answers the claims that wait, ends the streams of hints, lets none
// begin, and makes /readyz red; all else goes on. It is for the time between
// the wish to stop and http.Server.Shutdown.
func (s *Server) Drain() {
	s.drain.Do(func() { close(s.draining) })
	s.polls.drain()
}

// Close drains, and returns when the server's goroutines have ended. Requests
// should have been answered before, by http.Server.Shutdown.
func (s *Server) Close() {
	s.Drain()
	s.polls.close()
	s.hints.close()
	s.ready.close()
}

// methods that a path may take.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
}

// noRoute answers what no route does: OPTIONS, a wrong method, an unknown path.
func (s *Server) noRoute(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range methods {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		writeProblem(w, r, kindNoRoute.problem("there is nothing at this path"))
		return
	}
	w.Header().Set("Allow", strings.Join(append(allowed, http.MethodOptions), ", "))
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	writeProblem(w, r, kindWrongMethod.problem("the path takes "+strings.Join(allowed, ", ")))
}

// definitionRoute serves the definition of all routes, so it comes last.
func (s *Server) definitionRoute() {
	var text []byte
	rt := route{
		group: "Server", id: "openapi", method: http.MethodGet, path: "/openapi.json",
		summary: "This definition", scopes: scopes, noStore: true,
	}
	s.define(rt, reflect.TypeFor[none](), reflect.TypeFor[map[string]any](), func(c *call) error {
		c.write(jsonMedia, text)
		return nil
	})
	cutCircle(s.api.OpenAPI().Components.Schemas)
	var err error
	if text, err = json.Marshal(s.api.OpenAPI()); err != nil {
		panic(err) // of texts and numbers
	}
}
