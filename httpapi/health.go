package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dueq/dueq"
)

// How fresh what /readyz says is.
const (
	probeEvery = 2 * time.Second        // at most, however often somebody asks
	probeWait  = 500 * time.Millisecond // how long a request waits for a probe
	probeValid = 5 * time.Second        // how long a probe counts when the next one takes its time
	pulseValid = 10 * time.Second       // how long nothing may be claimed while somebody waits
)

func (s *Server) serverRoutes() {
	handleJSON(s, route{
		group: "Server", id: "livez", method: http.MethodGet, path: "/livez",
		summary: "The process is there", noStore: true,
	}, func(*call, *none) (*health, error) { return &health{"ok"}, nil })
	handleJSON(s, route{
		group: "Server", id: "readyz", method: http.MethodGet, path: "/readyz",
		summary: "The server can do its work: the store takes writes, and claims that wait are looked after",
		note:    "The detail of a 503 says what is wrong. Also when it is about to stop it is not ready.",
		noStore: true, notReady: true,
	}, s.readyz)
	if s.opts.Metrics != nil {
		s.define(route{
			group: "Server", id: "metrics", method: http.MethodGet, path: "/metrics",
			summary: "Metrics for Prometheus",
			note:    "Of all queues, so the token has to be for all.",
			scopes:  []Scope{ScopeRead}, media: []string{"text/plain", "application/openmetrics-text"}, anyQuery: true, noStore: true,
		}, reflect.TypeFor[none](), reflect.TypeFor[none](), s.metrics)
	}
}

func (s *Server) metrics(c *call) error {
	if err := c.caller.may(ScopeRead, "*"); err != nil {
		return err
	}
	s.opts.Metrics.ServeHTTP(c.w, c.r)
	return nil
}

func (s *Server) readyz(*call, *none) (*health, error) {
	select {
	case <-s.draining:
		return nil, kindNotReady.problem("the server is about to stop")
	default:
	}
	if err := s.ready.check(); err != nil {
		return nil, kindNotReady.problem(err.Error())
	}
	return &health{"ready"}, nil
}

// readiness finds out whether the server can do its work. It asks the store
// when somebody asks, and never lets anybody wait for a store that hangs.
type readiness struct {
	probe func(context.Context) error
	polls *polls
	pulse *pulse
	log   *slog.Logger
	going sync.WaitGroup // probes

	mu      sync.Mutex    // guards what follows
	running chan struct{} // closed when the probe under way has ended; nil if there is none
	probed  time.Time     // when the last one ended
	err     error         // what it said
	red     bool          // what was said last
}

func newReadiness(opts Options, store dueq.Store, polls *polls, pulse *pulse) *readiness {
	r := &readiness{probe: opts.Probe, polls: polls, pulse: pulse, log: opts.Logger, probed: time.Now().Add(-time.Hour)}
	if r.probe == nil {
		r.probe = func(ctx context.Context) error { return probe(ctx, store) }
	}
	return r
}

// probe asks the store the most that it can tell.
func probe(ctx context.Context, store dueq.Store) error {
	if p, ok := store.(dueq.Prober); ok {
		return p.Probe(ctx)
	}
	_, err := store.Stats(ctx)
	return err
}

// check returns what is wrong, or nil.
func (r *readiness) check() error {
	select {
	case <-r.begin():
	case <-time.After(probeWait):
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.verdict()
	if red := err != nil; red != r.red {
		r.red = red
		r.tell(err)
	}
	return err
}

func (r *readiness) tell(err error) {
	if cause := (*noWrites)(nil); errors.As(err, &cause) {
		err = cause.cause
	}
	if err != nil {
		r.log.Warn("not ready", "err", err)
	} else {
		r.log.Info("ready again")
	}
}

var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// begin starts a probe unless one is under way or was just made. What it
// returns is closed when there is an answer.
func (r *readiness) begin() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.running != nil:
		return r.running
	case time.Since(r.probed) < probeEvery:
		return closedChannel
	}
	done := make(chan struct{})
	r.running = done
	r.going.Go(func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), probeValid)
		defer cancel()
		err := r.probe(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.running, r.probed, r.err = nil, time.Now(), err
	})
	return done
}

// verdict is called with mu held.
func (r *readiness) verdict() error {
	still := r.pulse.since()
	switch {
	case time.Since(r.probed) > probeValid:
		return errors.New("the store does not answer")
	case r.err != nil:
		return &noWrites{r.err}
	case still > pulseValid && r.polls.waiting() > 0:
		return fmt.Errorf("claims wait, but nothing was asked of the store for %v", still.Round(time.Second))
	}
	return nil
}

// noWrites says what is wrong with the store, and not where it is: /readyz is
// open to everybody.
type noWrites struct{ cause error }

func (e *noWrites) Error() string {
	var network *net.OpError
	if errors.As(e.cause, &network) {
		return "the store cannot be reached"
	}
	return "the store takes no writes: " + e.cause.Error()
}

// close returns when no probe is under way any more.
func (r *readiness) close() { r.going.Wait() }

// pulse is a store that remembers when it last answered one of those who look
// for due tasks, or failed them: a loop that goes on over failures moves.
type pulse struct {
	dueq.Store
	last atomic.Int64 // Unix ns
}

func (p *pulse) since() time.Duration { return time.Since(time.Unix(0, p.last.Load())) }

// Claim implements dueq.Store.
func (p *pulse) Claim(ctx context.Context, req dueq.ClaimRequest) (dueq.Claim, error) {
	defer func() { p.last.Store(time.Now().UnixNano()) }()
	return p.Store.Claim(ctx, req)
}

// Stats implements dueq.Store.
func (p *pulse) Stats(ctx context.Context, queues ...string) ([]dueq.QueueStats, error) {
	defer func() { p.last.Store(time.Now().UnixNano()) }()
	return p.Store.Stats(ctx, queues...)
}
