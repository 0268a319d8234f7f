package sqlitestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/dueq/dueq"
)

// maxShare is how many calls share one transaction. More would make other
// processes wait.
const maxShare = 256

// Between attempts to get the lock, and after a transaction while other
// processes want it too.
const (
	minRetry   = 200 * time.Microsecond
	maxRetry   = time.Millisecond
	yieldTime  = time.Millisecond
	contention = 100 * time.Millisecond // how long one failed attempt is remembered
)

// call is one write that waits for its share of a transaction.
type call struct {
	ctx  context.Context
	run  func(u *unit) error
	done chan struct{} // closed when err says how it ended

	mu    sync.Mutex // held while run runs; guards what follows
	state callState
	err   error
}

type callState uint8

const (
	waiting callState = iota
	begun             // in a transaction
	left              // its caller has gone; it is not run any more
)

// write makes a call in a transaction that it may share with others. It
// returns when what it did is on the disk.
//
// run may write answers for its caller only if write returns nil: a caller who
// left early does not look at them.
func (s *Store) write(ctx context.Context, run func(u *unit) error) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	c := &call{ctx: ctx, run: run, done: make(chan struct{})}
	if err := s.enqueue(c); err != nil {
		return err
	}
	select {
	case <-c.done:
		err := c.err
		if isBusy(err) && ctx.Err() != nil { // it was tried until then
			err = dueq.Unavailable(fmt.Errorf("%s: %w: %w", s.path, errBusy, context.Cause(ctx)))
		}
		return err
	case <-ctx.Done():
		return c.leave()
	}
}

// leave gives up waiting. A call that has not begun is certain not to happen.
func (c *call) leave() error {
	c.mu.Lock() // run is not running now, so what it reads is the caller's again
	defer c.mu.Unlock()
	select {
	case <-c.done: // the answer came just now
		if !isBusy(c.err) {
			return c.err
		}
	default:
	}
	mayHaveHappened := c.state == begun
	c.state = left
	return &dueq.CallError{MayHaveHappened: mayHaveHappened, Err: dueq.Unavailable(context.Cause(c.ctx))}
}

// enqueue adds a call to the next transaction and sees that somebody makes it.
func (s *Store) enqueue(c *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return dueq.ErrClosed
	}
	s.pending = append(s.pending, c)
	if !s.committing {
		s.committing = true
		s.background.Go(s.commitLoop)
	}
	return nil
}

// commitLoop makes transactions, one at a time, until nothing is pending.
func (s *Store) commitLoop() {
	for s.pendingOrDone() {
		runtime.Gosched() // callers that were just answered join in
		s.turn.Lock()
		s.commit(s.take(maxShare))
		yield := time.Since(s.contended) < contention
		s.turn.Unlock()
		if yield {
			time.Sleep(yieldTime/2 + rand.N(yieldTime))
		}
	}
}

// pendingOrDone reports whether calls are pending; if not, the next call needs
// a new commitLoop.
func (s *Store) pendingOrDone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committing = len(s.pending) > 0
	return s.committing
}

// take removes up to n calls from those pending.
func (s *Store) take(n int) []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, len(s.pending))
	batch := slices.Clone(s.pending[:n])
	s.pending = slices.Delete(s.pending, 0, n)
	return batch
}

// commit makes one transaction of calls and answers them. If the disk is full
// it tries once more with the room that the journal took. To write the journal
// back can take room as well, so that is done as soon as there is some again,
// and from then on early.
func (s *Store) commit(batch []*call) {
	u, batch, err := s.transact(batch)
	if isFull(err) {
		_ = s.writer.exec("PRAGMA wal_autocheckpoint = 100")
		s.cramped = !s.emptyJournal()
		if !s.cramped {
			u, batch, err = s.transact(batch)
		}
	}
	finish(batch, err)
	if s.cramped && err == nil {
		s.cramped = !s.emptyJournal()
	}
	if err == nil {
		s.tell(u)
	}
}

// emptyJournal writes the journal back into the file and gives its room back.
func (s *Store) emptyJournal() bool {
	return s.writer.exec("PRAGMA wal_checkpoint(TRUNCATE)") == nil
}

// transact makes a transaction of calls and of those that came while it waited
// for the lock. It returns them all.
func (s *Store) transact(batch []*call) (*unit, []*call, error) {
	if err := s.begin(batch); err != nil {
		return nil, batch, err
	}
	defer s.writer.rollback()
	if err := s.writer.validate(); err != nil {
		return nil, batch, err
	}
	batch = append(batch, s.take(maxShare-len(batch))...)
	u := newUnit(s.writer)
	for _, c := range batch {
		c.begin(u)
	}
	err := u.flush()
	if err == nil {
		err = s.end()
	}
	if err == nil {
		u.keep()
	} else {
		s.writer.forget()
	}
	return u, batch, err
}

// begin runs the call in the transaction of u, unless its caller has left.
func (c *call) begin(u *unit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != left {
		c.state = begun
		c.err = c.run(u)
	}
}

// finish answers calls; err is that of the transaction.
func finish(batch []*call, err error) {
	for _, c := range batch {
		if err != nil {
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
		}
		close(c.done)
	}
}

// begin gets the lock for writing, while anybody waits for it.
func (s *Store) begin(batch []*call) error {
	for {
		err := s.writer.command("BEGIN IMMEDIATE")
		if err == nil || !isBusy(err) {
			return err
		}
		s.contended = time.Now()
		if !slices.ContainsFunc(batch, (*call).waits) {
			return err // nobody hears it
		}
		time.Sleep(minRetry + rand.N(maxRetry-minRetry))
	}
}

func (c *call) waits() bool { return c.ctx.Err() == nil }

// end commits. When the disk fails meanwhile nobody knows what is on it.
func (s *Store) end() error {
	err := s.writer.command("COMMIT")
	if isIO(err) {
		return &dueq.CallError{MayHaveHappened: true, Err: explain(s.path, err)}
	}
	return err
}

// patiently repeats what fails because others hold a lock, until ctx ends.
func patiently(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !isBusy(err) || ctx.Err() != nil {
			return err
		}
		time.Sleep(minRetry + rand.N(maxRetry-minRetry))
	}
}
