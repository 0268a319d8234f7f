package rules

import (
	"math"
	"math/rand/v2"

	"github.com/dueq/dueq"
)

// Bounds of the housekeeping of one claim.
const (
	maxLeases = 200
	maxNext   = 100
	maxTrim   = 100
)

// Without a claim for longer than unattended, living workers may have been
// unable to renew their leases; they get graceTime to do it. Both in ms.
const (
	unattended = 2000
	graceTime  = 5000
)

// takeBackLeases returns the tasks of leases that ended, and notes the claim.
func (q *Queue) takeBackLeases(now Instant) {
	limit := q.leaseLimit(now)
	if limit == Never {
		return
	}
	latest := leaseScore(floorSecond(limit), deliveries-1)
	for _, e := range q.first(Active, float64(latest), maxLeases) {
		q.leaseEnded(e, now)
	}
}

// leaseLimit returns the time, in ms, up to which leases that ended may be
// taken back, or Never.
func (q *Queue) leaseLimit(now Instant) int64 {
	grace, limit := min(q.Grace, now.ms+graceTime), now.ms
	switch {
	case now.ms-q.LastClaim > unattended:
		limit, grace = min(limit, grace), now.ms+graceTime
	case now.ms < grace:
		limit = Never
	}
	q.LastClaim, q.Grace = now.ms, grace
	return limit
}

func (q *Queue) leaseEnded(e *Entry, now Instant) {
	q.Totals.Ended++
	if q.find(e.Member).endRun(e) {
		return
	}
	if q.fail(e, "lease ended", now) {
		return
	}
	due := now.ms
	if e.Failures > 1 {
		due = q.retryDue(e.Failures, now)
	}
	q.put(Scheduled, e, float64(due))
}

// fail charges a failure to e, which is in no Place. It reports whether that
// made it a dead letter.
func (q *Queue) fail(e *Entry, reason string, now Instant) bool {
	e.Failures++
	e.LastErr = reason
	if e.Failures <= q.Settings.Retries {
		return false
	}
	q.bury(e, now)
	return true
}

// retryDue returns when, in ms, a task is due after so many failures.
func (q *Queue) retryDue(failures int, now Instant) int64 {
	set := &q.Settings
	us := float64(set.RetryFirst.Microseconds()) * math.Pow(set.RetryFactor, float64(failures-1))
	us = min(us, float64(set.RetryCap.Microseconds()))
	if set.RetryJitter > 0 {
		us *= 1 + set.RetryJitter*rand.Float64()
	}
	return min(now.after(int64(math.Ceil(us))), dueq.MaxDueMilli)
}

// takeBackNext returns tasks whose earlier run is no longer active.
func (q *Queue) takeBackNext() {
	for _, e := range q.first(Next, math.Inf(1), maxNext) {
		t := q.find(e.Member)
		if !t.is(Active) {
			t.leaveNext()
			t.tidy()
		}
	}
}

// trimDead drops dead letters past their keeping time.
func (q *Queue) trimDead(now Instant) {
	limit := float64(now.ms - q.Settings.DeadKeep.Milliseconds())
	for _, e := range q.first(Dead, limit, maxTrim) {
		t := task{q, []*Entry{e}}
		t.dropDead()
		t.tidy()
		q.Totals.Trimmed++
	}
}
