package storetest

import (
	"math"
	"slices"
	"time"

	"github.com/dueq/dueq"
)

func scoreTests() []test {
	return []test{
		{"a bad score is set aside as dead with a reason and never run", badScores},
		{"scores at the bounds are good", boundScores},
		{"a score beyond the year 9999 is met when the claim is not full", tailScores},
		{"a bad score of a task with a body keeps the body until it is requeued", badScoreBody},
		{"a bad score of a running task is parked and dies after the run", badScoreRunning},
		{"bad entries count towards max", badCountTowardsMax},
		{"a thousand bad entries do not keep a good one for ever", manyBad},
	}
}

func badScores(q *queue) {
	q.align(0)
	bad := map[string]float64{
		"zero": 0, "negative": -1, "very:negative": -1e300, "minus:inf": math.Inf(-1), "one": 1, "tiny": 5e-324,
		"seconds": float64(q.Now().Unix()), "before:1973": dueq.MinDueMilli - 1, "fraction": dueq.MinDueMilli - 1.5,
		"after:9999": dueq.MaxDueMilli + 1, "after:9999:half": dueq.MaxDueMilli + 0.5, "micro": score(q.Now()) * 1000,
		"nano": score(q.Now()) * 1e6, "big": math.MaxFloat64, "inf": math.Inf(1), "2^53": 1 << 53, "2^63": 1 << 63,
	}
	for m, s := range bad {
		q.add(m, s)
	}
	q.put("good", dueq.In(0))
	same(q, "the only one claimed", q.one(time.Hour).ID, "good")
	for m := range bad {
		info := q.get(m)
		if info.State != dueq.StateDead || info.LastError == "" {
			q.Errorf("%s: got %v with error %q, want dead with a reason", m, info.State, info.LastError)
		}
		sameTime(q, "death of "+m, info.DiedAt, q.Now())
	}
	totals := q.stats().Totals
	same(q, "refused in total", totals.Refused, int64(len(bad)))
	same(q, "died in total", totals.Died, 0)
	same(q, "claimed in total", totals.Claimed, 1)
}

func boundScores(q *queue) {
	q.align(0)
	q.add("a:first", dueq.MinDueMilli)
	q.add("b:rounded", dueq.MinDueMilli-0.5)
	q.add("c:second", dueq.MinDueMilli+0.5)
	q.add("last", dueq.MaxDueMilli)
	q.add("rounded:last", dueq.MaxDueMilli-0.5)
	c := q.claim(10, 0)
	members := membersOf(c)
	slices.Sort(members)
	sameList(q, "claimed", members, []string{"a:first", "b:rounded", "c:second"})
	for _, task := range c.Tasks {
		want := time.UnixMilli(dueq.MinDueMilli)
		if task.ID == "c" {
			want = want.Add(time.Millisecond)
		}
		sameTime(q, "due of "+task.Lease.Member, task.Due, want)
	}
	for _, m := range []string{"last", "rounded:last"} {
		info := q.get(m)
		same(q, "state of "+m, info.State, dueq.StateScheduled)
		sameTime(q, "due of "+m, info.Due, time.UnixMilli(dueq.MaxDueMilli))
	}
}

func tailScores(q *queue) {
	q.align(0)
	for _, m := range []string{"a", "b", "c"} {
		q.put(m, dueq.In(0))
	}
	for _, m := range []string{"x", "y", "z"} {
		q.add(m, 1e15)
	}
	q.add("inf", math.Inf(1))
	q.length("tasks of a full claim", len(q.claim(3, time.Hour).Tasks), 3)
	q.length("dead after a full claim", len(q.dump().Dead), 0)
	q.claim(3, time.Hour)
	s := q.dump()
	q.length("dead after a claim of three that found nothing", len(s.Dead), 3)
	same(q, "the topmost", placesOf(s, "inf"), "D")
	q.put("d", dueq.In(0))
	q.add("w", 1e15)
	q.length("tasks", len(q.claim(2, time.Hour).Tasks), 1)
	q.length("dead after one more of two", len(q.dump().Dead), 4)
	q.none()
	q.length("dead after all", len(q.dump().Dead), 5)
	same(q, "wait when all are gone", q.none().Wait, time.Hour)
}

func badScoreBody(q *queue) {
	q.align(0)
	q.put("x", dueq.In(time.Hour), "body")
	q.add("x", float64(q.Now().Unix()))
	q.none()
	s := q.dump()
	same(q, "places", placesOf(s, "x"), "D")
	same(q, "body", s.Body["x"], "body")
	q.status("requeue", q.changeOne(dueq.OpRequeue, "x"), dueq.StatusDone)
	task := q.one(0)
	same(q, "body", string(task.Body), "body")
	same(q, "attempt", task.Attempt, 1)
}

func badScoreRunning(q *queue) {
	q.align(0)
	for _, bad := range []float64{-1, 5, math.Inf(1)} {
		q.put("x", dueq.In(0))
		task := q.one(time.Hour)
		q.add("x", bad)
		q.none()
		same(q, "places while it runs", placesOf(q.dump(), "x"), "A+N")
		same(q, "again", q.get("x").Again, true)
		q.end(task, dueq.VerdictAck, 0, "", dueq.StatusSuperseded)
		q.none()
		same(q, "places after the run", placesOf(q.dump(), "x"), "D")
	}
}

func badCountTowardsMax(q *queue) {
	q.align(0)
	for _, m := range []string{"p", "q", "r"} {
		q.add(m, -1)
	}
	q.put("good", dueq.In(0))
	q.length("tasks", len(q.claim(2, 0).Tasks), 0)
	q.length("dead", len(q.dump().Dead), 2)
	c := q.claim(2, time.Hour)
	sameList(q, "claimed next", membersOf(c), []string{"good"})
	q.length("dead", len(q.dump().Dead), 3)
}

func manyBad(q *queue) {
	q.align(0)
	for _, item := range q.items("bad", 1000, dueq.In(0)) {
		q.add(item.Task.Member(), 1)
	}
	q.put("good", dueq.In(0))
	c := q.claim(dueq.MaxItems, 0)
	q.length("tasks", len(c.Tasks), 0)
	same(q, "wait with a good one due", c.Wait, 0)
	same(q, "claimed next", q.one(0).ID, "good")
	same(q, "refused in total", q.stats().Totals.Refused, 1000)
}
