package memstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/dueq/dueq"
)

// Schedule puts tasks into their queues. There is no limit to their number.
func (s *Store) Schedule(ctx context.Context, items []dueq.Item) ([]dueq.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(s.ready(ctx), checkCount("items", len(items))); err != nil {
		return nil, callError("schedule", "", err)
	}
	now := s.now()
	outcomes := make([]dueq.Outcome, len(items))
	for i := range items {
		outcomes[i] = s.schedule(&items[i], now)
	}
	return outcomes, nil
}

func (s *Store) schedule(it *dueq.Item, now instant) dueq.Outcome {
	if err := dueq.ValidateQueue(it.Queue); err != nil {
		return refused(err)
	}
	q := s.queue(it.Queue)
	due, err := q.accept(it, now)
	if err != nil {
		return refused(err)
	}
	q.known = true
	defer s.hint(q, q.head(scheduled))
	return q.schedule(it, float64(due))
}

// accept returns when the item will be due, or why it is refused.
func (q *queue) accept(it *dueq.Item, now instant) (int64, error) {
	if err := it.Task.Validate(dueq.MemberMax); err != nil {
		return 0, err
	}
	if it.IfExists > dueq.Later {
		return 0, &dueq.FieldError{Field: "if_exists", Reason: "is not one of replace, keep, earlier, later"}
	}
	if err := it.When.Validate(); err != nil {
		return 0, err
	}
	if it.Task.Priority != 0 && !q.settings.Priority {
		return 0, &dueq.FieldError{Field: "priority", Reason: "is for queues with the setting priority on only"}
	}
	if n, limit := len(it.Task.Body), q.settings.BodyMax; n > limit {
		return 0, fmt.Errorf("%w: body is %d bytes, body_max is %d", dueq.ErrTooLarge, n, limit)
	}
	return dueMilli(it.When, now)
}

func (q *queue) schedule(it *dueq.Item, due float64) dueq.Outcome {
	member := it.Task.Member()
	t := q.find(member)
	old, oldDue := t.schedule()
	if old != nil && !replaces(it.IfExists, due, math.Ceil(oldDue)) {
		return t.outcome(dueq.StatusKept)
	}
	running := t.is(active)
	t.unschedule()
	t.dropDead()
	t.dropBody()
	t.forgetTriesUnlessActive()
	e := q.entry(member)
	q.put(scheduled, e, due)
	e.body = bytes.Clone(it.Task.Body)
	t.uncancel()
	t.tidy()
	q.totals.Scheduled++
	return dueq.Outcome{Status: scheduleStatus(running, old != nil), Due: scoreTime(due)}
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
		if !e.in[active] {
			e.forgetTries()
		}
	}
}

func (t task) uncancel() {
	for _, e := range t.entries {
		e.cancelled = false
	}
}
