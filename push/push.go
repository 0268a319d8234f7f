// Package push delivers due tasks to webhooks: a queue whose setting push is
// an address has its tasks posted there, and the answer is the verdict.
//
// Deliveries are at least once: a receiver may get a task again that it has
// handled. docs/push.md is the page for who sets this up and who receives.
package push

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/follow"
)

// Options say how tasks are pushed.
type Options struct {
	// Secrets returns the secrets that a queue's deliveries are signed with:
	// whsec_… in base64, 24 to 64 bytes. There is one, or two while the secret is
	// changed, the newer first. It is asked for each delivery and must be quick;
	// nil has none. ByPattern makes one from a list.
	Secrets func(queue string) []string
	// Unsigned lets queues without a secret be pushed, without a signature.
	// Otherwise nothing is claimed from them, and an error is logged once.
	Unsigned bool

	// AllowPrivate lets tasks be pushed to every address. Otherwise the
	// addresses that are not on the public internet are refused.
	AllowPrivate bool
	// Allow lists networks that tasks may be pushed to besides public ones.
	Allow []netip.Prefix
	// Proxy is asked for the proxy of a request; defaults to none, whatever the
	// environment says. With one, the address that is checked is the proxy's, and
	// where the proxy connects to is its own business.
	Proxy func(*http.Request) (*url.URL, error)
	// RootCAs are trusted for https; nil means those of the system.
	RootCAs *x509.CertPool

	Timeout  time.Duration // for one delivery, within the queue's timeout; zero means that
	Grace    time.Duration // for deliveries under way when pushing stops, as in dueq.WorkerOptions
	Version  string        // of the program, for the header User-Agent; defaults to unknown
	Logger   *slog.Logger  // defaults to slog.Default()
	Observer dueq.Observer

	resolver *net.Resolver // of tests; nil means the system's
}

func (o Options) withDefaults() Options {
	if o.Secrets == nil {
		o.Secrets = func(string) []string { return nil }
	}
	if o.Version == "" {
		o.Version = "unknown"
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

func (o Options) validate() error {
	if o.Timeout < 0 {
		return &dueq.FieldError{Field: "timeout", Reason: "is negative"}
	}
	for _, network := range o.Allow {
		if !network.IsValid() {
			return &dueq.FieldError{Field: "allow", Reason: "has a network that is not one"}
		}
	}
	return nil
}

// Run pushes every queue whose setting push is an address, until ctx ends;
// then it stops as a dueq.Worker does. Changes of settings take effect within
// two seconds; deliveries under way end as they began.
//
// It returns an error if an option is out of bounds; and at the end one for
// each time that it stopped a queue whose deliveries would not end or whose
// verdicts could not be stored. A store that is away is no reason to return.
func Run(ctx context.Context, store dueq.Store, opts Options) error {
	if err := opts.validate(); err != nil {
		return err
	}
	p := newPusher(store, opts.withDefaults())
	defer p.client.CloseIdleConnections()
	var hints sync.WaitGroup
	hints.Go(func() { p.hints.Run(ctx) })
	follow.Run(ctx, gate{store, p}, pushed, p.work)
	hints.Wait()
	return errors.Join(p.unclean...)
}

// pushed makes a queue's worker go on when only the address changes.
func pushed(s dueq.Settings) string {
	if s.Push == "" {
		return ""
	}
	return "pushed"
}

// startGap is between the starts of workers: of many that start together the
// first calls would wait for each other until the store's time-out.
const startGap = 5 * time.Millisecond

type pusher struct {
	store  dueq.Store
	opts   Options
	client *http.Client
	hints  *follow.Hints
	queues sync.Map          // queue → its dueq.Settings, as read last with an address
	barred map[string]string // queue → what is wrong with its secrets; only gate's
	starts sync.Mutex        // held by the worker whose turn it is to start

	mu      sync.Mutex // guards what follows
	unclean []error    // of workers
}

func newPusher(store dueq.Store, opts Options) *pusher {
	return &pusher{store: store, opts: opts, client: newClient(opts), hints: follow.NewHints(store), barred: map[string]string{}}
}

// work delivers the tasks of one queue until ctx ends.
func (p *pusher) work(ctx context.Context, queue, _ string) {
	p.awaitStart(ctx)
	w := dueq.NewWorker(p.hints.Of(queue), dueq.WorkerOptions{
		Grace: p.opts.Grace, Logger: p.opts.Logger, Observer: p.opts.Observer,
	})
	w.Handle(queue, dueq.AnyKind, dueq.HandlerFunc(p.deliver))
	if err := w.Run(ctx); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.unclean = append(p.unclean, err)
	}
}

func (p *pusher) awaitStart(ctx context.Context) {
	p.starts.Lock()
	defer p.starts.Unlock()
	select {
	case <-time.After(startGap):
	case <-ctx.Done():
	}
}

// gate is the store as follow sees it: without the addresses of queues that may
// not be pushed for want of a secret. Only follow's goroutine calls Settings.
type gate struct {
	dueq.Store
	p *pusher
}

func (g gate) Settings(ctx context.Context, queue string) (dueq.Settings, error) {
	settings, err := g.Store.Settings(ctx, queue)
	if settings.Push == "" {
		return settings, err
	}
	if g.p.maySign(queue) {
		g.p.queues.Store(queue, settings)
	} else {
		settings.Push = ""
	}
	return settings, err
}
