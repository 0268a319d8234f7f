package dueq

import "time"

// Observer is told what a Worker does. Every function may be nil; they are
// called from many goroutines and must not block.
type Observer struct {
	// Call reports one call to the store about n tasks or queues.
	Call func(op, queue string, n int, took time.Duration, err error)
	// Claimed reports the answer to a claim, Age of its tasks included.
	Claimed func(queue string, c Claim)
	// Started reports the start of a handler; drift is from due to start.
	Started func(t *Task, drift time.Duration)
	// Ended reports the verdict of a handler, err what it returned.
	Ended func(t *Task, v Verdict, took time.Duration, err error)
	// Settled reports what the store made of a verdict: StatusDone,
	// StatusSuperseded or StatusLeaseLost.
	Settled func(t *Task, o Outcome)
	// Dropped reports a claimed task that did not start because its lease was
	// lost.
	Dropped func(t *Task)
	// Overran reports, once a run, a handler that ignores its deadline.
	Overran func(t *Task)
}

func (o *Observer) call(op, queue string, n int, took time.Duration, err error) {
	if o.Call != nil {
		o.Call(op, queue, n, took, err)
	}
}

func (o *Observer) claimed(queue string, c Claim) {
	if o.Claimed != nil {
		o.Claimed(queue, c)
	}
}

func (o *Observer) started(t *Task, drift time.Duration) {
	if o.Started != nil {
		o.Started(t, drift)
	}
}

func (o *Observer) ended(t *Task, v Verdict, took time.Duration, err error) {
	if o.Ended != nil {
		o.Ended(t, v, took, err)
	}
}

func (o *Observer) settled(t *Task, out Outcome) {
	if o.Settled != nil {
		o.Settled(t, out)
	}
}

func (o *Observer) dropped(t *Task) {
	if o.Dropped != nil {
		o.Dropped(t)
	}
}

func (o *Observer) overran(t *Task) {
	if o.Overran != nil {
		o.Overran(t)
	}
}
