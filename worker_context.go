package dueq

import (
	"context"
	"sync"
	"time"
)

// runContext is the context of one run. Most handlers ask it nothing, so what a
// context needs to end in time is made when somebody does.
type runContext struct {
	base  context.Context // ends when a stop has waited long enough
	limit time.Time

	mu     sync.Mutex // guards what follows
	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   context.CancelFunc
	cause  error // why it ended before there was a ctx
}

func (c *runContext) Deadline() (time.Time, bool) { return c.limit, true }

func (c *runContext) Done() <-chan struct{} { return c.made().Done() }

// Value is also how context.Cause asks.
func (c *runContext) Value(key any) any { return c.made().Value(key) }

func (c *runContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ctx != nil:
		return c.ctx.Err()
	case c.cause != nil:
		return context.Canceled
	case c.base.Err() != nil:
		return c.base.Err()
	case !time.Now().Before(c.limit):
		return context.DeadlineExceeded
	}
	return nil
}

func (c *runContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx == nil {
		timed, stop := context.WithDeadline(c.base, c.limit)
		c.stop = stop
		c.ctx, c.cancel = context.WithCancelCause(timed)
		if c.cause != nil {
			c.end()
		}
	}
	return c.ctx
}

// finish ends the context, by a cause if it has not ended by then.
func (c *runContext) finish(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
	}
	if c.ctx != nil {
		c.end()
	}
}

// end is called with mu held.
func (c *runContext) end() {
	c.cancel(c.cause)
	c.stop()
}
