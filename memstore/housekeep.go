package memstore

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
func (q *queue) takeBackLeases(now instant) {
	limit := q.leaseLimit(now)
	if limit == never {
		return
	}
	latest := leaseScore(floorSecond(limit), deliveries-1)
	for _, e := range q.first(active, float64(latest), maxLeases) {
		q.leaseEnded(e, now)
	}
}

// leaseLimit returns the time, in ms, up to which leases that ended may be
// taken back, or never.
func (q *queue) leaseLimit(now instant) int64 {
	grace, limit := min(q.grace, now.ms+graceTime), now.ms
	switch {
	case now.ms-q.lastClaim > unattended:
		limit, grace = min(limit, grace), now.ms+graceTime
	case now.ms < grace:
		limit = never
	}
	q.lastClaim, q.grace = now.ms, grace
	return limit
}

func (q *queue) leaseEnded(e *entry, now instant) {
	q.totals.Ended++
	if q.find(e.member).endRun(e) {
		return
	}
	if q.fail(e, "lease ended", now) {
		return
	}
	due := now.ms
	if e.failures > 1 {
		due = q.retryDue(e.failures, now)
	}
	q.put(scheduled, e, float64(due))
}

// fail charges a failure to e, which is in no place. It reports whether that
// made it a dead letter.
func (q *queue) fail(e *entry, reason string, now instant) bool {
	e.failures++
	e.lastErr = reason
	if e.failures <= q.settings.Retries {
		return false
	}
	q.bury(e, now)
	return true
}

// retryDue returns when, in ms, a task is due after so many failures.
func (q *queue) retryDue(failures int, now instant) int64 {
	set := &q.settings
	us := float64(set.RetryFirst.Microseconds()) * math.Pow(set.RetryFactor, float64(failures-1))
	us = min(us, float64(set.RetryCap.Microseconds()))
	if set.RetryJitter > 0 {
		us *= 1 + set.RetryJitter*rand.Float64()
	}
	return min(now.after(int64(math.Ceil(us))), dueq.MaxDueMilli)
}

// takeBackNext returns tasks whose earlier run is no longer active.
func (q *queue) takeBackNext() {
	for _, e := range q.first(next, math.Inf(1), maxNext) {
		t := q.find(e.member)
		if !t.is(active) {
			t.leaveNext()
			t.tidy()
		}
	}
}

// trimDead drops dead letters past their keeping time.
func (q *queue) trimDead(now instant) {
	limit := float64(now.ms - q.settings.DeadKeep.Milliseconds())
	for _, e := range q.first(dead, limit, maxTrim) {
		t := task{q, []*entry{e}}
		t.dropDead()
		t.tidy()
		q.totals.Trimmed++
	}
}
