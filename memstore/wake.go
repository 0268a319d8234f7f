package memstore

import (
	"context"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/rules"
)

// hintBuffer is how many hints wait for a sleeper; more are dropped.
const hintBuffer = 64

// sleeper is one call of Wake. Its channel is sent to and closed under the
// store's lock, while the sleeper is among Store.sleepers.
type sleeper struct {
	hints  chan dueq.Hint
	forget func() bool // stops watching the context
}

// Wake returns a channel of hints that a queue has a new earliest task. It is
// closed when ctx ends or the store is closed.
func (s *Store) Wake(ctx context.Context) (<-chan dueq.Hint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(ctx); err != nil {
		return nil, callError("wake", "", err)
	}
	w := &sleeper{hints: make(chan dueq.Hint, hintBuffer)}
	s.sleepers[w] = struct{}{}
	w.forget = context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dismiss(w)
	})
	return w.hints, nil
}

// hint tells the sleepers if the earliest due time of q is before what it was.
func (s *Store) hint(q *queue) {
	head := q.Head(rules.Scheduled)
	if len(s.sleepers) == 0 || head >= q.was {
		return
	}
	s.send(dueq.Hint{Queue: q.Name, Due: rules.ScoreTime(head)})
}

func (s *Store) send(hint dueq.Hint) {
	for w := range s.sleepers {
		select {
		case w.hints <- hint:
		default:
		}
	}
}

func (s *Store) dismissAll() {
	for w := range s.sleepers {
		w.forget()
		s.dismiss(w)
	}
}

func (s *Store) dismiss(w *sleeper) {
	if _, ok := s.sleepers[w]; ok {
		delete(s.sleepers, w)
		close(w.hints)
	}
}
