package httpapi

import (
	"context"
	"sync"

	"github.com/dueq/dueq"
)

// hintBuffer is how many hints a listener may be behind; more are lost to it.
const hintBuffer = 256

// hints shares the store's hints, so that a stream holds no connection of the
// store. The store is listened to while somebody listens here.
type hints struct {
	store dueq.Store
	going sync.WaitGroup // goroutines in share

	mu  sync.Mutex // guards now, and what is in it
	now *listening // nil while nobody listens
}

// listening is one Wake of the store and those who share it.
type listening struct {
	stop      context.CancelFunc
	listeners map[chan dueq.Hint]struct{}
}

// join returns hints from now on, until leave is called; the channel is closed
// when the store ends them.
func (h *hints) join() (from <-chan dueq.Hint, leave func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now == nil {
		if err := h.listen(); err != nil {
			return nil, nil, err
		}
	}
	now, listener := h.now, make(chan dueq.Hint, hintBuffer)
	now.listeners[listener] = struct{}{}
	return listener, func() { h.leave(now, listener) }, nil
}

// listen is called with mu held.
func (h *hints) listen() error {
	ctx, stop := context.WithCancel(context.Background())
	from, err := h.store.Wake(ctx)
	if err != nil {
		stop()
		return err
	}
	now := &listening{stop, map[chan dueq.Hint]struct{}{}}
	h.now = now
	h.going.Go(func() { h.share(now, from) })
	return nil
}

func (h *hints) leave(l *listening, listener chan dueq.Hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(l.listeners, listener)
	if len(l.listeners) == 0 {
		h.end(l)
	}
}

// end is called with mu held.
func (h *hints) end(l *listening) {
	l.stop()
	if h.now == l {
		h.now = nil
	}
}

// share passes hints on until the store ends them.
func (h *hints) share(l *listening, from <-chan dueq.Hint) {
	for hint := range from {
		h.mu.Lock()
		for listener := range l.listeners {
			select {
			case listener <- hint:
			default:
			}
		}
		h.mu.Unlock()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(l)
	for listener := range l.listeners {
		close(listener)
	}
}

// close returns when nothing goes on any more. Everybody must have left.
func (h *hints) close() { h.going.Wait() }
