package memstore

import "github.com/dueq/dueq"

// task is what lies in a queue of one task: the entry of its member or, with
// the priority setting, those of all its spellings.
type task struct {
	q       *queue
	entries []*entry
}

// find looks a task up. It is valid until the next call of find.
func (q *queue) find(member string) task {
	q.found = q.found[:0]
	if q.settings.Priority {
		if t, err := dueq.ParseMember(member); err == nil {
			return q.findSpellings(t)
		}
	}
	if e := q.entries[member]; e != nil {
		q.found = append(q.found, e)
	}
	return task{q, q.found}
}

func (q *queue) findSpellings(t dueq.Task) task {
	for t.Priority = 0; t.Priority <= dueq.P(9); t.Priority++ {
		if e := q.entries[t.Member()]; e != nil && len(e.member) <= dueq.MemberMax {
			q.found = append(q.found, e)
		}
	}
	return task{q, q.found}
}

// get returns the task's first entry in a place, or nil.
func (t task) get(p place) *entry {
	var first *entry
	for _, e := range t.entries {
		if e.in[p] && (first == nil || item{e.score[p], e}.before(item{first.score[p], first})) {
			first = e
		}
	}
	return first
}

func (t task) is(p place) bool {
	for _, e := range t.entries {
		if e.in[p] {
			return true
		}
	}
	return false
}

func (t task) exists() bool {
	for _, e := range t.entries {
		if e.somewhere() {
			return true
		}
	}
	return false
}

// schedule returns the entry that is scheduled and its due score, or nil. What
// lies in scheduled hides what lies in next.
func (t task) schedule() (*entry, float64) {
	for _, p := range [...]place{scheduled, next} {
		if e := t.get(p); e != nil {
			return e, e.score[p]
		}
	}
	return nil, 0
}

// outcome says status, and the due time now in force.
func (t task) outcome(status dueq.Status) dueq.Outcome {
	o := dueq.Outcome{Status: status}
	if e, due := t.schedule(); e != nil {
		o.Due = scoreTime(due)
	}
	return o
}

func (t task) remove(p place) {
	for _, e := range t.entries {
		t.q.remove(p, e)
	}
}

func (t task) unschedule() {
	t.remove(scheduled)
	t.remove(next)
}

// dropDead takes a dead letter away with its tries and error. Its body goes
// with tidy, unless the member is elsewhere too.
func (t task) dropDead() {
	for _, e := range t.entries {
		if e.in[dead] {
			t.q.remove(dead, e)
			e.forgetTries()
		}
	}
}

func (t task) forgetTries() {
	for _, e := range t.entries {
		e.forgetTries()
	}
}

func (t task) dropBody() {
	for _, e := range t.entries {
		e.body = nil
	}
}

// tidy takes away the side data of members that are in no place any more.
func (t task) tidy() {
	for _, e := range t.entries {
		if !e.somewhere() {
			e.body = nil
			e.forgetTries()
			delete(t.q.entries, e.member)
		}
	}
}

// endRun takes the lease of e, an active entry of the task, away. If the task
// was scheduled again or cancelled meanwhile that is all there is to do, and
// endRun reports true; otherwise e is in no place now.
func (t task) endRun(e *entry) (superseded bool) {
	t.q.remove(active, e)
	scheduledAgain := t.is(scheduled) || t.is(next)
	if !scheduledAgain && !e.cancelled {
		return false
	}
	t.forgetTries()
	t.leaveNext()
	t.tidy()
	return true
}

// leaveNext returns what is in next to scheduled, unless that has the task.
func (t task) leaveNext() {
	e := t.get(next)
	if e == nil {
		return
	}
	if !t.is(scheduled) {
		t.q.put(scheduled, e, e.score[next])
	}
	t.remove(next)
}
