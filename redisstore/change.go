package redisstore

import (
	"context"

	"github.com/dueq/dueq"
)

// Change implements dueq.Store.
func (s *Store) Change(ctx context.Context, queue string, op dueq.Op, targets []dueq.Target) ([]dueq.Outcome, error) {
	if err := validCall(queue, "targets", len(targets)); err != nil || len(targets) == 0 {
		return nil, err
	}
	if op > dueq.OpDelete {
		return nil, &dueq.FieldError{Field: "op", Reason: "is not an operation"}
	}
	outcomes := make([]dueq.Outcome, len(targets))
	args := append(make([]any, 0, 3+5*len(targets)), s.wakeChannel(), queue, op.String())
	var sent []int
	for i, t := range targets {
		if op != dueq.OpReschedule && op != dueq.OpRequeue {
			t.When = dueq.When{} // it has no meaning
		}
		if err := validTarget(t); err != nil {
			outcomes[i] = refused(err)
			continue
		}
		sent = append(sent, i)
		args = appendTarget(args, t)
	}
	if len(sent) == 0 {
		return outcomes, nil
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	reply, err := s.timed(ctx, op.String(), changeScript, queue, args...)
	if err != nil {
		return outcomes, err
	}
	for n, i := range sent {
		outcomes[i] = changed(targets[i], reply[2+2*n].(int64), reply[3+2*n].(int64))
	}
	return outcomes, nil
}

// validTarget accepts any member that can lie in a set, so that a malformed
// one from a plain ZADD can be repaired.
func validTarget(t dueq.Target) error {
	if t.Member == "" {
		return &dueq.FieldError{Field: "member", Reason: "is empty"}
	}
	if t.State > dueq.StateDead {
		return &dueq.FieldError{Field: "state", Reason: "is not none, scheduled, active or dead"}
	}
	return t.When.Validate()
}

func appendTarget(args []any, t dueq.Target) []any {
	state, due := "", ""
	if t.State != dueq.StateNone {
		state = t.State.String()
	}
	if !t.Due.IsZero() {
		due = itoa(t.Due.UnixMilli())
	}
	args = append(args, t.Member, whenArg(t.When), state, due)
	if t.Body == nil {
		return append(args, "0")
	}
	return append(args, "1", t.Body)
}

// changed reads the codes of change.lua.
func changed(t dueq.Target, code, due int64) dueq.Outcome {
	if code == 7 {
		return refused(beyond(t.When))
	}
	return inForce([...]dueq.Status{dueq.StatusUnknown, dueq.StatusDone, dueq.StatusKept,
		dueq.StatusRunning, dueq.StatusNotFound, dueq.StatusDead, dueq.StatusChanged}[code], due)
}
