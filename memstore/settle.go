package memstore

import (
	"bytes"
	"cmp"
	"context"

	"github.com/dueq/dueq"
)

// Settle ends deliveries.
func (s *Store) Settle(ctx context.Context, queue string, results []dueq.Result) ([]dueq.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(s.readyFor(ctx, queue), checkCount("results", len(results))); err != nil {
		return nil, callError("settle", queue, err)
	}
	q, now := s.queue(queue), s.now()
	defer s.hint(q, q.head(scheduled))
	outcomes := make([]dueq.Outcome, len(results))
	for i := range results {
		outcomes[i] = q.settle(&results[i], now)
	}
	return outcomes, nil
}

func (q *queue) settle(r *dueq.Result, now instant) dueq.Outcome {
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
	t := q.find(e.member)
	if t.endRun(e) {
		q.totals.Superseded++
		return t.outcome(dueq.StatusSuperseded)
	}
	q.apply(r, e, due, now)
	t.tidy()
	return t.outcome(dueq.StatusDone)
}

// settleDue reports what is wrong with a result, or when, in ms, it makes the
// task due. With ByPolicy, ack and dead that is not known or not needed.
func settleDue(r *dueq.Result, now instant) (int64, error) {
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

// apply does what the verdict says to e, which is in no place.
func (q *queue) apply(r *dueq.Result, e *entry, due int64, now instant) {
	switch r.Verdict {
	case dueq.VerdictAck:
		q.totals.Acked++
	case dueq.VerdictRetry:
		q.retry(r, e, due, now)
	case dueq.VerdictAgain:
		q.totals.Again++
		e.failures, e.lastErr = 0, ""
		e.rounds++
		q.put(scheduled, e, float64(due))
	case dueq.VerdictRelease:
		q.totals.Released++
		q.put(scheduled, e, float64(due))
	case dueq.VerdictDead:
		q.totals.Died++
		e.failures++
		e.lastErr = dueq.CutError(r.Err)
		q.bury(e, now)
	}
}

func (q *queue) retry(r *dueq.Result, e *entry, due int64, now instant) {
	if q.fail(e, dueq.CutError(r.Err), now) {
		q.totals.Died++
		return
	}
	if r.Delay == dueq.ByPolicy {
		due = q.retryDue(e.failures, now)
	}
	q.totals.Retried++
	q.put(scheduled, e, float64(due))
}

// settleOnce ends a delivery that left nothing in the store.
func (q *queue) settleOnce(r *dueq.Result, due int64) dueq.Outcome {
	switch r.Verdict {
	case dueq.VerdictAck:
		q.totals.Acked++
	case dueq.VerdictRetry:
		q.totals.Retried++
	case dueq.VerdictDead:
		q.totals.Died++
	case dueq.VerdictAgain:
		return q.putBack(r, due, r.Task.Round+1, &q.totals.Again)
	case dueq.VerdictRelease:
		return q.putBack(r, due, r.Task.Round, &q.totals.Released)
	}
	return q.find(r.Task.Lease.Member).outcome(dueq.StatusDone)
}

// putBack schedules a task as it was delivered, if it is in no place.
func (q *queue) putBack(r *dueq.Result, due int64, rounds int, total *int64) dueq.Outcome {
	member := r.Task.Lease.Member
	if _, err := dueq.ParseMember(member); err != nil {
		return refused(err)
	}
	t := q.find(member)
	if t.exists() {
		q.totals.Superseded++
		return t.outcome(dueq.StatusSuperseded)
	}
	*total++
	t.tidy()
	e := q.entry(member)
	e.rounds, e.body = rounds, bytes.Clone(r.Task.Body)
	q.put(scheduled, e, float64(due))
	return dueq.Outcome{Status: dueq.StatusDone, Due: milliTime(due)}
}
