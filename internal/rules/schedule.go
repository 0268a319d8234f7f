package rules

import (
	"fmt"
	"math"

	"github.com/dueq/dueq"
)

// Schedule puts tasks into their queues, which open finds by name.
func Schedule(items []dueq.Item, now Instant, open func(queue string) *Queue) ([]dueq.Outcome, error) {
	if err := checkCount("items", len(items)); err != nil {
		return nil, err
	}
	outcomes := make([]dueq.Outcome, len(items))
	for i := range items {
		outcomes[i] = schedule(&items[i], now, open)
	}
	return outcomes, nil
}

func schedule(it *dueq.Item, now Instant, open func(queue string) *Queue) dueq.Outcome {
	if err := dueq.ValidateQueue(it.Queue); err != nil {
		return refused(err)
	}
	q := open(it.Queue)
	due, err := q.accept(it, now)
	if err != nil {
		return refused(err)
	}
	q.Known = true
	return q.schedule(it, float64(due))
}

// accept returns when the item will be due, or why it is refused.
func (q *Queue) accept(it *dueq.Item, now Instant) (int64, error) {
	if err := it.Task.Validate(dueq.MemberMax); err != nil {
		return 0, err
	}
	if it.IfExists > dueq.Later {
		return 0, &dueq.FieldError{Field: "if_exists", Reason: "is not one of replace, keep, earlier, later"}
	}
	if err := it.When.Validate(); err != nil {
		return 0, err
	}
	if it.Task.Priority != 0 && !q.Settings.Priority {
		return 0, &dueq.FieldError{Field: "priority", Reason: "is for queues with the setting priority on only"}
	}
	if n, limit := len(it.Task.Body), q.Settings.BodyMax; n > limit {
		return 0, fmt.Errorf("%w: body is %d bytes, body_max is %d", dueq.ErrTooLarge, n, limit)
	}
	return dueMilli(it.When, now)
}

func (q *Queue) schedule(it *dueq.Item, due float64) dueq.Outcome {
	member := it.Task.Member()
	t := q.find(member)
	old, oldDue := t.schedule()
	if old != nil && !replaces(it.IfExists, due, math.Ceil(oldDue)) {
		return t.outcome(dueq.StatusKept)
	}
	running := t.is(Active)
	t.unschedule()
	t.dropDead()
	t.dropBody()
	t.forgetTriesUnlessActive()
	e := q.entry(member)
	q.put(Scheduled, e, due)
	e.setBody(it.Task.Body)
	t.uncancel()
	t.tidy()
	q.Totals.Scheduled++
	return dueq.Outcome{Status: scheduleStatus(running, old != nil), Due: ScoreTime(due)}
}

func replaces(how dueq.IfExists, due, existing float64) bool {
	switch how {
	case dueq.Keep:
		return false
	case dueq.Earlier:
		return due < existing
	case dueq.Later:
		return due > existing
	}
	return true
}

func scheduleStatus(running, existed bool) dueq.Status {
	switch {
	case running:
		return dueq.StatusRunning
	case existed:
		return dueq.StatusReplaced
	}
	return dueq.StatusScheduled
}

func (t task) forgetTriesUnlessActive() {
	for _, e := range t.entries {
		if !e.In[Active] {
			e.forgetTries()
		}
	}
}

func (t task) uncancel() {
	for _, e := range t.entries {
		e.Cancelled = false
	}
}
