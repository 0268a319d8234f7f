package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/dueq/dueq"
)

// batch is what one call asks of one queue, and where the outcomes belong.
type batch[T any] struct {
	request  clientRequest
	in       func([]T) any  // the body of a request about some of it
	outcomes []dueq.Outcome // of the whole call

	wire   []T
	places []int // of each in outcomes
	bytes  []int // of the body of each
}

func (b *batch[T]) add(place int, wire T, bytes int) {
	b.wire, b.places, b.bytes = append(b.wire, wire), append(b.places, place), append(b.bytes, bytes)
}

// send makes as many requests as the bodies need, one after the other.
func (b *batch[T]) send(ctx context.Context, c *Client) error {
	for len(b.wire) > 0 {
		n := b.fits()
		if err := b.sendSome(ctx, c, b.wire[:n], b.places[:n]); err != nil {
			return err
		}
		b.wire, b.places, b.bytes = b.wire[n:], b.places[n:], b.bytes[n:]
	}
	return nil
}

// fits returns how many go into one request, at least one.
func (b *batch[T]) fits() int {
	total := 0
	for i, bytes := range b.bytes {
		if total += bytes; i > 0 && total > dueq.MaxBytes {
			return i
		}
	}
	return len(b.bytes)
}

func (b *batch[T]) sendSome(ctx context.Context, c *Client, wire []T, places []int) error {
	r := b.request
	r.method, r.writes, r.in = http.MethodPost, true, b.in(wire)
	var got results
	err := c.do(ctx, r, &got)
	if p := (*Problem)(nil); errors.As(err, &p) {
		got.Results = p.Results
	} else if err == nil && len(got.Results) != len(wire) {
		return r.unanswered(fmt.Errorf("the answer has %d results, not %d", len(got.Results), len(wire)), true)
	}
	for i, res := range got.Results[:min(len(got.Results), len(wire))] {
		b.outcomes[places[i]] = res.outcome()
	}
	return err
}

// whatIsKnown is what a call returns: after an error the outcomes that are known,
// if there are any; then a part of it has happened.
func whatIsKnown(outcomes []dueq.Outcome, err error) ([]dueq.Outcome, error) {
	call := (*dueq.CallError)(nil)
	switch {
	case !errors.As(err, &call):
		return outcomes, err
	case !slices.ContainsFunc(outcomes, func(o dueq.Outcome) bool { return o.Status != dueq.StatusUnknown }):
		return nil, err
	}
	call.MayHaveHappened = call.MayHaveHappened || slices.ContainsFunc(outcomes, happened)
	return outcomes, err
}

func happened(o dueq.Outcome) bool {
	return o.Status != dueq.StatusUnknown && o.Status != dueq.StatusRefused
}

// outcome reads a result.
func (r result) outcome() dueq.Outcome {
	o := dueq.Outcome{Status: statuses[r.Status], Due: instantOf(r.DueAt)}
	if ends := instantOf(r.LeaseEndsAt); !ends.IsZero() {
		o.Due = ends
	}
	if o.Status == dueq.StatusRefused {
		o.Err = refusal(r.Problem)
	}
	return o
}

func refusal(p *Problem) error {
	if p == nil {
		return dueq.ErrInvalid
	}
	return p
}

// statuses and states by name; what a newer server may say is the zero one.
var (
	statuses = byName[dueq.Status]()
	states   = byName[dueq.State]()
)

func byName[T interface {
	~uint8
	String() string
}]() map[string]T {
	names := map[string]T{}
	for v := T(0); v.String() != "invalid"; v++ {
		names[v.String()] = v
	}
	return names
}
