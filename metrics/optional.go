package metrics

import (
	"context"
	"time"

	"github.com/dueq/dueq"
)

// prober is a store that can find out whether it takes writes.
type prober interface {
	Probe(ctx context.Context) error
}

// optional returns what a store can do that not every store must, nil if it
// cannot.
func optional(store dueq.Store) (dueq.Forwarder, prober) {
	forwarder, _ := store.(dueq.Forwarder)
	prober, _ := store.(prober)
	return forwarder, prober
}

// withOptional returns store with what else it can do.
func withOptional(store dueq.Store, f dueq.Forwarder, p prober) dueq.Store {
	switch {
	case f != nil && p != nil:
		return struct {
			dueq.Store
			dueq.Forwarder
			prober
		}{store, f, p}
	case f != nil:
		return struct {
			dueq.Store
			dueq.Forwarder
		}{store, f}
	case p != nil:
		return struct {
			dueq.Store
			prober
		}{store, p}
	}
	return store
}

type wrappedForwarder struct {
	forwarder dueq.Forwarder
	w         *wrapped
}

func (f wrappedForwarder) Forward(ctx context.Context, req dueq.ForwardRequest) (dueq.Forwarded, error) {
	began := time.Now()
	forwarded, err := f.forwarder.Forward(ctx, req)
	f.w.ended(opForward, began, err)
	return forwarded, err
}

type wrappedProber struct {
	prober prober
	w      *wrapped
}

func (p wrappedProber) Probe(ctx context.Context) error {
	began := time.Now()
	err := p.prober.Probe(ctx)
	p.w.ended(opProbe, began, err)
	return err
}
