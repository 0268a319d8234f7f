package rules

import (
	"bytes"
	"cmp"

	"github.com/dueq/dueq"
)

// Change applies one operation to tasks by member.
func (q *Queue) Change(op dueq.Op, targets []dueq.Target, now Instant) ([]dueq.Outcome, error) {
	if err := cmp.Or(checkOp(op), checkCount("targets", len(targets))); err != nil {
		return nil, err
	}
	outcomes := make([]dueq.Outcome, len(targets))
	for i := range targets {
		outcomes[i] = q.change(op, &targets[i], now)
	}
	return outcomes, nil
}

func checkOp(op dueq.Op) error {
	if op > dueq.OpDelete {
		return &dueq.FieldError{Field: "op", Reason: "is not one of cancel, stop, reschedule, requeue, delete"}
	}
	return nil
}

func (q *Queue) change(op dueq.Op, target *dueq.Target, now Instant) dueq.Outcome {
	due, err := changeDue(op, target, now)
	if err != nil {
		return refused(err)
	}
	t := q.find(target.Member)
	if !t.exists() {
		return dueq.Outcome{Status: dueq.StatusNotFound}
	}
	if !t.matches(target) {
		return t.outcome(dueq.StatusChanged)
	}
	status := t.change(op, target.State, float64(due))
	t.tidy()
	return t.outcome(status)
}

// changeDue reports what is wrong with a target, or when, in ms, it makes the
// task due, if op does.
func changeDue(op dueq.Op, target *dueq.Target, now Instant) (int64, error) {
	if target.State > dueq.StateDead {
		return 0, &dueq.FieldError{Field: "state", Reason: "is not one of none, scheduled, active, dead"}
	}
	if op != dueq.OpReschedule && op != dueq.OpRequeue {
		return 0, nil
	}
	return dueMilli(target.When, now)
}

// matches reports whether the task is as the target says it must be.
func (t task) matches(target *dueq.Target) bool {
	return t.hasState(target.State) &&
		(target.Due.IsZero() || t.isDue(target)) &&
		(target.Body == nil || t.hasBody(target.Body))
}

func (t task) hasState(state dueq.State) bool {
	switch state {
	case dueq.StateScheduled:
		return t.is(Scheduled) || t.is(Next)
	case dueq.StateActive:
		return t.is(Active)
	case dueq.StateDead:
		return t.is(Dead)
	}
	return true
}

func (t task) isDue(target *dueq.Target) bool {
	e, score := t.schedule()
	want, _ := dueq.At(target.Due).Absolute()
	return e != nil && scoreMilli(score) == want
}

func (t task) hasBody(want []byte) bool {
	body := t.body()
	return body != nil && bytes.Equal(body, want)
}

// body returns the body of the schedule or, without one, of the run or dead
// letter.
func (t task) body() []byte {
	if e := t.bearer(); e != nil {
		return t.q.body(e)
	}
	return nil
}

// bearer returns the entry whose body is the task's, or nil.
func (t task) bearer() *Entry {
	for _, p := range [...]Place{Scheduled, Next, Active, Dead} {
		if e := t.get(p); e != nil {
			return e
		}
	}
	return nil
}

// change applies op to a task that exists.
func (t task) change(op dueq.Op, state dueq.State, due float64) dueq.Status {
	switch op {
	case dueq.OpCancel:
		return t.cancel()
	case dueq.OpStop:
		return t.stop()
	case dueq.OpReschedule:
		return t.reschedule(due)
	case dueq.OpRequeue:
		return t.requeue(due)
	}
	return t.delete(state)
}

func (t task) cancel() dueq.Status {
	running := t.is(Active)
	if !running && !t.hasState(dueq.StateScheduled) {
		return dueq.StatusDead
	}
	t.unschedule()
	t.q.Totals.Cancelled++
	if !running {
		return dueq.StatusDone
	}
	t.dropBody()
	for _, e := range t.entries {
		if e.In[Active] {
			e.Failures, e.Rounds, e.Cancelled = 0, 0, true
		}
	}
	return dueq.StatusRunning
}

func (t task) stop() dueq.Status {
	if !t.is(Active) {
		return t.cancel()
	}
	t.unschedule()
	t.remove(Active)
	t.dropBody()
	t.forgetTries()
	t.q.Totals.Stopped++
	return dueq.StatusDone
}

func (t task) reschedule(due float64) dueq.Status {
	e, _ := t.schedule()
	switch {
	case e != nil:
		t.unschedule()
		t.q.put(Scheduled, e, due)
		return dueq.StatusDone
	case t.is(Active):
		return dueq.StatusRunning
	}
	return dueq.StatusDead
}

func (t task) requeue(due float64) dueq.Status {
	if t.is(Active) {
		return dueq.StatusRunning
	}
	if t.hasState(dueq.StateScheduled) {
		t.dropDead()
		return dueq.StatusKept
	}
	e := t.get(Dead)
	t.remove(Dead)
	e.Failures, e.LastErr = 0, ""
	t.q.put(Scheduled, e, due)
	t.q.Totals.Requeued++
	return dueq.StatusDone
}

// delete takes away what is in state; StateNone is all.
func (t task) delete(state dueq.State) dueq.Status {
	if t.is(Active) {
		return dueq.StatusRunning
	}
	if state != dueq.StateDead {
		t.unschedule()
	}
	if state != dueq.StateScheduled {
		t.dropDead()
	}
	t.q.Totals.Deleted++
	return dueq.StatusDone
}
