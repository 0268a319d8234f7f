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
	var good []int
	for i, t := range targets {
		if err := validTarget(op, t); err != nil {
			outcomes[i] = refused(err)
			continue
		}
		good = append(good, i)
	}
	k := s.keysOf(queue)
	ctx, cancel := s.within(ctx)
	defer cancel()
	for len(good) > 0 {
		args := []any{s.wakeChannel(), queue, op.String()}
		for _, i := range good[:min(perCall, len(good))] {
			args = appendTarget(args, op, targets[i])
		}
		in := &invocation{script: changeScript, keys: k, where: always}
		reply, err := s.timed(ctx, op.String(), in, args...)
		if err == nil {
			err = s.checkReplicas(ctx, op.String(), in, reply[2].(int64))
		}
		if err != nil {
			return outcomes, err
		}
		n := (len(reply) - 3) / 2
		for i, at := range good[:n] {
			outcomes[at] = changed(targets[at], reply[3+2*i].(int64), reply[4+2*i].(int64))
		}
		good = good[n:]
	}
	return outcomes, nil
}

// validTarget accepts any member that can lie in a set, so that a malformed
// one from a plain ZADD can be repaired.
func validTarget(op dueq.Op, t dueq.Target) error {
	if t.Member == "" {
		return &dueq.FieldError{Field: "member", Reason: "is empty"}
	}
	if t.State > dueq.StateDead {
		return &dueq.FieldError{Field: "state", Reason: "is not none, scheduled, active or dead"}
	}
	if hasWhen(op) {
		return t.When.Validate()
	}
	return nil
}

func hasWhen(op dueq.Op) bool { return op == dueq.OpReschedule || op == dueq.OpRequeue }

func appendTarget(args []any, op dueq.Op, t dueq.Target) []any {
	if !hasWhen(op) {
		t.When = dueq.When{}
	}
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
