package follow

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/dueq/dueq"
)

// hintBuffer is how many hints wait for a slow reader; more are dropped.
const hintBuffer = 16

// Hints shares one subscription to a store's hints among the runs of many
// queues. Were each to have its own, every hint would be sent to all of them.
type Hints struct {
	store dueq.Store

	mu      sync.Mutex                    // guards what follows, and is held to send and to close
	readers map[string][]chan<- dueq.Hint // by queue
}

// NewHints returns the hints of a store, which come while Run is under way.
func NewHints(store dueq.Store) *Hints {
	return &Hints{store: store, readers: map[string][]chan<- dueq.Hint{}}
}

// Run listens until ctx ends.
func (h *Hints) Run(ctx context.Context) {
	for ctx.Err() == nil {
		hints, err := h.store.Wake(ctx)
		if err != nil && !errors.Is(err, dueq.ErrUnavailable) {
			slog.Warn("no hints from the store, tasks are found by scanning", "err", err)
			return
		}
		if err == nil {
			h.pass(hints)
		}
		pause(ctx, interval)
	}
}

func (h *Hints) pass(hints <-chan dueq.Hint) {
	for hint := range hints {
		h.mu.Lock()
		for _, reader := range h.readers[hint.Queue] {
			select {
			case reader <- hint:
			default:
			}
		}
		h.mu.Unlock()
	}
}

// Of returns the store for the run of one queue: its Wake gives that queue's
// hints only.
func (h *Hints) Of(queue string) dueq.Store { return ofQueue{h.store, h, queue} }

type ofQueue struct {
	dueq.Store
	hints *Hints
	queue string
}

func (s ofQueue) Wake(ctx context.Context) (<-chan dueq.Hint, error) {
	c := make(chan dueq.Hint, hintBuffer)
	s.hints.add(s.queue, c)
	context.AfterFunc(ctx, func() { s.hints.remove(s.queue, c) })
	return c, nil
}

func (h *Hints) add(queue string, c chan<- dueq.Hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readers[queue] = append(h.readers[queue], c)
}

func (h *Hints) remove(queue string, c chan<- dueq.Hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(h.readers[queue], func(r chan<- dueq.Hint) bool { return r == c })
	if h.readers[queue] = left; len(left) == 0 {
		delete(h.readers, queue)
	}
	close(c)
}
