package history

import (
	"context"
	"errors"

	"github.com/dueq/dueq"
)

// Client is a dueq.Client whose calls are recorded. It is safe for concurrent
// use.
type Client struct {
	rec    *Recorder
	client *dueq.Client
	safe   bool
}

// NewClient returns a recorded client of store. With safe, no fault may lose
// what it was acknowledged, not even one that Loses something: replicas have
// it.
func NewClient(rec *Recorder, store dueq.Store, safe bool) *Client {
	return &Client{rec: rec, client: dueq.NewClient(store, dueq.ClientOptions{}), safe: safe}
}

// Schedule is Schedule of dueq.Client.
func (c *Client) Schedule(ctx context.Context, queue string, t dueq.Task, when dueq.When, ifExists dueq.IfExists) (dueq.Outcome, error) {
	ask := Call{Do: Schedule, Key: Key{queue, t.Member()}, Mark: string(t.Body), IfExists: ifExists, Safe: c.safe}
	call := c.rec.asked(ask.at(when))
	outcome, err := c.client.Schedule(ctx, queue, t, when, ifExists)
	c.rec.answered(call, outcome, err)
	return outcome, err
}

// Cancel is Cancel of dueq.Client.
func (c *Client) Cancel(ctx context.Context, queue, member string) error {
	return c.change(Call{Do: Cancel, Key: Key{queue, member}}, func() error {
		return c.client.Cancel(ctx, queue, member)
	})
}

// Stop is Stop of dueq.Client.
func (c *Client) Stop(ctx context.Context, queue, member string) error {
	return c.change(Call{Do: Stop, Key: Key{queue, member}}, func() error {
		return c.client.Stop(ctx, queue, member)
	})
}

// Delete is Delete of dueq.Client.
func (c *Client) Delete(ctx context.Context, queue, member string) error {
	return c.change(Call{Do: Delete, Key: Key{queue, member}}, func() error {
		return c.client.Delete(ctx, queue, member)
	})
}

// Reschedule is Reschedule of dueq.Client.
func (c *Client) Reschedule(ctx context.Context, queue, member string, when dueq.When) error {
	return c.change(Call{Do: Reschedule, Key: Key{queue, member}}.at(when), func() error {
		return c.client.Reschedule(ctx, queue, member, when)
	})
}

// Requeue is Requeue of dueq.Client.
func (c *Client) Requeue(ctx context.Context, queue, member string, when dueq.When) error {
	return c.change(Call{Do: Requeue, Key: Key{queue, member}}.at(when), func() error {
		return c.client.Requeue(ctx, queue, member, when)
	})
}

func (c *Client) change(ask Call, do func() error) error {
	ask.Safe = c.safe
	call := c.rec.asked(ask)
	err := do()
	c.rec.answered(call, dueq.Outcome{Status: changeStatus(err)}, err)
	return err
}

func (c Call) at(when dueq.When) Call {
	c.Delay = when.Delay()
	if due, ok := when.Absolute(); ok {
		c.At = milliTime(due)
	}
	return c
}

// changeStatus is the status that a client made an error of.
func changeStatus(err error) dueq.Status {
	for _, row := range []struct {
		err    error
		status dueq.Status
	}{
		{dueq.ErrRunning, dueq.StatusRunning}, {dueq.ErrNotFound, dueq.StatusNotFound},
		{dueq.ErrDead, dueq.StatusDead}, {dueq.ErrChanged, dueq.StatusChanged},
	} {
		if errors.Is(err, row.err) {
			return row.status
		}
	}
	if err != nil {
		return dueq.StatusUnknown
	}
	return dueq.StatusDone
}

// answerOf tells what a caller knows after an outcome and an error.
func answerOf(o dueq.Outcome, err error) Answer {
	var call *dueq.CallError
	switch {
	case o.Status == dueq.StatusRefused:
		return Refused
	case o.Status != dueq.StatusUnknown:
		return Acknowledged
	case errors.As(err, &call) && call.MayHaveHappened:
		return Unknown
	}
	return Refused
}

// oddOf is the text of an error that callers cannot tell from others.
func oddOf(err error) string {
	if dueq.ExitCode(err) == 1 {
		return err.Error()
	}
	return ""
}
