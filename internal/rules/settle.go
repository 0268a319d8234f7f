package rules

import (
	"github.com/dueq/dueq"
)

// Settle ends deliveries.
func (q *Queue) Settle(results []dueq.Result, now Instant) ([]dueq.Outcome, error) {
	if err := checkCount("results", len(results)); err != nil {
		return nil, err
	}
	outcomes := make([]dueq.Outcome, len(results))
	for i := range results {
		outcomes[i] = q.settle(&results[i], now)
	}
	return outcomes, nil
}

func (q *Queue) settle(r *dueq.Result, now Instant) dueq.Outcome {
	due, err := settleDue(r, now)
	if err != nil {
		return refused(err)
	}
	if tokenOnce(r.Task.Lease.Token) {
		return q.settleOnce(r, due)
	}
	e := q.holder(r.Task.Lease)
	if e == nil {
		return dueq.Outcome{Status: dueq.StatusLeaseLost}
	}
	t := q.find(e.Member)
	if t.endRun(e) {
		q.Totals.Superseded++
		return t.outcome(dueq.StatusSuperseded)
	}
	q.apply(r, e, due, now)
	t.tidy()
	return t.outcome(dueq.StatusDone)
}

// settleDue reports what is wrong with a result, or when, in ms, it makes the
// task due. With ByPolicy, ack and dead that is not known or not needed.
func settleDue(r *dueq.Result, now Instant) (int64, error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	switch {
	case r.Verdict == dueq.VerdictAck, r.Verdict == dueq.VerdictDead,
		r.Verdict == dueq.VerdictRetry && r.Delay == dueq.ByPolicy:
		return 0, nil
	case r.Verdict == dueq.VerdictRelease && r.Delay == 0:
		return dueMilli(dueq.At(r.Task.Due), now)
	}
	return dueAfter(r.Delay, now)
}

// apply does what the verdict says to e, which is in no Place.
func (q *Queue) apply(r *dueq.Result, e *Entry, due int64, now Instant) {
	switch r.Verdict {
	case dueq.VerdictAck:
		q.Totals.Acked++
	case dueq.VerdictRetry:
		q.retry(r, e, due, now)
	case dueq.VerdictAgain:
		q.Totals.Again++
		e.Failures, e.LastErr = 0, ""
		e.Rounds++
		q.put(Scheduled, e, float64(due))
	case dueq.VerdictRelease:
		q.Totals.Released++
		q.put(Scheduled, e, float64(due))
	case dueq.VerdictDead:
		q.Totals.Died++
		e.Failures++
		e.LastErr = dueq.CutError(r.Err)
		q.bury(e, now)
	}
}

func (q *Queue) retry(r *dueq.Result, e *Entry, due int64, now Instant) {
	if q.fail(e, dueq.CutError(r.Err), now) {
		q.Totals.Died++
		return
	}
	if r.Delay == dueq.ByPolicy {
		due = q.retryDue(e.Failures, now)
	}
	q.Totals.Retried++
	q.put(Scheduled, e, float64(due))
}

// settleOnce ends a delivery that left nothing in the store.
func (q *Queue) settleOnce(r *dueq.Result, due int64) dueq.Outcome {
	switch r.Verdict {
	case dueq.VerdictAck:
		q.Totals.Acked++
	case dueq.VerdictRetry:
		q.Totals.Retried++
	case dueq.VerdictDead:
		q.Totals.Died++
	case dueq.VerdictAgain:
		return q.putBack(r, due, r.Task.Round+1, &q.Totals.Again)
	case dueq.VerdictRelease:
		return q.putBack(r, due, r.Task.Round, &q.Totals.Released)
	}
	return q.find(r.Task.Lease.Member).outcome(dueq.StatusDone)
}

// putBack schedules a task as it was delivered, if it is in no Place.
func (q *Queue) putBack(r *dueq.Result, due int64, rounds int, total *int64) dueq.Outcome {
	member := r.Task.Lease.Member
	if _, err := dueq.ParseMember(member); err != nil {
		return refused(err)
	}
	t := q.find(member)
	if t.exists() {
		q.Totals.Superseded++
		return t.outcome(dueq.StatusSuperseded)
	}
	*total++
	t.tidy()
	e := q.entry(member)
	e.Rounds = rounds
	e.setBody(r.Task.Body)
	q.put(Scheduled, e, float64(due))
	return dueq.Outcome{Status: dueq.StatusDone, Due: milliTime(due)}
}
