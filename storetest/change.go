package storetest

import (
	"fmt"
	"time"

	"github.com/dueq/dueq"
)

func changeTests() []test {
	return []test{
		{"a target that must have a state is left alone in another", mustState},
		{"a target that must have a due time is left alone with another", mustDue},
		{"a target that must have a body is left alone with another", mustBody},
		{"what does not exist is not found", nothingThere},
		{"a task is schedulable again at once after cancel, stop, delete and death", schedulableAgain},
		{"a cancelled run is the last, whatever its verdict", cancelledRun},
		{"stop takes the lease away", stopTakesLease},
		{"reschedule at the due instant wins or loses, never both", rescheduleAtDue},
		{"a rescheduled delay counts from now", rescheduleFromNow},
		{"requeue is now or when it was asked for", requeueWhen},
		{"a thousand dead letters are requeued in one call", requeueMany},
		{"targets are changed in order, a bad one fails alone", targetsInOrder},
		{"an unknown operation is refused", unknownOp},
		{"totals count changes", changeTotals},
	}
}

func mustState(q *queue) {
	bring := map[dueq.State]func(m string){
		dueq.StateScheduled: func(m string) { q.put(m, dueq.In(time.Hour)) },
		dueq.StateActive:    func(m string) { q.put(m, dueq.In(0)); q.one(time.Hour) },
		dueq.StateDead: func(m string) {
			q.put(m, dueq.In(0))
			q.end(q.one(0), dueq.VerdictDead, 0, "e", dueq.StatusDone)
		},
	}
	for is, there := range bring {
		for op := dueq.OpCancel; op <= dueq.OpDelete; op++ {
			m := fmt.Sprintf("%v:%v", is, op)
			there(m)
			before := q.dump().String()
			for want := range bring {
				if want != is {
					o := q.change(op, dueq.Target{Member: m, State: want})[0]
					q.status(fmt.Sprintf("%v of a task that is %v and must be %v", op, is, want), o, dueq.StatusChanged)
				}
			}
			same(q, "after changes that did not hold", q.dump().String(), before)
			q.applied(op, is, q.change(op, dueq.Target{Member: m, State: is})[0])
			q.changeOne(dueq.OpStop, m)
			q.changeOne(dueq.OpDelete, m)
		}
	}
}

// applied expects the outcome of an operation whose condition held.
func (q *queue) applied(op dueq.Op, is dueq.State, o dueq.Outcome) {
	q.Helper()
	want := map[dueq.State][]dueq.Status{ // cancel, stop, reschedule, requeue, delete
		dueq.StateScheduled: {dueq.StatusDone, dueq.StatusDone, dueq.StatusDone, dueq.StatusKept, dueq.StatusDone},
		dueq.StateActive:    {dueq.StatusRunning, dueq.StatusDone, dueq.StatusRunning, dueq.StatusRunning, dueq.StatusRunning},
		dueq.StateDead:      {dueq.StatusDead, dueq.StatusDead, dueq.StatusDead, dueq.StatusDone, dueq.StatusDone},
	}
	q.status(fmt.Sprintf("%v of a task that is %v as it must be", op, is), o, want[is][op])
}

func mustDue(q *queue) {
	due := q.put("x", dueq.In(time.Hour)).Due
	for _, wrong := range []time.Time{due.Add(time.Millisecond), due.Add(-time.Millisecond), due.Add(time.Hour)} {
		for _, op := range []dueq.Op{dueq.OpCancel, dueq.OpStop, dueq.OpReschedule, dueq.OpDelete} {
			q.status(op.String(), q.change(op, dueq.Target{Member: "x", Due: wrong})[0], dueq.StatusChanged)
		}
	}
	sameTime(q, "due", q.get("x").Due, due)
	o := q.change(dueq.OpReschedule, dueq.Target{Member: "x", Due: due, When: dueq.In(2 * time.Hour)})[0]
	q.status("reschedule", o, dueq.StatusDone)
	q.status("reschedule again", q.change(dueq.OpReschedule, dueq.Target{Member: "x", Due: due})[0], dueq.StatusChanged)
	q.status("delete", q.change(dueq.OpDelete, dueq.Target{Member: "x", Due: o.Due})[0], dueq.StatusDone)
	q.add("y", q.inMilli(time.Hour)-0.5)
	o = q.change(dueq.OpCancel, dueq.Target{Member: "y", Due: q.Now().Add(time.Hour)})[0]
	q.status("cancel of a fraction by its rounded due time", o, dueq.StatusDone)
}

func mustBody(q *queue) {
	q.put("x", dueq.In(time.Hour), "body")
	q.put("empty", dueq.In(time.Hour), "")
	q.put("none", dueq.In(time.Hour))
	for m, wrong := range map[string]string{"x": "Body", "empty": "x", "none": "x"} {
		o := q.change(dueq.OpDelete, dueq.Target{Member: m, Body: []byte(wrong)})[0]
		q.status("delete of "+m, o, dueq.StatusChanged)
	}
	q.status("delete of x", q.change(dueq.OpDelete, dueq.Target{Member: "x", Body: []byte{}})[0], dueq.StatusChanged)
	q.length("tasks left", len(q.dump().Scheduled), 3)
	q.status("cancel", q.change(dueq.OpCancel, dueq.Target{Member: "x", Body: []byte("body")})[0], dueq.StatusDone)
	q.status("cancel", q.change(dueq.OpCancel, dueq.Target{Member: "empty", Body: []byte{}})[0], dueq.StatusDone)
}

func nothingThere(q *queue) {
	for op := dueq.OpCancel; op <= dueq.OpDelete; op++ {
		for _, target := range []dueq.Target{
			{Member: "x"}, {Member: "x", State: dueq.StateDead}, {Member: "x", Due: q.Now()}, {Member: "x", Body: []byte("b")},
		} {
			o := q.change(op, target)[0]
			q.status(op.String(), o, dueq.StatusNotFound)
			same(q, "due in the outcome is zero", o.Due.IsZero(), true)
		}
	}
	same(q, "left", q.dump().String(), "")
}

func schedulableAgain(q *queue) {
	again := func(how string) {
		q.Helper()
		o := q.schedule(q.item("x", dueq.In(time.Hour), "new"))[0]
		q.status("schedule after "+how, o, dueq.StatusScheduled)
		info := q.get("x")
		same(q, "failures", info.Failures, 0)
		same(q, "last error", info.LastError, "")
		same(q, "body", string(info.Body), "new")
		q.changeOne(dueq.OpDelete, "x")
	}
	die := func() {
		q.put("x", dueq.In(0), "old")
		q.end(q.one(0), dueq.VerdictDead, 0, "e", dueq.StatusDone)
	}
	for op := range map[dueq.Op]bool{dueq.OpCancel: true, dueq.OpStop: true, dueq.OpDelete: true} {
		q.put("x", dueq.In(time.Hour), "old")
		q.status(op.String(), q.changeOne(op, "x"), dueq.StatusDone)
		again(op.String())
	}
	q.put("x", dueq.In(0), "old")
	q.ack(q.one(0))
	again("ack")
	die()
	again("death")
	die()
	q.changeOne(dueq.OpDelete, "x")
	again("deletion of the dead letter")
	q.put("x", dueq.In(0), "old")
	q.one(time.Hour)
	q.changeOne(dueq.OpStop, "x")
	again("stop of a run")
	q.add("x", q.inMilli(time.Hour))
	q.changeOne(dueq.OpCancel, "x")
	again("cancel of a ZADD")
}

func cancelledRun(q *queue) {
	for v := dueq.VerdictAck; v <= dueq.VerdictDead; v++ {
		q.put("x", dueq.In(0), "body")
		q.end(q.one(0), dueq.VerdictRetry, 0, "e", dueq.StatusDone)
		task := q.one(0)
		q.put("x", dueq.In(time.Hour), "later")
		q.status("cancel", q.changeOne(dueq.OpCancel, "x"), dueq.StatusRunning)
		info := q.get("x")
		same(q, "cancelled", info.Cancelled, true)
		same(q, "again", info.Again, false)
		q.status("extend", q.extend(time.Minute, task)[0], dueq.StatusDone)
		q.end(task, v, time.Hour, "e", dueq.StatusSuperseded)
		same(q, "left after "+v.String(), q.dump().String(), "")
	}
	q.put("x", dueq.In(0))
	task := q.one(0)
	q.changeOne(dueq.OpCancel, "x")
	q.put("x", dueq.In(time.Hour))
	same(q, "cancelled after a newer schedule", q.get("x").Cancelled, false)
	q.end(task, dueq.VerdictRetry, 0, "e", dueq.StatusSuperseded)
	same(q, "state", q.get("x").State, dueq.StateScheduled)
}

func stopTakesLease(q *queue) {
	q.put("x", dueq.In(0), "body")
	task := q.one(0)
	q.put("x", dueq.In(0), "later")
	q.none()
	q.status("stop", q.changeOne(dueq.OpStop, "x"), dueq.StatusDone)
	same(q, "left", q.dump().String(), "")
	q.status("extend", q.extend(time.Minute, task)[0], dueq.StatusLeaseLost)
	q.end(task, dueq.VerdictRetry, 0, "e", dueq.StatusLeaseLost)
	same(q, "left", q.dump().String(), "")
	same(q, "stopped in total", q.stats().Totals.Stopped, 1)
	q.none()
}

func rescheduleAtDue(q *queue) {
	due := q.put("x", dueq.In(time.Minute)).Due
	for _, offset := range []time.Duration{-2 * time.Millisecond, -time.Millisecond, 0, time.Millisecond, 2 * time.Millisecond} {
		q.Advance(due.Add(offset).Sub(q.Now()))
		o := q.change(dueq.OpReschedule, dueq.Target{Member: "x", When: dueq.In(5 * time.Second)})[0]
		q.status(fmt.Sprintf("reschedule at due %v", offset), o, dueq.StatusDone)
		q.none()
		due = o.Due
	}
	q.Advance(due.Sub(q.Now()))
	task := q.one(0)
	sameTime(q, "due", task.Due, q.Now())
	o := q.change(dueq.OpReschedule, dueq.Target{Member: "x", When: dueq.In(5 * time.Second)})[0]
	q.status("reschedule after the claim", o, dueq.StatusRunning)
	q.ack(task)
	same(q, "left", q.dump().String(), "")
}

func rescheduleFromNow(q *queue) {
	q.put("x", dueq.In(30*time.Second), "body")
	q.Advance(10*time.Second + 300*time.Microsecond)
	want := q.inMilli(5 * time.Second)
	o := q.change(dueq.OpReschedule, dueq.Target{Member: "x", When: dueq.In(5 * time.Second)})[0]
	same(q, "due in the outcome", score(o.Due), want)
	info := q.get("x")
	same(q, "due", score(info.Due), want)
	same(q, "body", string(info.Body), "body")
}

func requeueWhen(q *queue) {
	for name, row := range map[string]struct {
		when dueq.When
		in   time.Duration
	}{
		"zero": {dueq.When{}, 0}, "delay": {dueq.In(time.Hour), time.Hour}, "instant": {dueq.At(q.Now().Add(time.Minute)), time.Minute},
	} {
		q.put(name, dueq.In(0), "body")
		q.end(q.one(0), dueq.VerdictAgain, 0, "", dueq.StatusDone)
		q.end(q.one(0), dueq.VerdictDead, 0, "e", dueq.StatusDone)
		o := q.change(dueq.OpRequeue, dueq.Target{Member: name, When: row.when})[0]
		q.status("requeue", o, dueq.StatusDone)
		sameTime(q, "due in the outcome", o.Due, q.Now().Add(row.in))
		info := q.get(name)
		sameTime(q, "due", info.Due, o.Due)
		same(q, "round", info.Round, 1)
		same(q, "failures", info.Failures, 0)
		same(q, "last error", info.LastError, "")
		same(q, "body", string(info.Body), "body")
		q.changeOne(dueq.OpDelete, name)
	}
}

func requeueMany(q *queue) {
	items := q.items("t", dueq.MaxItems, dueq.In(0))
	q.schedule(items...)
	var results []dueq.Result
	var targets []dueq.Target
	for _, task := range q.claim(dueq.MaxItems, 0).Tasks {
		results = append(results, dueq.Result{Task: task, Verdict: dueq.VerdictDead, Err: "e"})
		targets = append(targets, dueq.Target{Member: task.Lease.Member, State: dueq.StateDead})
	}
	q.settle(results...)
	q.length("dead letters", len(q.dump().Dead), dueq.MaxItems)
	for _, o := range q.change(dueq.OpRequeue, targets...) {
		q.status("requeue", o, dueq.StatusDone)
	}
	c := q.claim(dueq.MaxItems, 0)
	q.length("tasks", len(c.Tasks), dueq.MaxItems)
	same(q, "attempt", c.Tasks[0].Attempt, 1)
}

func targetsInOrder(q *queue) {
	q.put("x", dueq.In(time.Hour))
	outcomes := q.change(dueq.OpReschedule,
		dueq.Target{Member: "x", When: dueq.In(time.Minute)},
		dueq.Target{Member: "x", When: dueq.In(-1)},
		dueq.Target{Member: "y", When: dueq.In(0)},
		dueq.Target{Member: "x", When: dueq.At(time.UnixMilli(dueq.MaxDueMilli + 1))},
		dueq.Target{Member: "x", When: dueq.In(2 * time.Minute)})
	q.status("first", outcomes[0], dueq.StatusDone)
	q.refused("negative delay", outcomes[1], dueq.ErrInvalid)
	q.status("missing", outcomes[2], dueq.StatusNotFound)
	q.refused("year 10000", outcomes[3], dueq.ErrInvalid)
	q.status("last", outcomes[4], dueq.StatusDone)
	sameTime(q, "due", q.get("x").Due, q.Now().Add(2*time.Minute))
	both := q.change(dueq.OpDelete, dueq.Target{Member: "x"}, dueq.Target{Member: "x"})
	q.status("delete", both[0], dueq.StatusDone)
	q.status("delete again", both[1], dueq.StatusNotFound)
}

func unknownOp(q *queue) {
	q.put("x", dueq.In(time.Hour))
	before := q.dump().String()
	_, err := q.Store.Change(q.Context(), q.name, dueq.Op(99), []dueq.Target{{Member: "x"}})
	q.fails("operation 99", err, dueq.ErrInvalid)
	same(q, "after a refused operation", q.dump().String(), before)
}

func changeTotals(q *queue) {
	for _, m := range []string{"a", "b", "c", "d"} {
		q.put(m, dueq.In(time.Hour))
	}
	q.change(dueq.OpCancel, dueq.Target{Member: "a"}, dueq.Target{Member: "b"}, dueq.Target{Member: "nobody"})
	q.change(dueq.OpDelete, dueq.Target{Member: "c"}, dueq.Target{Member: "c"})
	q.put("e", dueq.In(0))
	q.end(q.one(0), dueq.VerdictDead, 0, "e", dueq.StatusDone)
	q.change(dueq.OpRequeue, dueq.Target{Member: "e"}, dueq.Target{Member: "d"})
	q.one(0)
	q.changeOne(dueq.OpStop, "e")
	want := dueq.Totals{Scheduled: 5, Claimed: 2, Died: 1, Stopped: 1, Requeued: 1, Cancelled: 2, Deleted: 1}
	same(q, "totals", q.stats().Totals, want)
}
