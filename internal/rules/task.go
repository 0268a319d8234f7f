package rules

import "github.com/dueq/dueq"

// task is what lies in a queue of one task: the entry of its member or, with
// the priority setting, those of all its spellings.
type task struct {
	q       *Queue
	entries []*Entry
}

// find looks a task up. It is valid until the next call of find.
func (q *Queue) find(member string) task {
	q.found = q.found[:0]
	if q.Settings.Priority {
		if t, err := dueq.ParseMember(member); err == nil {
			return q.findSpellings(t)
		}
	}
	if e := q.Storage.Find(member); e != nil {
		q.found = append(q.found, e)
	}
	return task{q, q.found}
}

func (q *Queue) findSpellings(t dueq.Task) task {
	for t.Priority = 0; t.Priority <= dueq.P(9); t.Priority++ {
		if e := q.Storage.Find(t.Member()); e != nil && len(e.Member) <= dueq.MemberMax {
			q.found = append(q.found, e)
		}
	}
	return task{q, q.found}
}

// get returns the task's first entry in a Place, or nil.
func (t task) get(p Place) *Entry {
	var first *Entry
	for _, e := range t.entries {
		if e.In[p] && (first == nil || e.At(p).Before(first.At(p))) {
			first = e
		}
	}
	return first
}

func (t task) is(p Place) bool {
	for _, e := range t.entries {
		if e.In[p] {
			return true
		}
	}
	return false
}

func (t task) exists() bool {
	for _, e := range t.entries {
		if e.Somewhere() {
			return true
		}
	}
	return false
}

// schedule returns the entry that is scheduled and its due score, or nil. What
// lies in scheduled hides what lies in next.
func (t task) schedule() (*Entry, float64) {
	for _, p := range [...]Place{Scheduled, Next} {
		if e := t.get(p); e != nil {
			return e, e.Score[p]
		}
	}
	return nil, 0
}

// outcome says status, and the due time now in force.
func (t task) outcome(status dueq.Status) dueq.Outcome {
	o := dueq.Outcome{Status: status}
	if e, due := t.schedule(); e != nil {
		o.Due = ScoreTime(due)
	}
	return o
}

func (t task) remove(p Place) {
	for _, e := range t.entries {
		t.q.remove(p, e)
	}
}

func (t task) unschedule() {
	t.remove(Scheduled)
	t.remove(Next)
}

// dropDead takes a dead letter away with its tries and error. Its body goes
// with tidy, unless the member is elsewhere too.
func (t task) dropDead() {
	for _, e := range t.entries {
		if e.In[Dead] {
			t.q.remove(Dead, e)
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
		e.setBody(nil)
	}
}

// tidy takes away the side data of members that are in no Place any more.
func (t task) tidy() {
	for _, e := range t.entries {
		if !e.Somewhere() {
			e.setBody(nil)
			e.forgetTries()
			t.q.Storage.Drop(e)
		}
	}
}

// endRun takes the lease of e, an active entry of the task, away. If the task
// was scheduled again or cancelled meanwhile that is all there is to do, and
// endRun reports true; otherwise e is in no Place now.
func (t task) endRun(e *Entry) (superseded bool) {
	t.q.remove(Active, e)
	scheduledAgain := t.is(Scheduled) || t.is(Next)
	if !scheduledAgain && !e.Cancelled {
		return false
	}
	t.forgetTries()
	t.leaveNext()
	t.tidy()
	return true
}

// leaveNext returns what is in next to Scheduled, unless that has the task.
func (t task) leaveNext() {
	e := t.get(Next)
	if e == nil {
		return
	}
	if !t.is(Scheduled) {
		t.q.put(Scheduled, e, e.Score[Next])
	}
	t.remove(Next)
}
