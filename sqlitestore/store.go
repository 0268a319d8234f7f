// Package sqlitestore keeps queues in one SQLite file: the [dueq.Store] for
// those who have no server. What Schedule and Settle have answered is on the
// disk. Several processes may have the file open at once, a worker in one
// terminal and a producer in another.
//
// The clock is that of the machine. The file may be looked at with sqlite3;
// to change it there breaks the counts that lie beside the tasks.
package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/rules"
)

// Options of a Store.
type Options struct {
	// Timeout bounds every call, also one without a deadline. Defaults to 5 s:
	// other processes may be writing, and disks may be slow.
	Timeout time.Duration

	// Now is the store's clock, for tests. Defaults to time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

func (o Options) validate() error {
	if o.Timeout < 0 {
		return &dueq.FieldError{Field: "timeout", Reason: fmt.Sprintf("%v is negative", o.Timeout)}
	}
	return nil
}

// Store is a [dueq.Store] in a file.
type Store struct {
	path string
	opts Options

	mu         sync.Mutex // guards what follows
	closed     bool
	pending    []*call // for the next transaction
	committing bool    // a goroutine is in commitLoop
	sleepers   map[*sleeper]struct{}
	watching   chan struct{} // closed to end the goroutine in watch; nil without one
	background sync.WaitGroup

	turn      sync.Mutex // held for each use of the writer, and guards what follows
	writer    *session
	contended time.Time // when another process last held the lock
	cramped   bool      // the disk was full, and the journal is not written back since
	heads     map[string]head
	seen      int64     // data_version of the writer when heads was read
	news      time.Time // when that was

	readers readerPool
}

var (
	_ dueq.Store  = (*Store)(nil)
	_ dueq.Prober = (*Store)(nil)
)

// Open opens the store in a file. It makes the file if it is missing, readable
// by this user only.
//
// Errors name the file and the reason: no SQLite database or one of another
// program, damaged, read-only, of a newer dueq, on a network file system.
// ErrUnavailable if others keep it locked for longer than the time-out.
func Open(path string, opts Options) (*Store, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	path, err := prepareFile(path)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, opts: opts, sleepers: map[*sleeper]struct{}{}}
	s.readers.open = s.openReader
	s.readers.slots = make(chan struct{}, maxReaders)
	ctx, cancel := context.WithTimeout(context.Background(), opts.Timeout)
	defer cancel()
	if s.writer, err = openSession(ctx, path, ""); err != nil {
		return nil, explain(path, err)
	}
	s.writer.forget()
	return s, nil
}

// pragmas of every connection. The journal is written back every 4,000 pages
// instead of 1,000: pages that many tasks share are then copied less often.
const pragmas = `
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA temp_store = MEMORY;
PRAGMA cache_size = -16384;
PRAGMA wal_autocheckpoint = 4000;
PRAGMA journal_size_limit = 33554432;`

func openSession(ctx context.Context, path, pragma string) (*session, error) {
	var c *conn
	err := patiently(ctx, func() (err error) {
		if c, err = openConn(path); err != nil {
			return err
		}
		if err = c.setUp(pragma); err != nil {
			c.close()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &session{conn: c, settings: map[string]dueq.Settings{}}, nil
}

// setUp looks at what the file is before it writes anything.
func (c *conn) setUp(pragma string) error {
	if _, err := c.checkSchema(); err != nil {
		return err
	}
	if err := c.exec(pragmas); err != nil {
		return err
	}
	if err := c.checkJournal(); err != nil {
		return err
	}
	if err := c.migrate(); err != nil {
		return err
	}
	return c.exec(pragma)
}

func (c *conn) checkJournal() error {
	s, err := c.prepare("PRAGMA journal_mode")
	if err != nil {
		return err
	}
	defer s.reset()
	if _, err := s.step(); err != nil {
		return err
	}
	if mode := s.text(0); mode != "wal" {
		return fmt.Errorf("its journal mode stays %s instead of wal, which this file system may not support", mode)
	}
	return nil
}

// Close ends the store: it waits for the calls under way and writes the
// journal back into the file, unless other processes need it.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.dismissAll()
	s.mu.Unlock()
	s.background.Wait()
	s.readers.close()
	s.turn.Lock()
	defer s.turn.Unlock()
	s.writer.close()
	return nil
}

// ready reports why a call cannot begin.
func (s *Store) ready(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return dueq.ErrClosed
	}
	if ctx.Err() != nil {
		return dueq.Unavailable(context.Cause(ctx))
	}
	return nil
}

func (s *Store) now() rules.Instant { return rules.Clock(s.opts.Now()) }

// within bounds a call: the store's time-out, or the caller's if sooner.
func (s *Store) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.opts.Timeout, fmt.Errorf("no answer within %v: %w", s.opts.Timeout, context.DeadlineExceeded))
}

// wrap says what a failed call means for its caller.
func (s *Store) wrap(op, queue string, err error) error {
	if err == nil {
		return nil
	}
	var failed *dueq.CallError
	if errors.As(err, &failed) {
		named := *failed // it is shared with the other calls of its transaction
		named.Op, named.Queue = op, queue
		return &named
	}
	var code *codeError
	if errors.As(err, &code) {
		err = explain(s.path, err)
	}
	return &dueq.CallError{Op: op, Queue: queue, Err: err}
}
