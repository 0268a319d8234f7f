package storetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dueq/dueq"
)

func forwardTests() []test {
	tests := []test{{"a store without lists and streams says so", forwardNowhere}}
	for _, one := range []test{
		{"a list has the member and, if there is one, a newline and the body", forwardList},
		{"a stream has member, due and, if there is one, the body", forwardStream},
		{"destinations grow at their ends", forwardAppends},
		{"what is forwarded leaves nothing behind and is no delivery", forwardLeaves},
		{"nothing is forwarded before it is due", forwardEarly},
		{"at most max are forwarded, and the rest next", forwardMax},
		{"a forward says as a claim does when there is more", forwardWait},
		{"what runs is parked, and forwarded when its run has ended", forwardParks},
		{"what comes back to a queue is forwarded", forwardReturns},
		{"a cancelled task is not forwarded, and one that is stopped is free", forwardCancelled},
		{"bad scores, bad members and late tasks die instead", forwardRefuses},
		{"higher priority first, and a task that runs in any spelling is parked", forwardPriority},
		{"a paused queue forwards nothing and keeps its house", forwardPaused},
		{"at most once forwards alike", forwardOnce},
		{"bodies of one forward are at most 1 MiB, and at least one is taken", forwardBodies},
		{"a destination that holds something else is refused and nothing changes", forwardElse},
		{"keys of its own and bad destinations are refused", forwardOwn},
		{"many forwarders and claimers at once take each task once", forwardMany},
	} {
		tests = append(tests, test{one.name, func(q *queue) {
			if _, ok := q.Store.(dueq.Forwarder); ok {
				one.run(q)
			}
		}})
	}
	return tests
}

func forwardNowhere(q *queue) {
	err := dueq.Forward(ended(q), q.Store, q.name, dueq.ForwardOptions{To: "list", Logger: slog.New(slog.DiscardHandler)})
	if _, ok := q.Store.(dueq.Forwarder); ok {
		same(q, "error of a store that has them", err, nil)
		same(q, "the fixture knows them", q.Sent != nil, true)
		return
	}
	var field *dueq.FieldError
	if !errors.As(err, &field) || field.Field != "store" || !strings.Contains(err.Error(), fmt.Sprintf("%T", q.Store)) {
		q.Errorf("got %v, want ErrInvalid naming the store", err)
	}
}

// ended is a context that has ended but for what began before.
func ended(q *queue) context.Context {
	ctx, cancel := context.WithCancel(q.Context())
	cancel()
	return ctx
}

// out is the destination where none is named.
func (q *queue) out() string { return "{" + q.Key(q.name) + "}:out" }

func (q *queue) tryForward(max int, to string) (dueq.Forwarded, error) {
	return q.Store.(dueq.Forwarder).Forward(q.Context(), dueq.ForwardRequest{Queue: q.name, Max: max, Destination: to})
}

func (q *queue) forward(max int, to string) dueq.Forwarded {
	q.Helper()
	got, err := q.tryForward(max, to)
	q.must("Forward", err)
	return got
}

// sent forwards all that is due to the queue's own list and returns its
// elements, all that ever came.
func (q *queue) sent() []string {
	q.Helper()
	before := len(q.Sent(q.out()))
	n := q.forward(dueq.MaxItems, "list").Count
	var elements []string
	for _, e := range q.Sent(q.out()) {
		elements = append(elements, e[0])
	}
	q.length("elements that came", len(elements)-before, n)
	return elements
}

// Bodies are bytes, whatever they look like.
var oddBodies = []string{"", "\n", "a\nb", "\x00", "\xff\xfe", "{\"a\":1}", "\r\n\x00\n", strings.Repeat("x", 5000)}

func forwardList(q *queue) {
	var want []string
	for i, body := range oddBodies {
		member := fmt.Sprintf("b%d:k", i)
		q.put(member, dueq.In(0), body)
		want = append(want, member+"\n"+body)
	}
	q.put("plain", dueq.In(0))
	q.put("a:first#trace", dueq.At(q.Now().Add(-time.Millisecond)))
	want = append(append([]string{"a:first#trace"}, want...), "plain")
	sameList(q, "elements", q.sent(), want)
}

func forwardStream(q *queue) {
	var want [][]string
	due := fmt.Sprintf("%.0f", q.inMilli(0))
	for i, body := range oddBodies {
		member := fmt.Sprintf("b%d:k", i)
		q.put(member, dueq.In(0), body)
		want = append(want, []string{"member", member, "due_ms", due, "body", body})
	}
	q.add("c", q.inMilli(0)-0.5)
	q.add("a", dueq.MinDueMilli-0.25)
	want = append([][]string{{"member", "a", "due_ms", "100000000000"}, {"member", "c", "due_ms", due}}, want...)
	same(q, "forwarded", q.forward(100, "stream").Count, len(want))
	got := q.Sent(q.out())
	if !slices.EqualFunc(got, want, slices.Equal) {
		q.Errorf("got %.500q\nwant %.500q", got, want)
	}
}

func forwardAppends(q *queue) {
	for _, kind := range []string{"list", "stream"} {
		key := "{" + q.Key(q.name) + "}:" + kind
		q.Put(key, kind, "was there")
		for _, member := range []string{"a", "b"} {
			q.put(member, dueq.In(0))
			same(q, "forwarded", q.forward(10, kind+":"+key).Count, 1)
		}
		got := q.Sent(key)
		q.length("entries", len(got), 3)
		for i, want := range []string{"was there", "a", "b"} {
			same(q, "entry", slices.Contains(got[i], want), true)
		}
	}
}

func forwardLeaves(q *queue) {
	q.put("x", dueq.In(0), "body")
	q.end(q.one(0), dueq.VerdictRetry, time.Second, "why", dueq.StatusDone)
	q.put("dead", dueq.In(0), "body")
	q.end(q.one(0), dueq.VerdictDead, 0, "why", dueq.StatusDone)
	q.Advance(time.Second)
	q.add("dead", q.inMilli(-time.Millisecond))
	before := q.stats().Totals
	sameList(q, "elements", q.sent(), []string{"dead\nbody", "x\nbody"})
	same(q, "left", q.dump().String(), "")
	same(q, "state", q.get("x").State, dueq.StateNone)
	before.Forwarded += 2
	same(q, "totals", q.stats().Totals, before)
	sameList(q, "once more", q.sent(), []string{"dead\nbody", "x\nbody"})
}

func forwardEarly(q *queue) {
	due := q.put("x", dueq.In(1500*time.Microsecond)).Due
	q.add("fraction", score(due)-0.5)
	q.Advance(due.Sub(q.Now()) - time.Microsecond)
	q.length("elements before", len(q.sent()), 0)
	q.Advance(time.Microsecond)
	sameList(q, "elements when due", q.sent(), []string{"fraction", "x"})
}

func forwardMax(q *queue) {
	items := q.items("t", 25, dueq.In(0))
	q.schedule(items...)
	for _, want := range []int{10, 10, 5, 0} {
		same(q, "forwarded", q.forward(10, "list").Count, want)
	}
	for i, element := range q.sent() {
		same(q, fmt.Sprint("element ", i), element, items[i].Task.Member())
	}
	for _, bad := range []int{-1, dueq.MaxItems + 1} {
		_, err := q.tryForward(bad, "list")
		q.fails(fmt.Sprint("max ", bad), err, dueq.ErrInvalid)
	}
}

func forwardWait(q *queue) {
	same(q, "wait of an empty queue", q.forward(10, "list").Wait, -1)
	q.put("x", dueq.In(0))
	q.put("y", dueq.In(0))
	got := q.forward(1, "list")
	same(q, "wait with more", got.Wait, 0)
	sameTime(q, "now", got.Now, q.Now())
	sameTime(q, "previous", got.Previous, q.Now().Truncate(time.Millisecond))
	q.put("z", dueq.In(time.Minute))
	same(q, "wait of a forward of none", q.forward(0, "list").Wait, 0)
	same(q, "wait", q.forward(1, "list").Wait, time.Minute)
	q.put("run", dueq.In(0))
	q.one(10 * time.Second)
	got = q.forward(1, "list")
	if got.Wait < 10*time.Second || got.Wait > 11*time.Second {
		q.Errorf("wait is %v, want until the lease ends", got.Wait)
	}
}

func forwardParks(q *queue) {
	for _, kind := range []string{"list", "stream"} {
		key := "{" + q.Key(q.name) + "}:" + kind
		q.put("x", dueq.In(0), "first")
		task := q.one(time.Hour)
		q.put("x", dueq.In(0), "second")
		q.put("y", dueq.In(0))
		same(q, "forwarded beside a run", q.forward(10, kind+":"+key).Count, 1)
		same(q, "places", placesOf(q.dump(), "x"), "A+N")
		q.end(task, dueq.VerdictRetry, time.Hour, "why", dueq.StatusSuperseded)
		same(q, "forwarded after the run", q.forward(10, kind+":"+key).Count, 1)
		same(q, "left", q.dump().String(), "")
		last := q.Sent(key)[1]
		same(q, "what came last", strings.Contains(strings.Join(last, " "), "second"), true)
	}
}

func forwardReturns(q *queue) {
	q.put("retried", dueq.In(0), "b")
	q.end(q.one(0), dueq.VerdictRetry, time.Second, "why", dueq.StatusDone)
	q.put("again", dueq.In(0), "b")
	q.end(q.one(0), dueq.VerdictAgain, 2*time.Second, "", dueq.StatusDone)
	q.put("requeued", dueq.In(0), "b")
	q.end(q.one(0), dueq.VerdictDead, 0, "why", dueq.StatusDone)
	q.change(dueq.OpRequeue, dueq.Target{Member: "requeued", When: dueq.In(3 * time.Second)})
	q.align(0)
	for range 6 { // so that no grace holds a lease back
		q.Advance(time.Second)
		q.forward(0, "list")
	}
	q.put("dies", dueq.In(time.Second), "b") // with its worker
	sameList(q, "elements", q.sent(), []string{"retried\nb", "again\nb", "requeued\nb"})
	q.Advance(time.Second)
	q.one(2 * time.Second)
	q.Advance(time.Second)
	q.length("elements within the lease", len(q.sent()), 3)
	q.Advance(time.Second)
	q.length("elements after the lease", len(q.sent()), 4)
	same(q, "left", q.dump().String(), "")
	same(q, "ended in total", q.stats().Totals.Ended, 1)
}

func forwardCancelled(q *queue) {
	q.put("x", dueq.In(0), "b")
	q.changeOne(dueq.OpCancel, "x")
	q.put("run", dueq.In(0), "b")
	task := q.one(time.Hour)
	q.put("run", dueq.In(0), "again")
	q.changeOne(dueq.OpCancel, "run")
	q.length("elements", len(q.sent()), 0)
	q.put("stopped", dueq.In(0))
	q.one(time.Hour)
	q.changeOne(dueq.OpStop, "stopped")
	q.put("stopped", dueq.In(0), "new")
	sameList(q, "elements", q.sent(), []string{"stopped\nnew"})
	q.end(task, dueq.VerdictRetry, 0, "", dueq.StatusSuperseded)
	sameList(q, "elements", q.sent(), []string{"stopped\nnew"})
}

func forwardRefuses(q *queue) {
	q.set("max_late", "1s")
	q.put("late", dueq.In(0), "b")
	bad := map[string]float64{"seconds": float64(q.Now().Unix()), "far": 1e300, "zero": 0, "no member": q.inMilli(1500 * time.Millisecond), ":k": q.inMilli(1500 * time.Millisecond)}
	for m, s := range bad {
		q.add(m, s)
	}
	q.put("good", dueq.In(1500*time.Millisecond), "b")
	q.Advance(2 * time.Second)
	sameList(q, "elements", q.sent(), []string{"good\nb"})
	s := q.dump()
	q.length("dead letters", len(s.Dead), len(bad)+1)
	q.length("reasons", len(s.Error), len(bad)+1)
	same(q, "body of the late one", s.Body["late"], "b")
	totals := q.stats().Totals
	same(q, "refused in total", totals.Refused, int64(len(bad)+1))
	same(q, "forwarded in total", totals.Forwarded, 1)
}

func forwardPriority(q *queue) {
	q.priority()
	q.put("run:p3", dueq.In(0))
	task := q.one(time.Hour)
	base := q.Now()
	for m, late := range map[string]int{"a:p1": 0, "b:p9": 9, "c:p9": 3, "e": 1, "f:k:p5": 0} {
		q.put(m, dueq.At(base.Add(time.Duration(late)*time.Millisecond)), "b")
	}
	q.add("run:p8", score(base))
	q.Advance(10 * time.Millisecond)
	sameList(q, "elements", q.sent(), []string{"c:p9\nb", "b:p9\nb", "f:k:p5\nb", "a:p1\nb", "e\nb"})
	same(q, "places of another spelling of what runs", placesOf(q.dump(), "run:p8"), "N")
	q.end(task, dueq.VerdictAck, 0, "", dueq.StatusSuperseded)
	same(q, "what came last", q.sent()[5], "run:p8")
	same(q, "left", q.dump().String(), "")
}

func forwardPaused(q *queue) {
	q.put("old", dueq.In(0))
	q.end(q.one(0), dueq.VerdictDead, 0, "why", dueq.StatusDone)
	q.put("x", dueq.In(0))
	q.set("paused", "on", "dead_keep", "1s")
	q.Advance(2 * time.Second)
	got := q.forward(10, "list")
	same(q, "forwarded", got.Count, 0)
	same(q, "paused", got.Paused, true)
	same(q, "trimmed in total", q.stats().Totals.Trimmed, 1)
	q.set("paused", "off")
	got = q.forward(10, "list")
	same(q, "forwarded", got.Count, 1)
	same(q, "paused", got.Paused, false)
}

func forwardOnce(q *queue) {
	q.once()
	q.put("x", dueq.In(0), "b")
	sameList(q, "elements", q.sent(), []string{"x\nb"})
	same(q, "left", q.dump().String(), "")
	same(q, "forwarded in total", q.stats().Totals.Forwarded, 1)
	same(q, "claimed in total", q.stats().Totals.Claimed, 0)
}

func forwardBodies(q *queue) {
	q.set("body_max", fmt.Sprint(2<<20))
	for i, size := range []int{1<<20 + 1, 1 << 20, 600 << 10, 400 << 10, 100 << 10} {
		q.put(fmt.Sprintf("t%d", i), dueq.In(0), strings.Repeat("x", size))
	}
	for _, want := range []int{1, 1, 2, 1} {
		got := q.forward(10, "list")
		same(q, "forwarded", got.Count, want)
		if more := len(q.dump().Scheduled) > 0; more != (got.Wait == 0) {
			q.Errorf("wait is %v, more %v", got.Wait, more)
		}
	}
}

func forwardElse(q *queue) {
	q.put("x", dueq.In(0), "b")
	q.add("bad member", 5)
	for kind, wrong := range map[string][]string{"list": {"stream", "hash", "zset", "string", "set"}, "stream": {"list", "hash", "zset", "string", "set"}} {
		for _, found := range wrong {
			key := "{" + q.Key(q.name) + "}:" + kind + "-" + found
			q.Put(key, found, "was there")
			before := q.dump().String()
			_, err := q.tryForward(10, kind+":"+key)
			var field *dueq.FieldError
			if !errors.As(err, &field) || field.Field != "destination" || !strings.Contains(err.Error(), key+" is a "+found+", not a "+kind) {
				q.Errorf("%s at a %s: got %v, want ErrInvalid saying so", kind, found, err)
			}
			same(q, "what lies there", q.dump().String(), before)
		}
	}
	same(q, "refused in total", q.stats().Totals.Refused, 0)
	sameList(q, "elements elsewhere", q.sent(), []string{"x\nb"})
}

func forwardOwn(q *queue) {
	q.put("x", dueq.In(0), "b")
	k := q.Key(q.name)
	prefix := strings.TrimSuffix(k, q.name)
	keys := []string{k, k + "@3", prefix + "some:queue", prefix + "@queues", prefix + "@settings", prefix + "@wake", "{" + k + "@1}:active"}
	for _, side := range []string{"active", "next", "dead", "body", "tries", "error", "settings", "stats", "meta", "trace:x"} {
		keys = append(keys, "{"+k+"}:"+side)
	}
	for _, key := range keys {
		_, err := q.tryForward(10, "list:"+key)
		q.fails(key, err, dueq.ErrInvalid)
		if err == nil || !strings.Contains(err.Error(), "list:"+q.out()) {
			q.Errorf("%s: got %v, want a hint at %s", key, err, q.out())
		}
	}
	for _, bad := range []string{"", "list:", "set", "set:x", "list:a\nb"} {
		_, err := q.tryForward(10, bad)
		q.fails(bad, err, dueq.ErrInvalid)
	}
	_, err := q.Store.(dueq.Forwarder).Forward(q.Context(), dueq.ForwardRequest{Queue: "bad queue", Destination: "list"})
	q.fails("a bad queue", err, dueq.ErrInvalid)
	sameList(q, "elements", q.sent(), []string{"x\nb"})
}

func forwardMany(q *queue) {
	const n = 3000
	q.schedule(q.items("t", n, dueq.In(0))...)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for more := true; more; {
				got, err := q.tryForward(50, "list")
				if more = got.Count > 0; err != nil {
					q.T.Error(err)
				}
			}
		})
	}
	tasks := q.drain(8, 50)
	group.Wait()
	times := map[string]int{}
	for _, e := range q.Sent(q.out()) {
		times[e[0]]++
	}
	for _, task := range tasks {
		times[task.Lease.Member]++
	}
	q.length("tasks", len(times), n)
	for member, n := range times {
		if n != 1 {
			q.Errorf("%s came %d times", member, n)
		}
	}
	totals := q.stats().Totals
	same(q, "claimed and forwarded in total", totals.Claimed+totals.Forwarded, n)
}
