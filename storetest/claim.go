package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dueq/dueq"
)

func claimTests() []test {
	return []test{
		{"earlier due comes first, equal due by member text", claimOrder},
		{"a claim takes at most max, and the rest next", claimMax},
		{"nothing is claimed before it is due", neverEarly},
		{"a fraction of a millisecond rounds up", fractionsRoundUp},
		{"a claimed task says what it is", claimedTask},
		{"the wait is until the next due time", waitForDue},
		{"the wait is until the next lease end", waitForLease},
		{"a late member of a steady flow is not delayed beyond its turn", fairness},
		{"bodies of one claim are at most 1 MiB, and at least one is taken", bodyBudget},
		{"a task later than max_late is dead instead of run", maxLate},
		{"a paused queue hands out nothing and keeps its house", paused},
		{"a lease is the setting or what is asked for, within bounds", leaseBounds},
		{"a task that runs is parked, not run beside itself", neverBeside},
		{"what is parked stays there while the run goes on, whatever a claim may take", staysParked},
		{"a claim of a dead letter that was ZADDed drops the dead letter", claimDead},
		{"dead letters past dead_keep go, a hundred a claim", deadKeep},
		{"a dead letter beside a schedule is trimmed without its body", trimBeside},
	}
}

func claimOrder(q *queue) {
	q.align(0)
	base := q.Now()
	for i, m := range []string{"z", "a", "m", "10", "9", "A", "é", "a:k", "aa", "\U0001f600"} {
		q.put(m, dueq.At(base), fmt.Sprint(i))
	}
	q.put("0:first", dueq.At(base.Add(time.Millisecond)))
	q.put("zz:early", dueq.At(base.Add(-time.Millisecond)))
	q.Advance(time.Second)
	want := []string{"zz:early", "10", "9", "A", "a", "a:k", "aa", "m", "z", "é", "\U0001f600", "0:first"}
	sameList(q, "claimed", membersOf(q.claim(100, 0)), want)
}

func claimMax(q *queue) {
	items := q.items("t", 25, dueq.In(0))
	q.schedule(items...)
	q.Advance(time.Millisecond)
	var got []string
	for _, want := range []int{10, 10, 5, 0} {
		c := q.claim(10, time.Minute)
		q.length("tasks", len(c.Tasks), want)
		got = append(got, membersOf(c)...)
	}
	for i, m := range got {
		same(q, fmt.Sprint("task ", i), m, items[i].Task.Member())
	}
}

func neverEarly(q *queue) {
	for _, offset := range []time.Duration{0, 999 * time.Microsecond, 500 * time.Millisecond} {
		q.align(offset)
		o := q.put("x", dueq.In(15*time.Second))
		q.Advance(o.Due.Sub(q.Now()) - time.Millisecond)
		same(q, "wait 1 ms before due", q.none().Wait, time.Millisecond)
		q.Advance(999 * time.Microsecond)
		if wait := q.none().Wait; wait <= 0 || wait > time.Millisecond {
			q.Errorf("wait 1 µs before due is %v", wait)
		}
		same(q, "state before due", q.get("x").State, dueq.StateScheduled)
		q.Advance(time.Microsecond)
		task := q.one(0)
		sameTime(q, "due", task.Due, q.Now())
		q.ack(task)
	}
}

func fractionsRoundUp(q *queue) {
	for _, fraction := range []float64{0.25, 0.5, 0.9375, 0.03125} {
		q.align(0)
		q.add("x", score(q.Now())+10+fraction)
		sameTime(q, "due looked up", q.get("x").Due, q.Now().Add(11*time.Millisecond))
		q.Advance(10 * time.Millisecond)
		same(q, "wait at the millisecond before", q.none().Wait, time.Millisecond)
		q.Advance(time.Millisecond)
		task := q.one(0)
		sameTime(q, "due", task.Due, q.Now())
		same(q, "age", task.Age, 0)
		q.ack(task)
	}
}

func claimedTask(q *queue) {
	q.align(300 * time.Millisecond)
	o := q.put("order:1:close#trace", dueq.In(time.Second), "body")
	q.Advance(1250 * time.Millisecond)
	c := q.claim(1, 90*time.Second)
	q.length("tasks", len(c.Tasks), 1)
	task := c.Tasks[0]
	same(q, "id", task.ID, "order:1")
	same(q, "kind", task.Kind, "close")
	same(q, "trace", task.Trace, "trace")
	same(q, "queue", task.Queue, q.name)
	same(q, "body", string(task.Body), "body")
	same(q, "member", task.Lease.Member, "order:1:close#trace")
	sameTime(q, "due", task.Due, o.Due)
	same(q, "age", task.Age, 250*time.Millisecond)
	same(q, "attempt", task.Attempt, 1)
	same(q, "round", task.Round, 0)
	sameTime(q, "now", c.Now, q.Now())
	sameTime(q, "end of the lease", c.LeaseEnds, q.Now().Truncate(time.Second).Add(91*time.Second))
	same(q, "end of the lease that lies there", q.dump().Active[task.Lease.Member]/1e6, c.LeaseEnds.Unix())
	same(q, "paused", c.Paused, false)
}

func waitForDue(q *queue) {
	q.align(0)
	same(q, "wait of an empty queue", q.none().Wait, -1)
	q.put("far", dueq.In(time.Hour))
	q.put("near", dueq.In(1500*time.Millisecond))
	same(q, "wait", q.none().Wait, 1500*time.Millisecond)
	q.Advance(1499 * time.Millisecond)
	same(q, "wait", q.none().Wait, time.Millisecond)
	q.Advance(501 * time.Millisecond)
	q.put("near2", dueq.In(0))
	c := q.claim(1, time.Minute)
	same(q, "wait with one more due", c.Wait, 0)
	c = q.claim(1, time.Minute)
	same(q, "wait for a lease", c.Wait, time.Minute)
	q.Advance(time.Second)
	q.put("again", dueq.In(10*time.Second))
	same(q, "wait for what comes before the lease ends", q.none().Wait, 10*time.Second)
}

func waitForLease(q *queue) {
	q.watched()
	q.put("x", dueq.In(0))
	same(q, "wait for the lease just given", q.claim(1, 2*time.Second).Wait, 2*time.Second)
	q.put("x", dueq.In(0))
	q.Advance(time.Second)
	same(q, "wait with the task parked behind its run", q.none().Wait, time.Second)
	q.put("y", dueq.In(0))
	q.set("paused", "on")
	c := q.none()
	same(q, "wait while paused", c.Wait, time.Second)
	same(q, "paused", c.Paused, true)
	q.Advance(time.Second)
	same(q, "wait while paused, lease taken back", q.none().Wait, -1)
}

func fairness(q *queue) {
	q.align(0)
	const flow = 10
	q.schedule(q.items("a", 2*flow, dueq.In(0))...)
	q.put("zz", dueq.In(0))
	for round := 1; round <= 3; round++ {
		q.Advance(time.Millisecond)
		for i := range flow {
			q.put(fmt.Sprintf("a:%d%d", round, i), dueq.In(0))
		}
		got := slices.Contains(membersOf(q.claim(flow, 0)), "zz")
		same(q, fmt.Sprintf("zz among claim %d", round), got, round == 3)
	}
}

func bodyBudget(q *queue) {
	q.set("body_max", "4194304")
	const size = 60_000
	for i := range 40 {
		q.put(fmt.Sprintf("t%02d", i), dueq.In(0), strings.Repeat("b", size))
	}
	q.put("u:huge", dueq.In(0), strings.Repeat("h", 3<<20))
	q.put("v:small", dueq.In(0), "s")
	q.Advance(time.Millisecond)
	fits := dueq.MaxBytes / size
	for _, want := range []int{fits, fits, 40 - 2*fits, 1, 1, 0} {
		c := q.claim(100, time.Minute)
		q.length("tasks", len(c.Tasks), want)
		for _, task := range c.Tasks {
			if n := len(task.Body); n != size && n != 3<<20 && n != 1 {
				q.Errorf("%s has %d bytes", task.Lease.Member, n)
			}
			q.ack(task)
		}
	}
}

func maxLate(q *queue) {
	q.align(0)
	q.set("max_late", "1s")
	q.put("late:by1000", dueq.In(0))
	q.Advance(time.Second)
	same(q, "late by max_late exactly", q.one(0).ID, "late")
	q.put("late:by1001", dueq.In(0), "body")
	q.put("young", dueq.In(time.Second))
	q.Advance(1001 * time.Millisecond)
	same(q, "the one in time", q.one(0).ID, "young")
	info := q.get("late:by1001")
	same(q, "state of the late one", info.State, dueq.StateDead)
	same(q, "body of the late one", string(info.Body), "body")
	if info.LastError == "" {
		q.Error("no reason is kept")
	}
	same(q, "refused in total", q.stats().Totals.Refused, 1)
	q.set("max_late", "off")
	q.put("late:by2000", dueq.In(0))
	q.Advance(time.Hour)
	q.claim(10, 0)
	same(q, "without max_late", q.get("late:by2000").State, dueq.StateActive)
}

func paused(q *queue) {
	q.watched()
	q.set("dead_keep", "1m")
	q.put("dead", dueq.In(0))
	q.end(q.one(0), dueq.VerdictDead, 0, "e", dueq.StatusDone)
	q.put("leased", dueq.In(0))
	q.one(time.Second)
	q.add("bad", 1)
	q.put("due", dueq.In(0))
	q.set("paused", "on")
	q.Advance(time.Second)
	c := q.none()
	same(q, "paused", c.Paused, true)
	same(q, "the lease that ended", q.get("leased").State, dueq.StateScheduled)
	same(q, "a bad score", q.get("bad").State, dueq.StateScheduled)
	same(q, "paused in the stats", q.stats().Paused, true)
	q.Advance(time.Hour)
	q.none()
	same(q, "old dead letter", q.get("dead").State, dueq.StateNone)
	q.put("more", dueq.In(0)) // scheduling goes on
	q.set("paused", "off")
	c = q.claim(10, 0)
	same(q, "paused", c.Paused, false)
	sameList(q, "claimed after the pause", membersOf(c), []string{"due", "leased", "more"})
}

func leaseBounds(q *queue) {
	q.align(0)
	q.set("lease", "45s", "lease_max", "60s")
	for lease, want := range map[time.Duration]time.Duration{
		0: 45 * time.Second, time.Second: time.Second, 1001 * time.Millisecond: 2 * time.Second, time.Minute: time.Minute,
	} {
		q.put("x", dueq.In(0))
		c := q.claim(1, lease)
		q.length("tasks", len(c.Tasks), 1)
		sameTime(q, fmt.Sprintf("end of a lease of %v", lease), c.LeaseEnds, q.Now().Add(want))
		q.ack(c.Tasks[0])
	}
	q.put("x", dueq.In(0))
	before := q.dump().String()
	for _, req := range []dueq.ClaimRequest{
		{Max: 1, Lease: 999 * time.Millisecond}, {Max: 1, Lease: -time.Second}, {Max: 1, Lease: time.Minute + time.Millisecond},
		{Max: 1, Lease: 25 * time.Hour}, {Max: -1}, {Max: dueq.MaxItems + 1},
	} {
		req.Queue = q.name
		c, err := q.Store.Claim(q.Context(), req)
		q.fails(fmt.Sprintf("claim of %d for %v", req.Max, req.Lease), err, dueq.ErrInvalid)
		q.length("tasks", len(c.Tasks), 0)
	}
	same(q, "after refused claims", q.dump().String(), before)
}

func neverBeside(q *queue) {
	q.align(0)
	q.put("x", dueq.In(0), "first")
	task := q.one(time.Hour)
	for i := range 3 {
		q.put("x", dueq.In(0), fmt.Sprint("more ", i))
		q.add("x", q.inMilli(0))
		q.Advance(time.Second)
		q.none()
		same(q, "places", placesOf(q.dump(), "x"), "A+N")
	}
	info := q.get("x")
	same(q, "state", info.State, dueq.StateActive)
	same(q, "again", info.Again, true)
	q.end(task, dueq.VerdictAck, 0, "", dueq.StatusSuperseded)
	same(q, "body of the next run", string(q.one(0).Body), "more 2")
}

func staysParked(q *queue) {
	q.align(0)
	q.put("x", dueq.In(0))
	task := q.one(time.Hour)
	q.put("x", dueq.In(0))
	q.none()
	for range 2 {
		c := q.claim(0, 0) // of a worker that has no room
		same(q, "places", placesOf(q.dump(), "x"), "A+N")
		same(q, "wait", c.Wait, time.Hour)
	}
	q.set("paused", "on")
	same(q, "wait while paused", q.none().Wait, time.Hour)
	same(q, "places while paused", placesOf(q.dump(), "x"), "A+N")
	q.end(task, dueq.VerdictAck, 0, "", dueq.StatusSuperseded)
}

func claimDead(q *queue) {
	q.put("x", dueq.In(0), "body")
	q.end(q.one(0), dueq.VerdictDead, 0, "e", dueq.StatusDone)
	q.add("x", q.inMilli(0))
	task := q.one(0)
	same(q, "body", string(task.Body), "body")
	same(q, "attempt", task.Attempt, 1)
	same(q, "places", placesOf(q.dump(), "x"), "A")
	same(q, "last error", q.get("x").LastError, "")
	q.ack(task)
}

func deadKeep(q *queue) {
	const n = 250
	q.align(0)
	q.set("dead_keep", "10s")
	items := q.items("t", n, dueq.In(0))
	for i := range items {
		items[i].Task.Body = []byte("body")
	}
	q.schedule(items...)
	var results []dueq.Result
	for _, task := range q.claim(n, 0).Tasks {
		results = append(results, dueq.Result{Task: task, Verdict: dueq.VerdictDead, Err: "e"})
	}
	q.settle(results...)
	q.Advance(10*time.Second - time.Millisecond)
	q.none()
	q.length("dead letters in time", len(q.dump().Dead), n)
	q.Advance(2 * time.Millisecond)
	for _, want := range []int{150, 50, 0, 0} {
		q.none()
		s := q.dump()
		q.length("dead letters", len(s.Dead), want)
		q.length("bodies", len(s.Body), want)
		q.length("errors", len(s.Error), want)
	}
	same(q, "trimmed in total", q.stats().Totals.Trimmed, n)
}

func trimBeside(q *queue) {
	q.align(0)
	q.set("dead_keep", "10s")
	q.put("x", dueq.In(0), "body")
	q.end(q.one(0), dueq.VerdictDead, 0, "e", dueq.StatusDone)
	q.add("x", q.inMilli(time.Minute))
	q.Advance(11 * time.Second)
	q.none()
	s := q.dump()
	same(q, "places", placesOf(s, "x"), "S")
	same(q, "body", s.Body["x"], "body")
	q.length("tries and errors", len(s.Tries)+len(s.Error), 0)
}
