package sqlitestore

import (
	"context"
	"math"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/rules"
)

// hintBuffer is how many hints wait for a slow reader; more are dropped.
const hintBuffer = 256

// Between looks for what other processes wrote: while they write, and when they
// have not for a while, since waking up costs more than the look.
const (
	watchEvery = 25 * time.Millisecond
	idleEvery  = 40 * time.Millisecond
	idleAfter  = 2 * time.Second
)

// sleeper is one call of Wake. Its channel is sent to and closed under the
// store's mu, while the sleeper is among Store.sleepers.
type sleeper struct {
	hints  chan dueq.Hint
	forget func() bool // stops watching the context
}

// head is what there is to tell of a queue.
type head struct {
	due     float64
	version int64 // of its settings
}

// Wake implements dueq.Store. Of what other processes write the hints come
// within some 40 ms. A hint with due 0 says that settings changed.
func (s *Store) Wake(ctx context.Context) (<-chan dueq.Hint, error) {
	if err := s.ready(ctx); err != nil {
		return nil, s.wrap("wake", "", err)
	}
	if err := s.learnHeads(ctx); err != nil {
		return nil, s.wrap("wake", "", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, s.wrap("wake", "", dueq.ErrClosed)
	}
	w := &sleeper{hints: make(chan dueq.Hint, hintBuffer)}
	s.sleepers[w] = struct{}{}
	w.forget = context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dismiss(w)
	})
	if s.watching == nil {
		s.watching = make(chan struct{})
		end := s.watching
		s.background.Go(func() { s.watch(end) })
	}
	return w.hints, nil
}

// learnHeads sees to it that there are heads to compare with.
func (s *Store) learnHeads(ctx context.Context) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	return patiently(ctx, s.look)
}

// watch looks for what other processes wrote until end is closed.
func (s *Store) watch(end <-chan struct{}) {
	timer := time.NewTimer(watchEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			timer.Reset(s.watchOnce())
		case <-end:
			return
		}
	}
}

// watchOnce looks, and says when to look again.
func (s *Store) watchOnce() time.Duration {
	s.turn.Lock()
	defer s.turn.Unlock()
	_ = s.look() // else next time
	if time.Since(s.news) < idleAfter {
		return watchEvery
	}
	return idleEvery
}

// look tells of the queues whose head is earlier than it was, if anybody else
// wrote. Called with turn held.
func (s *Store) look() error {
	version, err := s.writer.number("PRAGMA data_version")
	if err != nil || s.heads != nil && version == s.seen {
		return err
	}
	heads, err := s.writer.heads()
	if err != nil {
		return err
	}
	if s.heads != nil {
		now := float64(s.opts.Now().UnixMilli())
		for name, h := range heads {
			s.compare(name, h)
			if h.due <= now && h.due >= s.heads[name].due { // they may have no room for it
				s.send(dueq.Hint{Queue: name, Due: rules.ScoreTime(h.due)})
			}
		}
	}
	s.heads, s.seen, s.news = heads, version, time.Now()
	return nil
}

const selectHeads = `SELECT name, version,
	(SELECT due_ms FROM task WHERE queue = id AND due_ms IS NOT NULL ORDER BY due_ms LIMIT 1) FROM queue`

// heads reads the heads of all queues.
func (ses *session) heads() (map[string]head, error) {
	s, err := ses.prepare(selectHeads)
	if err != nil {
		return nil, err
	}
	defer s.reset()
	heads := map[string]head{}
	for {
		more, err := s.step()
		if err != nil || !more {
			return heads, err
		}
		h := head{math.Inf(1), s.int(1)}
		if !s.isNull(2) {
			h.due = s.float(2)
		}
		heads[s.text(0)] = h
	}
}

// tell tells of what a transaction of ours changed. Called with turn held.
func (s *Store) tell(u *unit) {
	if !s.isWatched() {
		s.heads = nil // what is known gets old
		return
	}
	if version, err := s.writer.number("PRAGMA data_version"); err != nil || version != s.seen {
		_ = s.look()
		return
	}
	for _, q := range u.touched {
		h := head{q.Head(rules.Scheduled), q.Settings.Version}
		if u.err != nil {
			s.heads = nil // read anew
			return
		}
		s.compare(q.Name, h)
		s.heads[q.Name] = h
	}
}

func (s *Store) isWatched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watching != nil
}

// compare sends hints if a queue has an earlier head or other settings than
// was known.
func (s *Store) compare(name string, now head) {
	was, ok := s.heads[name]
	if !ok {
		was.due = math.Inf(1)
	}
	if now.version != was.version {
		s.send(dueq.Hint{Queue: name, Due: time.UnixMilli(0)})
	}
	if now.due < was.due {
		s.send(dueq.Hint{Queue: name, Due: rules.ScoreTime(now.due)})
	}
}

func (s *Store) send(hint dueq.Hint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.sleepers {
		select {
		case w.hints <- hint:
		default:
		}
	}
}

// dismissAll ends all hints. Called with mu held.
func (s *Store) dismissAll() {
	for w := range s.sleepers {
		w.forget()
		s.dismiss(w)
	}
}

// dismiss ends the hints of a sleeper, and with the last one the watching.
// Called with mu held.
func (s *Store) dismiss(w *sleeper) {
	if _, ok := s.sleepers[w]; !ok {
		return
	}
	delete(s.sleepers, w)
	close(w.hints)
	if len(s.sleepers) == 0 && s.watching != nil {
		close(s.watching)
		s.watching = nil
	}
}
