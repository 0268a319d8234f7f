package storetest

import (
	"fmt"
	"time"

	"github.com/dueq/dueq"
)

func leaseTests() []test {
	return []test{
		{"a lease ends when its second begins", leaseSeconds},
		{"a task is not claimed twice within its lease", withinLease},
		{"extend moves the end and keeps the delivery", extendMoves},
		{"a lease past its end is extended until somebody takes it back", extendPastEnd},
		{"an extension out of bounds is refused", extendBounds},
		{"the old holder can do nothing to the new holder's lease", oldHolder},
		{"a lease that ended can still be settled until somebody takes it back", settlePastEnd},
		{"the ack of an earlier delivery does not end the next one", staleAck},
		{"acks end the tasks that they name, not as many", acksByName},
		{"deliveries have different tokens", distinctTokens},
		{"a lease that ended is a failure, at once due the first time", endedIsFailure},
		{"a task whose lease ends every time ends among the dead", endsDead},
		{"one bad lease among many fails alone", extendBatch},
		{"a delay longer than the lease is one delivery at its time", delayBeyondLease},
	}
}

func leaseSeconds(q *queue) {
	for _, row := range []struct{ offset, lease, end time.Duration }{
		{0, time.Second, time.Second},
		{0, 1500 * time.Millisecond, 2 * time.Second},
		{time.Millisecond, time.Second, 2 * time.Second},
		{999 * time.Millisecond, time.Second, 2 * time.Second},
		{999 * time.Millisecond, 2 * time.Second, 3 * time.Second},
		{time.Second - time.Microsecond, time.Second, 2 * time.Second},
		{time.Microsecond, 3 * time.Second, 4 * time.Second},
	} {
		what := fmt.Sprintf("lease of %v taken at .%06d", row.lease, row.offset.Microseconds())
		q.watched()
		q.put("x", dueq.In(0))
		second := q.Now().Add(time.Second)
		q.Advance(time.Second + row.offset)
		c := q.claim(1, row.lease)
		q.length("tasks", len(c.Tasks), 1)
		sameTime(q, what, c.LeaseEnds, second.Add(row.end))
		for passed := time.Second; passed < row.end; passed += time.Second {
			q.Advance(second.Add(passed).Sub(q.Now()))
			q.none()
		}
		q.Advance(second.Add(row.end - time.Microsecond).Sub(q.Now()))
		q.none()
		q.Advance(time.Microsecond)
		q.ack(q.one(0))
	}
}

func withinLease(q *queue) {
	q.watched()
	q.schedule(q.items("t", 50, dueq.In(0))...)
	c := q.claim(100, 10*time.Second)
	q.length("tasks", len(c.Tasks), 50)
	q.claimEverySecond(9 * time.Second)
	q.Advance(999 * time.Millisecond)
	q.none()
	q.Advance(time.Millisecond)
	q.length("tasks after the lease", len(q.claim(100, 0).Tasks), 50)
}

func extendMoves(q *queue) {
	q.watched()
	q.put("x", dueq.In(0), "body")
	task := q.one(10 * time.Second)
	number := q.dump().Active["x"] % 1e6
	for _, row := range []struct{ after, by, end time.Duration }{
		{0, time.Minute, time.Minute},
		{time.Second, 30 * time.Second, 30 * time.Second},
		{500 * time.Millisecond, 20 * time.Second, 20500 * time.Millisecond},
		{500 * time.Millisecond, 1500 * time.Millisecond, 2 * time.Second},
	} {
		q.Advance(row.after)
		q.none()
		o := q.extend(row.by, task)[0]
		q.status("extend", o, dueq.StatusDone)
		sameTime(q, fmt.Sprintf("end after extending by %v", row.by), o.Due, q.Now().Add(row.end))
		lease := q.dump().Active["x"]
		same(q, "end that lies there", lease/1e6, o.Due.Unix())
		same(q, "delivery number", lease%1e6, number)
		sameTime(q, "end looked up", q.get("x").LeaseEnds, o.Due)
	}
	q.Advance(time.Second)
	q.none()
	q.Advance(time.Second)
	same(q, "attempt after the shortened lease", q.one(0).Attempt, 2)
}

func extendPastEnd(q *queue) {
	q.watched()
	q.put("x", dueq.In(0))
	task := q.one(2 * time.Second)
	q.Advance(time.Hour)
	q.status("extend past the end", q.extend(5*time.Second, task)[0], dueq.StatusDone)
	q.claimEverySecond(4 * time.Second)
	q.ack(task)
	same(q, "left", q.dump().String(), "")
}

func extendBounds(q *queue) {
	q.align(0)
	q.set("lease_max", "60s")
	q.put("x", dueq.In(0))
	task := q.one(0)
	before := q.dump().String()
	for _, d := range []time.Duration{0, -time.Second, 999 * time.Millisecond, 61 * time.Second, 1 << 62} {
		_, err := q.Store.Extend(q.Context(), q.name, []dueq.Lease{task.Lease}, d)
		q.fails(fmt.Sprintf("extend by %v", d), err, dueq.ErrInvalid)
	}
	same(q, "after refused extensions", q.dump().String(), before)
	for _, d := range []time.Duration{time.Second, time.Minute} {
		sameTime(q, "end", q.extend(d, task)[0].Due, q.Now().Add(d))
	}
}

// oldHolder does what a worker might that lost its lease.
func oldHolder(q *queue) {
	q.watched()
	q.put("x", dueq.In(0), "body")
	a := q.one(2 * time.Second)
	q.claimEverySecond(time.Second)
	q.Advance(time.Second)
	b := q.one(30 * time.Second)
	same(q, "attempt of the new holder", b.Attempt, 2)
	before := q.dump().String()
	for v := dueq.VerdictAck; v <= dueq.VerdictDead; v++ {
		q.end(a, v, time.Second, "late", dueq.StatusLeaseLost)
	}
	q.status("extend", q.extend(time.Minute, a)[0], dueq.StatusLeaseLost)
	same(q, "after all that the old holder tried", q.dump().String(), before)
	q.ack(b)
	for v := dueq.VerdictAck; v <= dueq.VerdictDead; v++ {
		q.end(b, v, 0, "", dueq.StatusLeaseLost)
	}
	same(q, "left", q.dump().String(), "")
}

func settlePastEnd(q *queue) {
	q.watched()
	for v := dueq.VerdictAck; v <= dueq.VerdictDead; v++ {
		q.put("x:"+v.String(), dueq.In(0))
		task := q.one(time.Second)
		q.Advance(time.Minute)
		q.end(task, v, time.Hour, "e", dueq.StatusDone)
	}
	same(q, "ended in total", q.stats().Totals.Ended, 0)
}

// staleAck has nothing beside the run: a store may have a short way for that.
func staleAck(q *queue) {
	q.put("x", dueq.In(0))
	a := q.one(time.Hour)
	q.end(a, dueq.VerdictRelease, 0, "", dueq.StatusDone)
	b := q.one(time.Hour)
	before := q.dump().String()
	q.end(a, dueq.VerdictAck, 0, "", dueq.StatusLeaseLost)
	same(q, "after the stale ack", q.dump().String(), before)
	for i, o := range q.settle(dueq.Result{Task: a}, dueq.Result{Task: b}, dueq.Result{Task: b}) {
		q.status(fmt.Sprint("ack ", i), o, []dueq.Status{dueq.StatusLeaseLost, dueq.StatusDone, dueq.StatusLeaseLost}[i])
	}
	same(q, "acked in total", q.stats().Totals.Acked, 1)
}

func acksByName(q *queue) {
	q.schedule(q.items("due", 3, dueq.In(0))...)
	q.schedule(q.items("later", 3, dueq.In(time.Hour))...)
	claimed := q.claim(3, time.Minute).Tasks
	forged := make([]dueq.Result, len(claimed))
	for i, t := range claimed {
		other := *t
		other.Lease.Member = fmt.Sprintf("later%05d", i)
		forged[i] = dueq.Result{Task: &other}
	}
	before := q.dump().String()
	for i, o := range q.settle(forged...) {
		q.status(fmt.Sprint("ack of a task that was not claimed ", i), o, dueq.StatusLeaseLost)
	}
	same(q, "after acks of other tasks", q.dump().String(), before)
	mixed := []dueq.Result{{Task: claimed[2]}, forged[0], {Task: claimed[0]}, {Task: claimed[1]}}
	for i, o := range q.settle(mixed...) {
		want := dueq.StatusDone
		if i == 1 {
			want = dueq.StatusLeaseLost
		}
		q.status(fmt.Sprint("ack ", i), o, want)
	}
	same(q, "active after the acks", q.stats().Active, 0)
	same(q, "scheduled after the acks", q.stats().Scheduled, 3)
}

func distinctTokens(q *queue) {
	q.align(0)
	tokens := map[dueq.Token]bool{}
	q.put("x", dueq.In(0))
	for range 300 {
		task := q.one(0)
		if tokens[task.Lease.Token] {
			q.Fatalf("token %d was given twice", task.Lease.Token)
		}
		tokens[task.Lease.Token] = true
		q.end(task, dueq.VerdictRelease, 0, "", dueq.StatusDone)
		q.end(task, dueq.VerdictAck, 0, "", dueq.StatusLeaseLost)
	}
}

func endedIsFailure(q *queue) {
	q.set("retry_jitter", "0%", "retry_first", "7s", "retry_factor", "3")
	q.watched()
	q.put("x", dueq.In(0))
	q.one(time.Second)
	for i, delay := range []time.Duration{0, 21 * time.Second, 63 * time.Second} {
		q.set("paused", "on")
		q.Advance(time.Second)
		q.none()
		info := q.get("x")
		same(q, "state", info.State, dueq.StateScheduled)
		same(q, "failures", info.Failures, i+1)
		sameTime(q, fmt.Sprintf("due after %d ended leases", i+1), info.Due, q.Now().Add(delay))
		if info.LastError == "" {
			q.Error("no reason is kept")
		}
		q.set("paused", "off")
		if delay > 0 {
			q.claimEverySecond(delay - time.Second)
			q.Advance(time.Second)
		}
		same(q, "attempt", q.one(time.Second).Attempt, i+2)
	}
	totals := q.stats().Totals
	same(q, "ended in total", totals.Ended, 3)
	same(q, "retried in total", totals.Retried, 0)
}

func endsDead(q *queue) {
	q.set("retries", "2", "retry_first", "1s", "retry_cap", "4s")
	q.watched()
	q.put("x", dueq.In(0), "body")
	runs := 0
	for range 60 {
		c := q.claim(10, time.Second)
		if runs += len(c.Tasks); len(c.Tasks) == 1 {
			same(q, "attempt", c.Tasks[0].Attempt, runs)
		}
		q.Advance(time.Second)
	}
	same(q, "runs", runs, 3)
	info := q.get("x")
	same(q, "state", info.State, dueq.StateDead)
	same(q, "failures", info.Failures, 3)
	same(q, "body", string(info.Body), "body")
	if info.LastError == "" {
		q.Error("no reason is kept")
	}
	totals := q.stats().Totals
	same(q, "ended in total", totals.Ended, 3)
	same(q, "died in total", totals.Died, 0)
}

func extendBatch(q *queue) {
	q.align(0)
	q.schedule(q.items("t", 200, dueq.In(0))...)
	tasks := q.claim(200, 0).Tasks
	q.length("tasks", len(tasks), 200)
	q.ack(tasks[100])
	stranger := *tasks[0]
	stranger.Lease.Member = "nobody"
	for i, o := range q.extend(time.Minute, append(tasks, &stranger)...) {
		want := dueq.StatusDone
		if i == 100 || i == 200 {
			want = dueq.StatusLeaseLost
		}
		q.status(fmt.Sprint("lease ", i), o, want)
		if want == dueq.StatusLeaseLost && !o.Due.IsZero() {
			q.Errorf("a lost lease has end %v", o.Due)
		}
	}
}

func delayBeyondLease(q *queue) {
	q.watched()
	q.set("lease", "2s")
	q.put("x", dueq.In(15*time.Second))
	for range 14 {
		q.claimEverySecond(time.Second)
		q.length("active before due", len(q.dump().Active), 0)
	}
	q.Advance(time.Second)
	same(q, "attempt", q.one(0).Attempt, 1)
}
