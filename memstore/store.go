// Package memstore keeps queues in memory: the [dueq.Store] for tests, for
// trying things out, and wherever a restart may lose everything. Its clock can
// be injected, and with retry_jitter 0 it is deterministic.
package memstore

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/rules"
)

// Options of a Store.
type Options struct {
	// Now is the store's clock. It is called under the store's lock, so it may
	// not call the store. Defaults to time.Now.
	Now func() time.Time
}

// Store is a [dueq.Store] in memory. It starts no goroutines.
type Store struct {
	clock func() time.Time

	mu       sync.Mutex // guards all below, and all that a queue holds
	closed   bool
	queues   map[string]*queue
	sleepers map[*sleeper]struct{}
}

var (
	_ dueq.Store  = (*Store)(nil)
	_ dueq.Prober = (*Store)(nil)
)

// New returns an empty store.
func New(opts Options) *Store {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Store{
		clock:    opts.Now,
		queues:   map[string]*queue{},
		sleepers: map[*sleeper]struct{}{},
	}
}

// Add does what a plain ZADD does on Redis: it sets the due time, in Unix ms,
// of any member to any score but NaN, and touches nothing else.
func (s *Store) Add(queue, member string, score float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !math.IsNaN(score) {
		s.queue(queue).Add(member, score)
	}
}

// Remove does what a plain ZREM does on Redis: it takes the due time away, and
// leaves what else the member has.
func (s *Store) Remove(queue, member string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peek(queue).Remove(member)
}

// Close ends the store: what it holds is gone.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.queues = map[string]*queue{}
	s.dismissAll()
	return nil
}

// ready reports why a call cannot begin.
func (s *Store) ready(ctx context.Context) error {
	if s.closed {
		return dueq.ErrClosed
	}
	if ctx.Err() != nil {
		return dueq.Unavailable(context.Cause(ctx))
	}
	return nil
}

// readyFor is ready for a call about one queue.
func (s *Store) readyFor(ctx context.Context, queue string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return dueq.ValidateQueue(queue)
}

func callError(op, queue string, err error) error {
	return &dueq.CallError{Op: op, Queue: queue, Err: err}
}

func wrap(op, queue string, err error) error {
	if err == nil {
		return nil
	}
	return callError(op, queue, err)
}

func (s *Store) now() rules.Instant { return rules.Clock(s.clock()) }

// queue returns the queue of that name, new if there is none.
func (s *Store) queue(name string) *queue {
	q := s.queues[name]
	if q == nil {
		q = newQueue(name)
		s.queues[name] = q
	}
	return q
}

// peek returns the queue of that name, or one that is empty and not kept, for
// callers that add nothing.
func (s *Store) peek(name string) *queue {
	if q := s.queues[name]; q != nil {
		return q
	}
	return newQueue(name)
}
