package storetest

import (
	"fmt"
	"time"

	"github.com/dueq/dueq"
)

func priorityTests() []test {
	return []test{
		{"higher priority first, then due, then member text", priorityOrder},
		{"only the first thousand due are looked at", priorityWindow},
		{"bad entries come before good ones", priorityBadFirst},
		{"a schedule finds and replaces any spelling", prioritySchedule},
		{"a schedule that keeps finds any spelling", priorityKeeps},
		{"every change finds any spelling", priorityChange},
		{"a run is found by any spelling", priorityRunning},
		{"body, tries and error follow the spelling", prioritySides},
		{"a dead letter goes when another spelling is scheduled", priorityDead},
		{"kinds, ids and traces stay apart", priorityApart},
		{"a priority is refused elsewhere", priorityElsewhere},
		{"two spellings that were ZADDed do not run beside each other", priorityZADD},
		{"at most once finds any spelling", priorityOnce},
	}
}

func (q *queue) priority() {
	q.Helper()
	q.set("priority", "on")
}

// spellings are one task on a priority queue.
var spellings = []string{"a:k", "a:k:p0", "a:k:p5", "a:k:p9"}

func priorityOrder(q *queue) {
	q.priority()
	base := q.Now()
	for m, late := range map[string]int{
		"a:p1": 0, "b:p9": 9, "c:p9": 3, "d:p0": 1, "e": 1, "f:k:p5": 0, "g:p9#t": 3, "h": 0, "i:p9": 9, "p1:p9": 20,
	} {
		q.put(m, dueq.At(base.Add(time.Duration(late)*time.Millisecond)))
	}
	q.Advance(10 * time.Millisecond)
	c := q.claim(3, 0)
	sameList(q, "claimed first", membersOf(c), []string{"c:p9", "g:p9#t", "b:p9"})
	same(q, "priority", c.Tasks[0].Priority, dueq.P(9))
	sameList(q, "claimed next", membersOf(q.claim(100, 0)), []string{"i:p9", "f:k:p5", "a:p1", "h", "d:p0", "e"})
	q.Advance(10 * time.Millisecond)
	same(q, "not before due", q.one(0).ID, "p1")
}

func priorityWindow(q *queue) {
	q.priority()
	base := q.Now()
	items := q.items("t", 1200, dueq.When{})
	for i := range items {
		items[i].When = dueq.At(base.Add(time.Duration(i) * time.Millisecond))
	}
	items[999].Task.Priority = dueq.P(5)
	items[1000].Task.Priority = dueq.P(9)
	q.schedule(items...)
	q.Advance(2 * time.Second)
	want := []string{"t00999:p5", "t00000", "t00001"}
	sameList(q, "claimed first", membersOf(q.claim(3, 0)), want)
	sameList(q, "claimed next", membersOf(q.claim(2, 0)), []string{"t01000:p9", "t00002"})
	q.length("tasks", len(q.claim(dueq.MaxItems, 0).Tasks), 1000)
	q.length("tasks", len(q.claim(dueq.MaxItems, 0).Tasks), 195)
}

func priorityBadFirst(q *queue) {
	q.priority()
	q.put("good:p9", dueq.At(q.Now().Add(-time.Hour)))
	q.add("bad score:", q.inMilli(0))
	q.add("x:p3", 1)
	q.length("tasks", len(q.claim(2, 0).Tasks), 0)
	q.length("dead letters", len(q.dump().Dead), 2)
	same(q, "claimed next", q.one(0).ID, "good")
}

func prioritySchedule(q *queue) {
	q.priority()
	q.put(spellings[0], dueq.In(time.Hour), "body 0")
	for i, m := range spellings {
		due := time.Duration(i+1) * time.Minute
		o := q.schedule(q.item(m, dueq.In(due), fmt.Sprint("body ", i)))[0]
		q.status("schedule "+m, o, dueq.StatusReplaced)
		s := q.dump()
		q.length("spellings", len(s.Scheduled), 1)
		q.length("bodies", len(s.Body), 1)
		same(q, "due of "+m, s.Scheduled[m], q.inMilli(due))
		for _, other := range spellings {
			info := q.get(other)
			same(q, "member looked up as "+other, info.Member, m)
			same(q, "state looked up as "+other, info.State, dueq.StateScheduled)
			same(q, "body looked up as "+other, string(info.Body), fmt.Sprint("body ", i))
		}
	}
	outcomes := q.schedule(q.item("b:k:p1", dueq.In(0)), q.item("b:k:p2", dueq.In(0)))
	q.status("another task", outcomes[0], dueq.StatusScheduled)
	q.status("its other spelling in one call", outcomes[1], dueq.StatusReplaced)
}

func priorityKeeps(q *queue) {
	q.priority()
	due := q.put("a:k:p5", dueq.In(time.Hour), "body").Due
	for mode, when := range map[dueq.IfExists]time.Duration{
		dueq.Keep: time.Minute, dueq.Earlier: 2 * time.Hour, dueq.Later: time.Minute,
	} {
		item := q.item("a:k", dueq.In(when), "new")
		item.IfExists = mode
		o := q.schedule(item)[0]
		q.status(mode.String(), o, dueq.StatusKept)
		sameTime(q, "due", o.Due, due)
	}
	s := q.dump()
	same(q, "places of the spelling that is there", placesOf(s, "a:k:p5"), "S")
	q.length("spellings", len(s.Scheduled), 1)
	item := q.item("a:k", dueq.In(time.Minute), "new")
	item.IfExists = dueq.Earlier
	q.status("earlier", q.schedule(item)[0], dueq.StatusReplaced)
	same(q, "places of the new spelling", placesOf(q.dump(), "a:k"), "S")
}

func priorityChange(q *queue) {
	q.priority()
	for _, lies := range spellings {
		for _, said := range spellings {
			what := said + " for " + lies
			q.put(lies, dueq.In(time.Hour), "body")
			o := q.change(dueq.OpReschedule, dueq.Target{Member: said, When: dueq.In(0)})[0]
			q.status("reschedule "+what, o, dueq.StatusDone)
			same(q, "due", q.dump().Scheduled[lies], q.inMilli(0))
			q.end(q.one(0), dueq.VerdictDead, 0, "e", dueq.StatusDone)
			q.status("cancel of the dead "+what, q.changeOne(dueq.OpCancel, said), dueq.StatusDead)
			q.status("requeue "+what, q.changeOne(dueq.OpRequeue, said), dueq.StatusDone)
			same(q, "places after requeue", placesOf(q.dump(), lies), "S")
			q.status("cancel "+what, q.changeOne(dueq.OpCancel, said), dueq.StatusDone)
			same(q, "left", q.dump().String(), "")
			q.put(lies, dueq.In(time.Hour))
			q.status("delete "+what, q.changeOne(dueq.OpDelete, said), dueq.StatusDone)
			same(q, "left", q.dump().String(), "")
		}
	}
	q.status("cancel of nothing", q.changeOne(dueq.OpCancel, "a:k:p1"), dueq.StatusNotFound)
}

func priorityRunning(q *queue) {
	q.priority()
	for _, said := range spellings {
		q.put("a:k:p7", dueq.In(0), "first")
		task := q.one(time.Hour)
		same(q, "running as "+said, q.get(said).State, dueq.StateActive)
		q.status("reschedule "+said, q.change(dueq.OpReschedule, dueq.Target{Member: said})[0], dueq.StatusRunning)
		q.status("schedule "+said, q.schedule(q.item(said, dueq.In(0), "second"))[0], dueq.StatusRunning)
		q.none()
		s := q.dump()
		q.length("parked", len(s.Next), 1)
		q.length("active", len(s.Active), 1)
		q.status("extend", q.extend(2*time.Hour, task)[0], dueq.StatusDone)
		q.end(task, dueq.VerdictRetry, time.Hour, "e", dueq.StatusSuperseded)
		next := q.one(time.Hour)
		same(q, "member of the next run", next.Lease.Member, said)
		same(q, "body of the next run", string(next.Body), "second")
		q.status("cancel", q.changeOne(dueq.OpCancel, "a:k:p7"), dueq.StatusRunning)
		q.status("stop", q.changeOne(dueq.OpStop, "a:k:p1"), dueq.StatusDone)
		same(q, "left", q.dump().String(), "")
	}
}

func prioritySides(q *queue) {
	q.priority()
	q.put("a:k:p5", dueq.In(0), "body")
	q.end(q.one(0), dueq.VerdictRetry, time.Hour, "e", dueq.StatusDone)
	info := q.get("a:k")
	same(q, "failures", info.Failures, 1)
	same(q, "last error", info.LastError, "e")
	q.schedule(q.item("a:k", dueq.In(0)))
	s := q.dump()
	q.length("side data of an older spelling", len(s.Body)+len(s.Tries)+len(s.Error), 0)
	q.ack(q.one(0))
	same(q, "left", q.dump().String(), "")
}

func priorityDead(q *queue) {
	q.priority()
	q.put("a:k:p5", dueq.In(0), "body")
	q.end(q.one(0), dueq.VerdictDead, 0, "e", dueq.StatusDone)
	q.put("a:k", dueq.In(0), "new")
	s := q.dump()
	q.length("dead letters", len(s.Dead), 0)
	q.length("bodies", len(s.Body), 1)
	task := q.one(0)
	same(q, "attempt", task.Attempt, 1)
	same(q, "body", string(task.Body), "new")
	q.ack(task)
	same(q, "left", q.dump().String(), "")
}

func priorityApart(q *queue) {
	q.priority()
	members := []string{"a", "a:k:p5", "a:k:p5#t", "a:k#u", "a:l:p5", "b:k:p5", "a:b:k:p5", "p5:p5", "p5:k"}
	for _, m := range members {
		q.put(m, dueq.In(0), m)
	}
	q.length("scheduled", len(q.dump().Scheduled), len(members))
	q.status("delete", q.changeOne(dueq.OpDelete, "a:k"), dueq.StatusDone)
	q.length("scheduled", len(q.dump().Scheduled), len(members)-1)
	for _, task := range q.claim(100, 0).Tasks {
		same(q, "body", string(task.Body), task.Lease.Member)
		q.ack(task)
	}
}

func priorityElsewhere(q *queue) {
	for _, m := range []string{"a:p5", "a:k:p0", "a:k:p9#t"} {
		q.refused(m, q.schedule(q.item(m, dueq.In(0)))[0], dueq.ErrInvalid)
	}
	same(q, "left", q.dump().String(), "")
	q.priority()
	q.put("a:k:p5", dueq.In(0))
	q.set("priority", "off")
	q.refused("after priority is off", q.schedule(q.item("b:p5", dueq.In(0)))[0], dueq.ErrInvalid)
}

func priorityZADD(q *queue) {
	q.priority()
	q.add("a:k:p1", q.inMilli(0))
	q.add("a:k:p8", q.inMilli(0))
	first := q.one(time.Hour)
	same(q, "the higher", first.Priority, dueq.P(8))
	q.none()
	q.length("active", len(q.dump().Active), 1)
	q.end(first, dueq.VerdictAck, 0, "", dueq.StatusSuperseded)
	q.ack(q.one(0))
	same(q, "left", q.dump().String(), "")
}

func priorityOnce(q *queue) {
	q.priority()
	q.once()
	q.put("a:k:p5", dueq.In(0), "body")
	task := q.one(0)
	q.put("a:k", dueq.In(time.Hour))
	before := q.dump().String()
	q.end(task, dueq.VerdictAgain, 0, "", dueq.StatusSuperseded)
	same(q, "after again beside another spelling", q.dump().String(), before)
	q.status("cancel", q.changeOne(dueq.OpCancel, "a:k:p9"), dueq.StatusDone)
	q.end(task, dueq.VerdictAgain, 0, "", dueq.StatusDone)
	same(q, "member that comes again", q.one(0).Lease.Member, "a:k:p5")
}
