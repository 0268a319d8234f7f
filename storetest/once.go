package storetest

import (
	"time"

	"github.com/dueq/dueq"
)

func onceTests() []test {
	return []test{
		{"a claimed task is gone from the store", onceGone},
		{"a claim takes a dead letter of the same member along", onceTakesDead},
		{"ack, retry and dead only count", onceOnlyCount},
		{"again carries body and round and schedules", onceAgain},
		{"release carries body and round and keeps the due time", onceRelease},
		{"again and release do nothing if the member is anywhere", onceElsewhere},
		{"a task that runs at least once is not handed out beside itself", onceBeside},
		{"a delivery is settled as it was claimed, whatever the setting is now", onceMode},
		{"leases of before the setting still end", onceReaps},
		{"bad scores and late tasks still die", onceRefuses},
	}
}

func (q *queue) once() {
	q.Helper()
	q.set("delivery", "at_most_once")
}

func onceGone(q *queue) {
	q.once()
	q.put("x", dueq.In(0), "body")
	c := q.claim(10, 0)
	q.length("tasks", len(c.Tasks), 1)
	same(q, "body", string(c.Tasks[0].Body), "body")
	same(q, "attempt", c.Tasks[0].Attempt, 1)
	same(q, "lease end is zero", c.LeaseEnds.IsZero(), true)
	same(q, "wait", c.Wait, -1)
	same(q, "left", q.dump().String(), "")
	same(q, "state", q.get("x").State, dueq.StateNone)
	q.claimEverySecond(3 * time.Second)
	q.Advance(time.Hour)
	q.none()
	q.put("x", dueq.In(0))
	same(q, "attempt of a new task", q.one(0).Attempt, 1)
	same(q, "claimed in total", q.stats().Totals.Claimed, 2)
}

func onceTakesDead(q *queue) {
	q.put("x", dueq.In(0), "body")
	q.end(q.one(0), dueq.VerdictDead, 0, "e", dueq.StatusDone)
	q.add("x", q.inMilli(0))
	q.once()
	same(q, "body", string(q.one(0).Body), "body")
	same(q, "left", q.dump().String(), "")
}

func onceOnlyCount(q *queue) {
	q.once()
	for _, v := range []dueq.Verdict{dueq.VerdictAck, dueq.VerdictRetry, dueq.VerdictDead} {
		q.put("x", dueq.In(0), "body")
		o := q.end(q.one(0), v, time.Second, "e", dueq.StatusDone)
		same(q, "due in the outcome is zero", o.Due.IsZero(), true)
		same(q, "left after "+v.String(), q.dump().String(), "")
	}
	totals := q.stats().Totals
	same(q, "acked", totals.Acked, 1)
	same(q, "retried", totals.Retried, 1)
	same(q, "died", totals.Died, 1)
}

func onceAgain(q *queue) {
	q.once()
	q.put("x", dueq.In(0), "body")
	for round := range 4 {
		task := q.one(0)
		same(q, "round", task.Round, round)
		same(q, "attempt", task.Attempt, 1)
		same(q, "body", string(task.Body), "body")
		o := q.end(task, dueq.VerdictAgain, 5*time.Second, "", dueq.StatusDone)
		sameTime(q, "due in the outcome", o.Due, q.Now().Add(5*time.Second))
		s := q.dump()
		same(q, "due", s.Scheduled["x"], q.inMilli(5*time.Second))
		same(q, "body that lies there", s.Body["x"], "body")
		q.Advance(5 * time.Second)
	}
	q.put("y", dueq.In(time.Hour))
	q.end(q.one(0), dueq.VerdictAck, 0, "", dueq.StatusDone)
}

func onceRelease(q *queue) {
	q.put("x", dueq.In(0), "body")
	q.end(q.one(0), dueq.VerdictAgain, 0, "", dueq.StatusDone)
	q.once()
	task := q.one(0)
	q.Advance(time.Minute)
	q.end(task, dueq.VerdictRelease, 0, "", dueq.StatusDone)
	task = q.one(0)
	same(q, "round", task.Round, 1)
	same(q, "attempt", task.Attempt, 1)
	same(q, "age", task.Age, time.Minute)
	same(q, "body", string(task.Body), "body")
	o := q.end(task, dueq.VerdictRelease, 3*time.Second, "", dueq.StatusDone)
	sameTime(q, "due after a release with a delay", o.Due, q.Now().Add(3*time.Second))
}

func onceElsewhere(q *queue) {
	for _, v := range []dueq.Verdict{dueq.VerdictAgain, dueq.VerdictRelease} {
		for _, place := range []string{"S", "A", "A+S", "D"} {
			q.once()
			m := v.String() + ":" + place
			q.put(m, dueq.In(0), "old")
			task := q.one(0)
			q.put(m, dueq.In(0), "new")
			q.set("delivery", "at_least_once")
			if place != "S" {
				other := q.one(time.Hour)
				if place == "D" {
					q.end(other, dueq.VerdictDead, 0, "e", dueq.StatusDone)
				}
			}
			if place == "A+S" {
				q.put(m, dueq.In(time.Hour), "newer")
			}
			before := q.dump().String()
			q.end(task, v, 0, "", dueq.StatusSuperseded)
			same(q, v.String()+" beside "+place, q.dump().String(), before)
			q.changeOne(dueq.OpStop, m)
			q.changeOne(dueq.OpDelete, m)
		}
	}
}

func onceBeside(q *queue) {
	q.put("x", dueq.In(0))
	task := q.one(time.Hour)
	q.put("x", dueq.In(0), "next")
	q.once()
	q.none()
	same(q, "places", placesOf(q.dump(), "x"), "A+N")
	q.end(task, dueq.VerdictRetry, time.Hour, "", dueq.StatusSuperseded)
	same(q, "body", string(q.one(0).Body), "next")
}

func onceMode(q *queue) {
	q.put("least", dueq.In(0))
	least := q.one(time.Hour)
	q.once()
	q.put("most", dueq.In(0))
	most := q.one(0)
	q.end(least, dueq.VerdictRetry, time.Hour, "e", dueq.StatusDone)
	same(q, "state of the leased one", q.get("least").State, dueq.StateScheduled)
	q.end(least, dueq.VerdictAck, 0, "", dueq.StatusLeaseLost)
	q.set("delivery", "at_least_once")
	q.end(most, dueq.VerdictAck, 0, "", dueq.StatusDone)
	same(q, "acked in total", q.stats().Totals.Acked, 1)
	same(q, "retried in total", q.stats().Totals.Retried, 1)
}

func onceReaps(q *queue) {
	q.watched()
	q.put("x", dueq.In(0), "body")
	q.one(2 * time.Second)
	q.once()
	q.claimEverySecond(time.Second)
	q.Advance(time.Second)
	task := q.one(0)
	same(q, "attempt", task.Attempt, 2)
	same(q, "left", q.dump().String(), "")
}

func onceRefuses(q *queue) {
	q.once()
	q.set("max_late", "1s")
	q.put("late", dueq.In(0))
	q.add("bad", 1)
	q.add("bad member", q.inMilli(2*time.Second))
	q.Advance(2 * time.Second)
	q.none()
	q.length("dead letters", len(q.dump().Dead), 3)
	same(q, "refused in total", q.stats().Totals.Refused, 3)
}
