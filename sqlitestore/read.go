package sqlitestore

import (
	"context"
	"sync"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/rules"
)

// maxReaders is how many reads run at once. They wait for nobody and nobody
// waits for them.
const maxReaders = 4

// Get implements dueq.Store.
func (s *Store) Get(ctx context.Context, queue string, members []string) ([]dueq.Info, error) {
	return look(ctx, s, "get", queue, func(q *rules.Queue) ([]dueq.Info, error) { return q.Get(members) })
}

// List implements dueq.Store. A page looks at Limit tasks, so one with an
// Error to look for may be empty and not the last.
func (s *Store) List(ctx context.Context, query dueq.ListQuery) (dueq.Page, error) {
	return look(ctx, s, "list", query.Queue, func(q *rules.Queue) (dueq.Page, error) { return q.List(query, s.now()) })
}

// Settings implements dueq.Store.
func (s *Store) Settings(ctx context.Context, queue string) (dueq.Settings, error) {
	return look(ctx, s, "settings", queue, func(q *rules.Queue) (dueq.Settings, error) { return q.Settings, nil })
}

// Stats implements dueq.Store. It counts the overdue tasks one by one, the
// others are kept count of.
func (s *Store) Stats(ctx context.Context, queues ...string) ([]dueq.QueueStats, error) {
	for _, name := range queues {
		if err := dueq.ValidateQueue(name); err != nil {
			return nil, s.wrap("stats", name, err)
		}
	}
	var stats []dueq.QueueStats
	err := s.read(ctx, func(u *unit) error {
		names, now := queues, s.now()
		if len(names) == 0 {
			names = u.known()
		}
		stats = make([]dueq.QueueStats, len(names))
		for i, name := range names {
			stats[i] = u.queue(name).Stats(now)
		}
		return nil
	})
	if err != nil {
		return nil, s.wrap("stats", "", err)
	}
	return stats, nil
}

// known returns the names of the queues somebody used, in order.
func (u *unit) known() (names []string) {
	s := u.stmt("SELECT name FROM queue WHERE known ORDER BY name")
	for u.step(s) {
		names = append(names, s.text(0))
	}
	return names
}

// look makes a call about one queue that only reads.
func look[T any](ctx context.Context, s *Store, op, queue string, do func(q *rules.Queue) (T, error)) (T, error) {
	var answer, none T
	err := dueq.ValidateQueue(queue)
	if err == nil {
		err = s.read(ctx, func(u *unit) (err error) {
			answer, err = do(u.queue(queue).Queue)
			return err
		})
	}
	if err != nil {
		return none, s.wrap(op, queue, err)
	}
	return answer, nil
}

// read makes a call that sees one state of the file.
func (s *Store) read(ctx context.Context, run func(u *unit) error) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	ses, err := s.readers.get(ctx)
	if err != nil {
		return err
	}
	defer s.readers.put(ses)
	defer ses.interruptWith(ctx)()
	for {
		err := patiently(ctx, func() error { return ses.snapshot(run) })
		switch {
		case err != nil && ctx.Err() != nil:
			return dueq.Unavailable(context.Cause(ctx))
		case !isInterrupt(err): // else it was meant for the call before
			return err
		}
	}
}

// interruptWith interrupts the session when ctx ends, until the function that
// it returns is called.
func (ses *session) interruptWith(ctx context.Context) func() {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		ses.interrupt()
		close(done)
	})
	return func() {
		if !stop() {
			<-done
		}
	}
}

func (ses *session) snapshot(run func(u *unit) error) error {
	if err := ses.command("BEGIN"); err != nil {
		return err
	}
	defer ses.rollback()
	u := newUnit(ses)
	err := run(u)
	if u.err != nil {
		return u.err
	}
	return err
}

// readerPool holds connections for reading.
type readerPool struct {
	open  func(ctx context.Context) (*session, error)
	slots chan struct{} // one in it for each that is in use

	mu     sync.Mutex // guards what follows
	closed bool
	idle   []*session
}

func (s *Store) openReader(ctx context.Context) (*session, error) {
	ses, err := openSession(ctx, s.path, "PRAGMA query_only = 1")
	if err != nil {
		return nil, explain(s.path, err)
	}
	return ses, nil
}

func (p *readerPool) get(ctx context.Context) (*session, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, dueq.Unavailable(context.Cause(ctx))
	}
	ses, err := p.pop()
	if err == nil && ses == nil {
		ses, err = p.open(ctx)
	}
	if err != nil {
		<-p.slots
	}
	return ses, err
}

func (p *readerPool) pop() (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, dueq.ErrClosed
	}
	n := len(p.idle)
	if n == 0 {
		return nil, nil
	}
	ses := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return ses, nil
}

func (p *readerPool) put(ses *session) {
	p.mu.Lock()
	p.idle = append(p.idle, ses)
	p.mu.Unlock()
	<-p.slots
}

// close waits for the reads under way.
func (p *readerPool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	for range cap(p.slots) {
		p.slots <- struct{}{}
	}
	for _, ses := range p.idle {
		ses.close()
	}
}
