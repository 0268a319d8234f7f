package httpapi

import (
	"bytes"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/item"
	"github.com/dueq/dueq/internal/strictjson"
)

var ops = []dueq.Op{dueq.OpCancel, dueq.OpStop, dueq.OpReschedule, dueq.OpRequeue, dueq.OpDelete}

func (s *Server) change(c *call, in *changeRequest) (*results, error) {
	op := opOf(in.Op)
	if err := c.caller.may(scopeOf(op), c.queue); err != nil {
		return nil, err
	}
	return many(in.Targets, func(t target) (string, dueq.Target, error) {
		target, err := t.parse(op)
		return target.Member, target, err
	}, func(all []dueq.Target) ([]dueq.Outcome, error) {
		return s.store.Change(c.r.Context(), c.queue, op, all)
	})
}

// opOf finds the operation with a name that there is.
func opOf(name string) (found dueq.Op) {
	for _, op := range ops {
		if op.String() == name {
			found = op
		}
	}
	return found
}

func scopeOf(op dueq.Op) Scope {
	if op == dueq.OpRequeue || op == dueq.OpDelete {
		return ScopeAdmin
	}
	return ScopePublish
}

// parse returns the target, with its member also beside an error.
func (t target) parse(op dueq.Op) (dueq.Target, error) {
	out := dueq.Target{Member: t.Member, Body: bytes.Clone(t.IfBody)}
	if t.MemberBase64 != nil {
		out.Member = string(t.MemberBase64)
	}
	if t.IfBodyBase64 != nil {
		out.Body = t.IfBodyBase64
	}
	switch {
	case out.Member == "":
		return out, refused("member", "is missing")
	case t.Member != "" && t.MemberBase64 != nil:
		return out, refused("member", "and member_base64 are both there")
	case t.IfBody != nil && t.IfBodyBase64 != nil:
		return out, refused("if_body", "and if_body_base64 are both there")
	}
	var err error
	if out.When, err = whenOf(op, t.When); err != nil {
		return out, err
	}
	if t.IfDueAt != "" {
		if out.Due, err = time.Parse(time.RFC3339Nano, t.IfDueAt); err != nil {
			return out, refused("if_due_at", strictjson.Quote(t.IfDueAt)+" is not RFC 3339")
		}
	}
	out.State = stateOf(t.IfState)
	return out, nil
}

// whenOf is when a target is due: now, if requeue does not say.
func whenOf(op dueq.Op, when item.When) (dueq.When, error) {
	switch {
	case op == dueq.OpRequeue && when.IsZero():
		return dueq.When{}, nil
	case op == dueq.OpRequeue || op == dueq.OpReschedule:
		return when.Parse()
	case !when.IsZero():
		return dueq.When{}, refused("due_at", "and delay_ms mean nothing to "+op.String())
	}
	return dueq.When{}, nil
}

// stateOf finds the state with a name, none if that is empty.
func stateOf(name string) (found dueq.State) {
	for _, state := range []dueq.State{dueq.StateScheduled, dueq.StateActive, dueq.StateDead} {
		if state.String() == name {
			found = state
		}
	}
	return found
}
