package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/dueq/dueq"
)

func settleTests() []test {
	return []test{
		{"a verdict's delay is kept exactly", exactVerdictDelays},
		{"retries by policy grow by the factor up to the cap", policyGrows},
		{"jitter only adds, and spreads a thousand retries", jitterSpreads},
		{"failures beyond retries make a dead letter with the last error", retriesUsedUp},
		{"no retries at all make the first failure the last", noRetries},
		{"an error is cut to 1 KiB", errorCut},
		{"again starts failures anew and adds a round", againRounds},
		{"release charges nothing and keeps the due time", releaseKeeps},
		{"the ack of a task that is scheduled again says so, with nothing beside it", plainSuperseded},
		{"a delivery is settled once", settledOnce},
		{"a batch of a thousand mixed verdicts is settled one by one", mixedBatch},
		{"one bad lease among good ones fails alone", oneBadLease},
		{"a result needs no more than lease, due, round and body", bareResult},
		{"a bad result is refused alone and changes nothing", badResult},
		{"a retry that was asked to wait waits through a lease of another", retryWaits},
		{"totals count each verdict once", verdictTotals},
	}
}

func exactVerdictDelays(q *queue) {
	verdicts := []dueq.Verdict{dueq.VerdictRetry, dueq.VerdictAgain, dueq.VerdictRelease}
	for i, d := range []time.Duration{1, time.Microsecond, time.Millisecond, 1001 * time.Microsecond, time.Second, 100 * day, 100 * year} {
		for _, offset := range []time.Duration{0, 250*time.Millisecond + 300*time.Microsecond} {
			for _, v := range verdicts {
				q.align(0)
				m := fmt.Sprintf("x%d:%v-%v", i, v, offset)
				q.put(m, dueq.In(0))
				task := q.one(0)
				q.Advance(offset)
				o := q.end(task, v, d, "e", dueq.StatusDone)
				same(q, fmt.Sprintf("due after %v of %v", v, d), q.dump().Scheduled[m], q.inMilli(d))
				same(q, "due in the outcome", score(o.Due), q.inMilli(d))
				q.status("delete", q.changeOne(dueq.OpDelete, m), dueq.StatusDone)
			}
		}
	}
}

func policyGrows(q *queue) {
	q.set("retry_jitter", "0%", "retry_first", "2s", "retry_factor", "1.5", "retry_cap", "9s", "retries", "8")
	q.put("x", dueq.In(0))
	for i, want := range []time.Duration{2000, 3000, 4500, 6750, 9000, 9000, 9000, 9000} {
		task := q.one(0)
		same(q, "attempt", task.Attempt, i+1)
		o := q.end(task, dueq.VerdictRetry, dueq.ByPolicy, "e", dueq.StatusDone)
		sameTime(q, fmt.Sprintf("due after failure %d", i+1), o.Due, q.Now().Add(want*time.Millisecond))
		q.Advance(o.Due.Sub(q.Now()))
	}
	q.end(q.one(0), dueq.VerdictRetry, dueq.ByPolicy, "last", dueq.StatusDone)
	same(q, "state after the ninth failure", q.get("x").State, dueq.StateDead)
}

func jitterSpreads(q *queue) {
	const n = 1000
	for jitter, share := range map[string]float64{"10%": 0.1, "100%": 1, "0%": 0} {
		q.set("retry_jitter", jitter, "retry_first", "100s")
		q.schedule(q.items("t", n, dueq.In(0))...)
		var results []dueq.Result
		var targets []dueq.Target
		for _, task := range q.claim(n, 0).Tasks {
			results = append(results, dueq.Result{Task: task, Verdict: dueq.VerdictRetry, Delay: dueq.ByPolicy, Err: "e"})
			targets = append(targets, dueq.Target{Member: task.Lease.Member})
		}
		q.length("results", len(results), n)
		q.settle(results...)
		first, last := 1e18, 0.0
		for _, due := range q.dump().Scheduled {
			first, last = min(first, due), max(last, due)
		}
		low, high := q.inMilli(100*time.Second), q.inMilli(100*time.Second+time.Duration(share*100)*time.Second)
		if first < low || last > high {
			q.Errorf("jitter %s: due from %.0f to %.0f, want within %.0f and %.0f", jitter, first, last, low, high)
		}
		if spread := last - first; spread < (high-low)/2 {
			q.Errorf("jitter %s: retries of a delay of 100 s are spread over %.0f ms only", jitter, spread)
		}
		q.change(dueq.OpDelete, targets...)
	}
}

func retriesUsedUp(q *queue) {
	q.put("x", dueq.In(0), "body")
	for failures := 1; failures <= 4; failures++ {
		task := q.one(0)
		same(q, "attempt", task.Attempt, failures)
		o := q.end(task, dueq.VerdictRetry, 0, fmt.Sprint("error ", failures), dueq.StatusDone)
		info := q.get("x")
		same(q, "failures", info.Failures, failures)
		same(q, "last error", info.LastError, fmt.Sprint("error ", failures))
		if failures == 4 {
			same(q, "state", info.State, dueq.StateDead)
			sameTime(q, "death", info.DiedAt, q.Now())
			same(q, "due in the outcome", o.Due.IsZero(), true)
			same(q, "body", string(info.Body), "body")
		}
	}
	q.none()
	totals := q.stats().Totals
	same(q, "retried in total", totals.Retried, 3)
	same(q, "died in total", totals.Died, 1)
}

func noRetries(q *queue) {
	q.set("retries", "0")
	q.put("x", dueq.In(0))
	q.end(q.one(0), dueq.VerdictRetry, time.Hour, "e", dueq.StatusDone)
	same(q, "state", q.get("x").State, dueq.StateDead)
	q.watched()
	q.put("y", dueq.In(0))
	q.one(time.Second)
	q.Advance(time.Second)
	q.none()
	same(q, "state after the lease", q.get("y").State, dueq.StateDead)
}

func errorCut(q *queue) {
	for name, text := range map[string]string{
		"ascii": strings.Repeat("abcd", 2000), "exact": strings.Repeat("x", 1024), "over": strings.Repeat("x", 1025),
		"runes": "x" + strings.Repeat("é", 1000), "short": "e", "bytes": "\xff\x00\r\n",
	} {
		for _, v := range []dueq.Verdict{dueq.VerdictRetry, dueq.VerdictDead} {
			q.put(name, dueq.In(0))
			q.end(q.one(0), v, time.Hour, text, dueq.StatusDone)
			got, want := q.dump().Error[name], dueq.CutError(text)
			if q.JSON {
				want = strings.ToValidUTF8(want, "\uFFFD")
			}
			same(q, fmt.Sprintf("error kept of %v with %s", v, name), got, want)
			same(q, "error looked up", q.get(name).LastError, got)
			q.changeOne(dueq.OpDelete, name)
		}
	}
	q.put("none", dueq.In(0))
	q.end(q.one(0), dueq.VerdictRetry, time.Hour, "", dueq.StatusDone)
	same(q, "no error", q.get("none").LastError, "")
}

func againRounds(q *queue) {
	q.put("x", dueq.In(0), "body")
	for round := range 5 {
		for failures := range 3 {
			task := q.one(0)
			same(q, "round", task.Round, round)
			same(q, "attempt", task.Attempt, failures+1)
			q.end(task, dueq.VerdictRetry, 0, "e", dueq.StatusDone)
		}
		task := q.one(0)
		same(q, "attempt", task.Attempt, 4)
		o := q.end(task, dueq.VerdictAgain, 50*time.Millisecond, "ignored", dueq.StatusDone)
		sameTime(q, "due", o.Due, q.Now().Add(50*time.Millisecond))
		info := q.get("x")
		same(q, "failures", info.Failures, 0)
		same(q, "round", info.Round, round+1)
		same(q, "last error", info.LastError, "")
		q.Advance(50 * time.Millisecond)
	}
	q.put("y", dueq.In(time.Hour))
	task := q.one(0)
	q.ack(task)
	q.put("x", dueq.In(0))
	same(q, "round of a new task", q.one(0).Round, 0)
}

func releaseKeeps(q *queue) {
	o := q.put("x", dueq.In(0), "body")
	q.end(q.one(0), dueq.VerdictRetry, 0, "e", dueq.StatusDone)
	for i := range 10 {
		task := q.one(0)
		same(q, "attempt", task.Attempt, 2)
		sameTime(q, "due", task.Due, o.Due)
		same(q, "age", task.Age, time.Duration(i)*time.Second)
		r := q.end(task, dueq.VerdictRelease, 0, "ignored", dueq.StatusDone)
		sameTime(q, "due in the outcome", r.Due, o.Due)
		same(q, "last error", q.get("x").LastError, "e")
		q.Advance(time.Second)
	}
	r := q.end(q.one(0), dueq.VerdictRelease, 5*time.Second, "", dueq.StatusDone)
	sameTime(q, "due after a release with a delay", r.Due, q.Now().Add(5*time.Second))
	q.Advance(5 * time.Second)
	same(q, "attempt", q.one(0).Attempt, 2)
	same(q, "released in total", q.stats().Totals.Released, 11)
}

// plainSuperseded has no side data: a store may have a short way for that.
func plainSuperseded(q *queue) {
	q.put("x", dueq.In(0))
	q.put("y", dueq.In(0))
	c := q.claim(2, time.Hour)
	q.length("tasks", len(c.Tasks), 2)
	again := q.put("y", dueq.In(time.Minute)).Due
	got := q.settle(dueq.Result{Task: c.Tasks[0]}, dueq.Result{Task: c.Tasks[1]})
	q.status("ack of x", got[0], dueq.StatusDone)
	q.status("ack of y", got[1], dueq.StatusSuperseded)
	sameTime(q, "due of y", got[1].Due, again)
	totals := q.stats().Totals
	same(q, "acked in total", totals.Acked, 1)
	same(q, "superseded in total", totals.Superseded, 1)
}

func settledOnce(q *queue) {
	for v := dueq.VerdictAck; v <= dueq.VerdictDead; v++ {
		m := "x:" + v.String()
		q.put(m, dueq.In(0))
		task := q.one(0)
		twice := dueq.Result{Task: task, Verdict: v, Delay: time.Hour}
		both := q.settle(twice, twice)
		q.status("the first "+v.String(), both[0], dueq.StatusDone)
		q.status("the same in one call", both[1], dueq.StatusLeaseLost)
		before := q.dump().String()
		for w := dueq.VerdictAck; w <= dueq.VerdictDead; w++ {
			o := q.end(task, w, time.Minute, "again", dueq.StatusLeaseLost)
			same(q, "due of a lost lease", o.Due.IsZero(), true)
		}
		q.status("extend", q.extend(time.Minute, task)[0], dueq.StatusLeaseLost)
		same(q, "after repeated verdicts", q.dump().String(), before)
	}
}

func mixedBatch(q *queue) {
	const n = 1000
	q.schedule(q.items("t", n, dueq.In(0))...)
	old := q.claim(n, 0).Tasks
	var releases []dueq.Result
	for _, task := range old {
		releases = append(releases, dueq.Result{Task: task, Verdict: dueq.VerdictRelease})
	}
	q.settle(releases...)
	tasks := q.claim(n, 0).Tasks
	q.length("tasks", len(tasks), n)
	results := make([]dueq.Result, n)
	for i, task := range tasks {
		results[i] = dueq.Result{Task: task, Verdict: dueq.Verdict(i % 5), Delay: time.Duration(i+1) * time.Second, Err: task.ID}
		if i%7 == 0 {
			results[i].Task = old[i]
		}
	}
	for i, o := range q.settle(results...) {
		want := dueq.StatusDone
		if i%7 == 0 {
			want = dueq.StatusLeaseLost
		}
		q.status(fmt.Sprint("result ", i), o, want)
	}
	s := q.dump()
	for i, task := range tasks {
		want := []string{"none", "S", "S", "S", "D"}[i%5]
		if i%7 == 0 {
			want = "A"
		}
		same(q, fmt.Sprintf("place after %v", results[i].Verdict), placesOf(s, task.ID), want)
		if want == "S" {
			same(q, "due", s.Scheduled[task.ID], q.inMilli(results[i].Delay))
		}
	}
}

func oneBadLease(q *queue) {
	q.schedule(q.items("t", 5, dueq.In(0))...)
	tasks := q.claim(5, 0).Tasks
	q.length("tasks", len(tasks), 5)
	q.changeOne(dueq.OpStop, tasks[2].ID)
	stranger := *tasks[0]
	stranger.Lease.Member = "t00009"
	tasks[3] = &stranger
	var results []dueq.Result
	for _, task := range tasks {
		results = append(results, dueq.Result{Task: task, Verdict: dueq.VerdictAck})
	}
	for i, o := range q.settle(results...) {
		q.status(fmt.Sprint("result ", i), o, []dueq.Status{dueq.StatusDone, dueq.StatusDone, dueq.StatusLeaseLost, dueq.StatusLeaseLost, dueq.StatusDone}[i])
	}
	q.length("tasks left", len(q.dump().Active), 1)
}

func bareResult(q *queue) {
	for v := dueq.VerdictAck; v <= dueq.VerdictDead; v++ {
		m := "x:" + v.String()
		q.put(m, dueq.In(0), "body")
		full := q.one(0)
		q.Advance(time.Second)
		q.end(&dueq.Task{Lease: full.Lease, Due: full.Due, Round: full.Round, Body: full.Body}, v, 0, "", dueq.StatusDone)
		if v == dueq.VerdictRelease {
			sameTime(q, "due", q.get(m).Due, full.Due)
		}
		if v != dueq.VerdictAck {
			same(q, "body", string(q.get(m).Body), "body")
		}
		q.changeOne(dueq.OpDelete, m)
	}
}

func badResult(q *queue) {
	q.schedule(q.items("t", 2, dueq.In(0))...)
	tasks := q.claim(2, 0).Tasks
	q.length("tasks", len(tasks), 2)
	before := q.dump().String()
	bad := []dueq.Result{
		{Task: tasks[0], Verdict: 99}, {Verdict: dueq.VerdictAck}, {Task: tasks[0], Verdict: dueq.VerdictRetry, Delay: -2},
		{Task: tasks[0], Verdict: dueq.VerdictAgain, Delay: dueq.ByPolicy}, {Task: tasks[0], Verdict: dueq.VerdictRelease, Delay: -time.Second},
	}
	for i, o := range q.settle(bad...) {
		q.refused(fmt.Sprint("result ", i), o, dueq.ErrInvalid)
	}
	same(q, "after bad results", q.dump().String(), before)
	outcomes := q.settle(append(bad, dueq.Result{Task: tasks[1]}, dueq.Result{Task: tasks[0]})...)
	q.status("a good one among them", outcomes[len(bad)], dueq.StatusDone)
	q.status("a good one after its bad ones", outcomes[len(bad)+1], dueq.StatusDone)
	same(q, "left", q.dump().String(), "")
}

func retryWaits(q *queue) {
	q.put("x", dueq.In(0))
	q.end(q.one(2*time.Second), dueq.VerdictRetry, 10*time.Second, "e", dueq.StatusDone)
	q.put("y", dueq.In(0))
	q.one(time.Hour)
	q.claimEverySecond(9 * time.Second)
	q.Advance(999 * time.Millisecond)
	q.none()
	q.Advance(time.Millisecond)
	same(q, "attempt", q.one(0).Attempt, 2)
}

func verdictTotals(q *queue) {
	for v := dueq.VerdictAck; v <= dueq.VerdictDead; v++ {
		for i := range int(v) + 1 {
			q.put(fmt.Sprintf("x%d:%v", i, v), dueq.In(0))
			q.end(q.one(0), v, time.Hour, "", dueq.StatusDone)
		}
	}
	q.put("z", dueq.In(0))
	task := q.one(0)
	q.put("z", dueq.In(time.Hour))
	q.end(task, dueq.VerdictDead, 0, "", dueq.StatusSuperseded)
	got := q.stats().Totals
	want := dueq.Totals{Scheduled: 17, Claimed: 16, Acked: 1, Retried: 2, Again: 3, Released: 4, Died: 5, Superseded: 1}
	same(q, "totals", got, want)
}
