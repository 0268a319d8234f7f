package storetest

import (
	"time"

	"github.com/dueq/dueq"
)

func graceTests() []test {
	return []test{
		{"with claims every second a lease is taken back at its end", noGrace},
		{"a gap of two seconds is none", gapOfTwo},
		{"after a gap leases are held back for five seconds", gapHoldsBack},
		{"a lease that ended before the old grace is taken back at once", oldGrace},
		{"the first claim of all starts a grace", firstClaim},
		{"another gap starts another grace", gapAgain},
		{"a grace further ahead than five seconds counts as five", graceCapped},
		{"a step of the clock by an hour ends no lease that is renewed", stepForward},
		{"a step back by an hour keeps a lease and its holder", stepBack},
		{"half a second to and fro ends no lease", smallSteps},
		{"a paused queue that is claimed from has no gap", pausedNoGap},
	}
}

// held leases one task for d.
func (q *queue) held(d time.Duration) *dueq.Task {
	q.Helper()
	q.put("x", dueq.In(0))
	return q.one(d)
}

// back expects the task to come back now, after a failed attempt.
func (q *queue) back() {
	q.Helper()
	same(q, "attempt of the task that came back", q.one(0).Attempt, 2)
}

func noGrace(q *queue) {
	q.watched()
	q.held(3 * time.Second)
	q.claimEverySecond(2 * time.Second)
	q.Advance(999 * time.Millisecond)
	same(q, "wait", q.none().Wait, time.Millisecond)
	q.Advance(time.Millisecond)
	q.back()
}

func gapOfTwo(q *queue) {
	q.watched()
	q.held(3 * time.Second)
	q.Advance(2 * time.Second)
	q.none()
	q.Advance(2 * time.Second)
	q.back()
}

func gapHoldsBack(q *queue) {
	for _, gap := range []time.Duration{10 * time.Second, 2001 * time.Millisecond, 24 * time.Hour} {
		q.watched()
		task := q.held(2 * time.Second)
		q.Advance(gap)
		same(q, "wait at the grace's beginning", q.none().Wait, 5*time.Second)
		for range 2 {
			q.Advance(2 * time.Second)
			q.none()
		}
		same(q, "wait within the grace", q.none().Wait, time.Second)
		q.Advance(999 * time.Millisecond)
		same(q, "wait at the grace's end", q.none().Wait, time.Millisecond)
		q.status("settle by the holder", q.extend(time.Second, task)[0], dueq.StatusDone)
		q.Advance(2 * time.Second)
		q.back()
		q.changeOne(dueq.OpStop, "x")
	}
}

func oldGrace(q *queue) {
	q.align(0)
	q.none() // grace until second 5
	q.put("a", dueq.In(0))
	q.length("tasks", len(q.claim(1, 3*time.Second).Tasks), 1)
	q.put("b", dueq.In(0))
	q.length("tasks", len(q.claim(1, 5*time.Second).Tasks), 1)
	q.put("c", dueq.In(0))
	q.length("tasks", len(q.claim(1, 6*time.Second).Tasks), 1)
	q.Advance(100 * time.Second)
	c := q.claim(10, time.Hour)
	sameList(q, "claimed after the gap", membersOf(c), []string{"a", "b"})
	same(q, "wait", c.Wait, 5*time.Second)
	for range 2 {
		q.Advance(2 * time.Second)
		q.none()
	}
	q.Advance(time.Second)
	same(q, "claimed after the grace", q.one(0).ID, "c")
}

func firstClaim(q *queue) {
	q.align(0)
	q.put("x", dueq.In(0))
	same(q, "wait", q.claim(1, time.Second).Wait, 5*time.Second)
	q.claimEverySecond(4 * time.Second)
	q.Advance(time.Second)
	q.back()
}

func gapAgain(q *queue) {
	q.watched()
	q.held(6 * time.Second)
	q.Advance(100 * time.Second)
	q.none() // grace until second 105
	q.Advance(3 * time.Second)
	q.back() // its end is before that grace
	q.changeOne(dueq.OpStop, "x")

	q.watched()
	task := q.held(6 * time.Second)
	q.Advance(10 * time.Second)
	q.none() // grace until second 15
	q.status("renewal", q.extend(7*time.Second, task)[0], dueq.StatusDone)
	q.Advance(8 * time.Second)
	same(q, "wait for a lease that ended after the grace", q.none().Wait, 5*time.Second)
	q.claimEverySecond(4 * time.Second)
	q.Advance(time.Second)
	q.back()
}

func graceCapped(q *queue) {
	q.watched()
	q.Advance(time.Minute)
	q.none() // a gap: grace until five seconds from here
	q.Advance(-time.Hour)
	q.put("x", dueq.In(0))
	q.length("tasks", len(q.claim(1, 2*time.Second).Tasks), 1)
	for seconds := 1; seconds <= 6; seconds++ {
		q.Advance(time.Second)
		if c := q.claim(1, time.Hour); len(c.Tasks) == 1 {
			same(q, "seconds until the lease was taken back", seconds, 5)
			return
		}
	}
	q.Errorf("the lease is held back by a grace from before the step: %v", q.dump())
}

func stepForward(q *queue) {
	for _, renew := range []time.Duration{0, time.Second, 4 * time.Second} {
		q.watched()
		task := q.held(10 * time.Second)
		q.claimEverySecond(3 * time.Second)
		q.Advance(time.Hour)
		q.none()
		q.claimEverySecond(renew)
		q.status("renewal after the step", q.extend(30*time.Second, task)[0], dueq.StatusDone)
		q.claimEverySecond(20 * time.Second)
		q.ack(task)
	}
}

func stepBack(q *queue) {
	q.watched()
	task := q.held(10 * time.Second)
	q.Advance(-time.Hour)
	q.none()
	q.claimEverySecond(20 * time.Second)
	o := q.extend(10*time.Second, task)[0]
	q.status("renewal after the step", o, dueq.StatusDone)
	sameTime(q, "end of the renewed lease", o.Due, q.Now().Add(10*time.Second))
	q.claimEverySecond(9 * time.Second)
	q.ack(task)
}

func smallSteps(q *queue) {
	q.watched()
	task := q.held(3 * time.Second)
	for i := range 20 {
		q.Advance(time.Second)
		q.none()
		q.Advance([]time.Duration{500 * time.Millisecond, -500 * time.Millisecond}[i%2])
		q.none()
		q.status("renewal", q.extend(3*time.Second, task)[0], dueq.StatusDone)
	}
	q.ack(task)
}

func pausedNoGap(q *queue) {
	q.watched()
	q.held(3 * time.Second)
	q.set("paused", "on")
	q.claimEverySecond(2 * time.Second)
	q.Advance(time.Second)
	q.none()
	same(q, "state at the lease's end", q.get("x").State, dueq.StateScheduled)
}
