package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/httpapi"
	"github.com/dueq/dueq/internal/config"
	"github.com/dueq/dueq/internal/follow"
	"github.com/dueq/dueq/internal/openstore"
	"github.com/dueq/dueq/metrics"
	"github.com/dueq/dueq/push"
)

// How a store that is away is waited for, and a queue that cannot be forwarded.
const (
	reopenFirst  = 100 * time.Millisecond
	reopenMost   = 5 * time.Second
	quietFor     = 10 * time.Second // between two lines in the log about it
	forwardPause = 10 * time.Second
)

// serving is a dueq serve that runs.
type serving struct {
	app *app
	cfg config.Config
	log *slog.Logger
	now atomic.Pointer[service] // that answers
}

// service is what answers requests about a store.
type service struct {
	api      *httpapi.Server
	handler  http.Handler
	store    dueq.Store // measured
	observer dueq.Observer
}

func (a *app) runServe(ctx context.Context, cfg config.Config) error {
	level, err := parseLevel(cfg.Log.Level)
	if err != nil {
		return err
	}
	s := &serving{app: a, cfg: cfg, log: a.logger(cfg.Log.Format, level)}
	slog.SetDefault(s.log)
	for _, text := range cfg.Warnings() {
		s.log.Warn("check the configuration", "why", text)
	}
	ctx, release := a.stopOnSignal(ctx, func() {})
	defer release()
	return s.run(ctx)
}

// run listens before it opens the store, so that whoever starts it sees that it
// lives.
func (s *serving) run(ctx context.Context) error {
	starting, err := s.build(openstore.Away(errors.New("it is being opened")))
	if err != nil {
		return err
	}
	defer starting.api.Close()
	s.now.Store(starting)
	listeners, err := listenAll(s.cfg.Listen)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	server := s.server()
	var group sync.WaitGroup
	for _, l := range listeners {
		group.Go(func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				fail(err)
			}
		})
	}
	view := viewServed(listeners)
	s.log.Info("listening", "urls", view.URLs, "tokens", len(s.cfg.Tokens), "version", build().Version)
	if err = s.app.printServed(view); err == nil {
		err = s.work(ctx, server)
	}
	_ = server.Close()
	group.Wait()
	if err == nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		err = context.Cause(ctx)
	}
	return err
}

// server is what listens. What answers is changed when the store is open.
func (s *serving) server() *http.Server {
	const added = 4 << 10 // by net/http
	server := s.now.Load().api.HTTPServer()
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.now.Load().handler.ServeHTTP(w, r)
	})
	server.MaxHeaderBytes = int(s.cfg.Limits.Header) - added
	server.ReadHeaderTimeout = s.cfg.Limits.HeaderTimeout
	server.IdleTimeout = s.cfg.Limits.IdleTimeout
	return server
}

func (s *serving) build(store dueq.Store) (*service, error) {
	svc := &service{store: store}
	opts := httpapi.Options{
		AnyHost: s.cfg.AnyHost, TrustedOrigins: s.cfg.TrustedOrigins, Logger: s.log, Version: build().Version,
		MemberMax: s.cfg.Limits.Member, WaitingMax: s.cfg.Limits.OpenPolls, StreamsMax: s.cfg.Limits.OpenStreams,
	}
	for _, t := range s.cfg.Tokens {
		opts.Tokens = append(opts.Tokens, tokenOf(t))
	}
	consumed, count := store, func(next http.Handler) http.Handler { return next }
	if s.cfg.Metrics.Enabled {
		m := metrics.New(store, metrics.Options{Queues: s.cfg.Metrics.MaxQueues, Version: opts.Version})
		svc.store, svc.observer = m.Wrap(store), m.Observer()
		consumed, count = m.Observe(svc.store), m.HTTP
		opts.Metrics = m.Handler()
	}
	var err error
	if svc.api, err = httpapi.New(consumed, opts); err != nil {
		return nil, s.cfg.Blame(err)
	}
	svc.handler = count(svc.api.Handler())
	return svc, nil
}

func tokenOf(t config.Token) httpapi.Token {
	token := httpapi.Token{Name: t.Name, Hash: t.Hash, Queues: t.Queues}
	for _, scope := range t.Scopes {
		token.Scopes = append(token.Scopes, httpapi.Scope(scope))
	}
	return token
}

// work opens the store and serves it until ctx ends, then stops server.
func (s *serving) work(ctx context.Context, server *http.Server) error {
	store, err := s.open(ctx)
	if err != nil {
		return err
	}
	if store == nil {
		s.stop(server)
		return nil
	}
	defer store.Close()
	svc, err := s.build(store)
	if err != nil {
		return err
	}
	defer svc.api.Close()
	s.now.Swap(svc).api.Drain() // whoever waits there asks again here
	s.log.Info("serving", "store", openstore.Redacted(s.cfg.Store))
	var group sync.WaitGroup
	var pushErr error
	group.Go(func() { pushErr = push.Run(ctx, svc.store, s.pushOptions(svc)) })
	group.Go(func() { s.forward(ctx, svc) })
	<-ctx.Done()
	s.stop(server)
	group.Wait()
	return pushErr
}

// open returns the store as soon as it is there, or nil if ctx ends before.
func (s *serving) open(ctx context.Context) (dueq.Store, error) {
	var told time.Time
	for wait := reopenFirst; ; wait = min(2*wait, reopenMost) {
		store, err := s.app.open(ctx, openstore.WithToken(s.cfg.Store, s.app.getenv), s.cfg.Prefix)
		if !errors.Is(err, dueq.ErrUnavailable) {
			return store, s.cfg.Blame(err)
		}
		if time.Since(told) > quietFor {
			told = time.Now()
			s.log.Warn("the store cannot be opened yet", "store", openstore.Redacted(s.cfg.Store), "err", err)
		}
		if !lasts(ctx, wait) {
			return nil, nil
		}
	}
}

// lasts returns false if ctx ends before d is over.
func lasts(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// stop answers who waits, accepts requests for as long as it takes others to
// notice that it is not ready, and waits for those that run.
func (s *serving) stop(server *http.Server) {
	s.log.Info("stopping", "drain", s.cfg.Drain, "grace", s.cfg.Grace)
	s.now.Load().api.Drain()
	lasts(context.Background(), s.cfg.Drain)
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Grace)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		s.log.Warn("requests were cut off at the end of the grace")
		_ = server.Close()
	}
}

func (s *serving) pushOptions(svc *service) push.Options {
	opts := push.Options{
		Unsigned: s.cfg.Push.Unsigned, AllowPrivate: s.cfg.Push.AllowPrivate,
		Timeout: s.cfg.Push.Timeout, Grace: s.cfg.Grace, Version: build().Version,
		Logger: s.log, Observer: svc.observer,
	}
	if opts.Grace == 0 {
		opts.Grace = -1 // none, where zero is the default
	}
	for _, network := range s.cfg.Push.AllowedNetworks {
		opts.Allow = append(opts.Allow, netip.MustParsePrefix(network))
	}
	var secrets []push.QueueSecrets
	for _, entry := range s.cfg.Push.Secrets {
		secrets = append(secrets, push.QueueSecrets{Queues: entry.Queue, Secrets: entry.Secrets})
	}
	opts.Secrets, _ = push.ByPattern(secrets) // which are validated
	return opts
}

// forward moves due tasks of the queues whose settings say where to.
func (s *serving) forward(ctx context.Context, svc *service) {
	follow.Run(ctx, svc.store, func(set dueq.Settings) string { return set.Forward }, func(ctx context.Context, queue, _ string) {
		err := dueq.Forward(ctx, svc.store, queue, dueq.ForwardOptions{Logger: s.log, Observer: svc.observer})
		if err != nil && ctx.Err() == nil {
			s.log.Error("queue is not forwarded", "queue", queue, "err", err)
			lasts(ctx, forwardPause)
		}
	})
}
