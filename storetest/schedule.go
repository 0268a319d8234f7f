package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/dueq/dueq"
)

func scheduleTests() []test {
	return []test{
		{"a delay is due to the millisecond, rounded up", exactDelays},
		{"an instant is due to the millisecond, rounded up", exactInstants},
		{"times out of bounds are refused and nothing is stored", refusedTimes},
		{"the same member twice in one call is applied in order", sameMemberTwice},
		{"a fraction that was ZADDed is compared as the millisecond after it", comparedFractions},
		{"a bad item fails alone", badItemAlone},
		{"a call takes a thousand items of several queues", thousandItems},
		{"a task without a body is one entry and nothing else", oneEntry},
		{"a body over body_max is refused and nothing is stored", bodyMax},
		{"a body comes back as it was, however its runs end", bodiesSurvive},
		{"a later schedule takes the body away unless it brings one", bodyReplaced},
		{"due times stay distinct to the millisecond", distinctMillis},
		{"totals count what was applied", scheduledTotals},
	}
}

const (
	day  = 24 * time.Hour
	year = 36525 * day / 100
)

func exactDelays(q *queue) {
	delays := []time.Duration{0, 1, time.Microsecond, 999 * time.Microsecond, 1001 * time.Microsecond,
		time.Millisecond, 1500 * time.Microsecond, 25 * day, 100 * year}
	offsets := []time.Duration{0, time.Millisecond, time.Second - time.Microsecond, time.Microsecond, 500 * time.Microsecond}
	for _, offset := range offsets {
		q.align(offset)
		for i, d := range delays {
			m := fmt.Sprintf("%d:d%d", offset, i)
			o := q.put(m, dueq.In(d))
			want := q.inMilli(d)
			same(q, fmt.Sprintf("due after %v at %v", d, q.Now()), q.dump().Scheduled[m], want)
			same(q, "due in the outcome", score(o.Due), want)
			if o.Due.Before(q.Now().Add(d)) {
				q.Errorf("%v after %v is %v: early", d, q.Now(), o.Due)
			}
		}
	}
}

func exactInstants(q *queue) {
	q.align(0)
	now := q.Now()
	for i, row := range []struct {
		at   time.Time
		want float64
	}{
		{now, score(now)},
		{now.Add(time.Nanosecond), score(now) + 1},
		{now.Add(999_999), score(now) + 1},
		{now.Add(time.Millisecond), score(now) + 1},
		{now.Add(-time.Hour), score(now) - 3_600_000},
		{now.In(time.FixedZone("", 7200)), score(now)},
		{time.UnixMilli(dueq.MinDueMilli), dueq.MinDueMilli},
		{time.UnixMilli(dueq.MinDueMilli).Add(-1), dueq.MinDueMilli},
		{time.UnixMilli(dueq.MaxDueMilli), dueq.MaxDueMilli},
	} {
		m := fmt.Sprint("t", i)
		o := q.put(m, dueq.At(row.at))
		same(q, fmt.Sprintf("due at %v", row.at), q.dump().Scheduled[m], row.want)
		same(q, "due in the outcome", score(o.Due), row.want)
	}
}

func refusedTimes(q *queue) {
	for name, when := range map[string]dueq.When{
		"negative delay":      dueq.In(-1),
		"before 1973":         dueq.At(time.UnixMilli(dueq.MinDueMilli - 1)),
		"seconds":             dueq.At(time.UnixMilli(q.Now().Unix())),
		"1969":                dueq.At(time.Date(1969, 12, 31, 0, 0, 0, 0, time.UTC)),
		"year 1":              dueq.At(time.Time{}),
		"just after 9999":     dueq.At(time.UnixMilli(dueq.MaxDueMilli).Add(1)),
		"a ms after 9999":     dueq.At(time.UnixMilli(dueq.MaxDueMilli + 1)),
		"year 300 million":    dueq.At(time.Unix(1<<53, 0)),
		"before all the time": dueq.At(time.Unix(-1<<53, 0)),
	} {
		q.refused(name, q.schedule(q.item("x", when, "body"))[0], dueq.ErrInvalid)
	}
	same(q, "what lies there", q.dump().String(), "")
	same(q, "scheduled in total", q.stats().Totals.Scheduled, 0)
}

func sameMemberTwice(q *queue) {
	q.align(0)
	steps := []struct {
		in     time.Duration
		mode   dueq.IfExists
		body   string
		status dueq.Status
		due    time.Duration
	}{
		{2 * time.Hour, dueq.Replace, "a", dueq.StatusScheduled, 2 * time.Hour},
		{time.Hour, dueq.Keep, "b", dueq.StatusKept, 2 * time.Hour},
		{3 * time.Hour, dueq.Earlier, "c", dueq.StatusKept, 2 * time.Hour},
		{time.Hour, dueq.Earlier, "d", dueq.StatusReplaced, time.Hour},
		{time.Hour, dueq.Later, "e", dueq.StatusKept, time.Hour},
		{5 * time.Hour, dueq.Later, "f", dueq.StatusReplaced, 5 * time.Hour},
		{4 * time.Hour, dueq.Replace, "g", dueq.StatusReplaced, 4 * time.Hour},
		{5 * time.Hour, dueq.Keep, "h", dueq.StatusKept, 4 * time.Hour},
	}
	var items []dueq.Item
	for _, s := range steps {
		item := q.item("x", dueq.In(s.in), s.body)
		item.IfExists = s.mode
		items = append(items, item)
	}
	for i, o := range q.schedule(items...) {
		q.status(fmt.Sprint("item ", i), o, steps[i].status)
		sameTime(q, fmt.Sprint("due after item ", i), o.Due, q.Now().Add(steps[i].due))
	}
	same(q, "body", string(q.get("x").Body), "g")
}

func comparedFractions(q *queue) {
	at := dueq.At(q.Now().Add(time.Hour))
	for mode, m := range map[dueq.IfExists]string{dueq.Earlier: "earlier", dueq.Later: "later"} {
		due := q.inMilli(time.Hour) - 0.5
		q.add(m, due)
		item := q.item(m, at, "body")
		item.IfExists = mode
		o := q.schedule(item)[0]
		q.status(m, o, dueq.StatusKept)
		same(q, m+": due in the outcome", score(o.Due), due+0.5)
		same(q, m+": what lies there", q.dump().Scheduled[m], due)
	}
}

func badItemAlone(q *queue) {
	soon := dueq.In(time.Second)
	with := func(change func(*dueq.Item)) dueq.Item {
		item := q.item("bad", soon, "body")
		change(&item)
		return item
	}
	bad := []dueq.Item{
		with(func(i *dueq.Item) { i.Task.ID = "" }),
		with(func(i *dueq.Item) { i.Task.ID = "a b" }),
		with(func(i *dueq.Item) { i.Task.Kind = "p3" }),
		with(func(i *dueq.Item) { i.Task.Priority = dueq.P(3) }),
		with(func(i *dueq.Item) { i.Task.Priority = 77 }),
		with(func(i *dueq.Item) { i.Task.ID = strings.Repeat("x", dueq.MemberMax+1) }),
		with(func(i *dueq.Item) { i.When = dueq.In(-time.Second) }),
		with(func(i *dueq.Item) { i.IfExists = 9 }),
		with(func(i *dueq.Item) { i.Queue = "" }),
		with(func(i *dueq.Item) { i.Queue = "trace" }),
	}
	items := []dueq.Item{q.item("good:0", soon)}
	for i, item := range bad {
		items = append(items, item, q.item(fmt.Sprintf("good:%d", i+1), soon))
	}
	items = append(items, with(func(i *dueq.Item) { i.Task.Body = make([]byte, 64<<10+1) }))
	outcomes := q.schedule(items...)
	for i, o := range outcomes[:len(items)-1] {
		if i%2 == 0 {
			q.status(items[i].Task.Member(), o, dueq.StatusScheduled)
		} else {
			q.refused(fmt.Sprintf("%.40q in %q", items[i].Task.Member(), items[i].Queue), o, dueq.ErrInvalid)
		}
	}
	q.refused("large body", outcomes[len(items)-1], dueq.ErrTooLarge)
	q.length("tasks stored", len(q.dump().Scheduled), len(bad)+1)
	q.length("bodies stored", len(q.dump().Body), 0)
}

func thousandItems(q *queue) {
	even, odd := q.other("even"), q.other("odd")
	items := q.items("t", dueq.MaxItems, dueq.In(time.Second))
	for i := range items {
		items[i].Queue = []string{even.name, odd.name}[i%2]
		items[i].When = dueq.In(time.Duration(i) * time.Millisecond)
	}
	for i, o := range q.schedule(items...) {
		q.status("item", o, dueq.StatusScheduled)
		same(q, fmt.Sprint("due of item ", i), score(o.Due), q.inMilli(time.Duration(i)*time.Millisecond))
	}
	q.length("even ones", len(even.dump().Scheduled), dueq.MaxItems/2)
	q.length("odd ones", len(odd.dump().Scheduled), dueq.MaxItems/2)
	same(q, "place of item 998", placesOf(even.dump(), items[998].Task.Member()), "S")
	even.check()
	odd.check()
}

func oneEntry(q *queue) {
	q.put("x", dueq.In(time.Second))
	s := q.dump()
	q.length("side data", len(s.Body)+len(s.Tries)+len(s.Error)+len(s.Next)+len(s.Active)+len(s.Dead), 0)
	q.length("entries", len(s.Scheduled), 1)
}

func bodyMax(q *queue) {
	q.set("body_max", "100")
	q.put("x", dueq.In(time.Second), strings.Repeat("o", 100))
	before := q.dump().String()
	for _, m := range []string{"x", "y"} {
		o := q.schedule(q.item(m, dueq.In(0), strings.Repeat("n", 101)))[0]
		q.refused("101 bytes for "+m, o, dueq.ErrTooLarge)
	}
	same(q, "after refused bodies", q.dump().String(), before)
	q.set("body_max", "101")
	q.put("y", dueq.In(time.Second), strings.Repeat("n", 101))
	q.set("body_max", "0")
	q.put("empty", dueq.In(time.Second), "")
	q.put("none", dueq.In(time.Second))
	q.refused("one byte", q.schedule(q.item("z", dueq.In(0), "z"))[0], dueq.ErrTooLarge)
}

func bodiesSurvive(q *queue) {
	var bytes strings.Builder
	for i := range 256 {
		bytes.WriteByte(byte(i))
	}
	bodies := map[string]string{
		"binary": bytes.String(), "invalid": "\xff\xfe\xc0\x80", "empty": "", "number": "1e400",
		"zero": "\x00", "crlf": "\r\n$-1\r\n", "text": "größer ☃", "large": strings.Repeat("\xf0x", 32<<10), "false": "false",
	}
	for m, body := range bodies {
		q.put(m, dueq.In(0), body)
	}
	q.put("nil", dueq.In(0))
	ends := map[string]func(*dueq.Task){
		"retry":   func(t *dueq.Task) { q.end(t, dueq.VerdictRetry, 0, "e", dueq.StatusDone) },
		"again":   func(t *dueq.Task) { q.end(t, dueq.VerdictAgain, 0, "", dueq.StatusDone) },
		"release": func(t *dueq.Task) { q.end(t, dueq.VerdictRelease, 0, "", dueq.StatusDone) },
		"extend":  func(t *dueq.Task) { q.extend(time.Second, t) },
		"dead":    func(t *dueq.Task) { q.end(t, dueq.VerdictDead, 0, "e", dueq.StatusDone) },
		"ack":     q.ack,
	}
	for _, how := range []string{"retry", "again", "release", "extend", "dead", "ack"} {
		q.Advance(time.Millisecond)
		tasks := q.claim(100, 0).Tasks
		q.length("tasks before "+how, len(tasks), len(bodies)+1)
		for _, task := range tasks {
			q.sameBody("claimed before "+how, task, bodies)
			info := q.get(task.Lease.Member)
			q.sameBody("looked up before "+how, &info.Task, bodies)
			ends[how](task)
			if how == "dead" {
				q.status("requeue", q.changeOne(dueq.OpRequeue, task.Lease.Member), dueq.StatusDone)
			}
		}
		if how == "extend" {
			q.endLeases()
		}
	}
	same(q, "left", q.dump().String(), "")
}

func (q *queue) sameBody(what string, task *dueq.Task, bodies map[string]string) {
	q.Helper()
	want, some := bodies[task.ID]
	if (task.Body != nil) != some || string(task.Body) != want {
		q.Errorf("body of %s %s: got %.60q (nil %v), want %.60q (nil %v)", task.ID, what, task.Body, task.Body == nil, want, !some)
	}
}

func bodyReplaced(q *queue) {
	q.put("x", dueq.In(time.Second), "old")
	q.status("schedule without body", q.schedule(q.item("x", dueq.In(0)))[0], dueq.StatusReplaced)
	if task := q.one(0); task.Body != nil {
		q.Errorf("got body %q, want none", task.Body)
	}
	q.put("z", dueq.In(time.Hour), "old")
	item := q.item("z", dueq.In(0))
	item.IfExists = dueq.Earlier
	q.status("an earlier schedule without body", q.schedule(item)[0], dueq.StatusReplaced)
	if task := q.one(0); task.Body != nil {
		q.Errorf("got body %q, want none", task.Body)
	}
	q.put("y", dueq.In(0), "kept")
	q.add("y", q.inMilli(0)) // a plain ZADD leaves the body
	same(q, "body after a plain ZADD", string(q.one(0).Body), "kept")
}

func distinctMillis(q *queue) {
	const n = 1000
	q.align(0)
	q.set("retry_first", "1s", "retries", "9")
	items := q.items("t", n, dueq.When{})
	base := q.Now().Add(time.Hour)
	for i := range items {
		items[i].When = dueq.At(base.Add(time.Duration(i) * time.Millisecond))
	}
	q.schedule(items...)
	q.distinct("scheduled", base, n)

	base = base.Add(time.Hour + 7*time.Millisecond)
	targets := make([]dueq.Target, n)
	for i := range targets {
		targets[i] = dueq.Target{Member: items[i].Task.Member(), When: dueq.At(base.Add(time.Duration(i) * time.Millisecond))}
	}
	q.change(dueq.OpReschedule, targets...)
	q.distinct("rescheduled", base, n)

	for _, v := range []dueq.Verdict{dueq.VerdictRetry, dueq.VerdictAgain, dueq.VerdictRelease} {
		q.Advance(base.Add(n * time.Millisecond).Sub(q.Now()))
		c := q.claim(n, 0)
		results := make([]dueq.Result, len(c.Tasks))
		for i, task := range c.Tasks {
			sameTime(q, "due of "+task.ID, task.Due, base.Add(time.Duration(i)*time.Millisecond))
			results[i] = dueq.Result{Task: task, Verdict: v, Delay: time.Hour + time.Duration(i)*time.Millisecond}
		}
		q.settle(results...)
		base = q.Now().Add(time.Hour)
		q.distinct(v.String(), base, n)
	}
}

// distinct expects task i to be due i ms after base.
func (q *queue) distinct(how string, base time.Time, n int) {
	q.Helper()
	s := q.dump()
	q.length(how, len(s.Scheduled), n)
	for i := range n {
		m := fmt.Sprintf("t%05d", i)
		if got, want := s.Scheduled[m], score(base)+float64(i); got != want {
			q.Fatalf("%s: %s is due %.3f, want %.0f", how, m, got, want)
		}
	}
}

func scheduledTotals(q *queue) {
	q.put("x", dueq.In(0))
	q.schedule(q.item("x", dueq.In(0)))
	keep := q.item("x", dueq.In(0))
	keep.IfExists = dueq.Keep
	q.schedule(keep, q.item("y", dueq.In(-1)))
	q.Advance(time.Millisecond)
	q.one(0)
	q.put("x", dueq.In(0))
	same(q, "scheduled in total", q.stats().Totals.Scheduled, 3)
}

// farTests have a store of their own: they take its clock near the year 9999.
func farTests() []test {
	return []test{{"a delay that reaches beyond the year 9999 is refused", beyond9999}}
}

func beyond9999(q *queue) {
	end := time.UnixMilli(dueq.MaxDueMilli)
	for _, left := range []time.Duration{150 * year, 100 * time.Second} {
		q.advanceTo(end.Add(-left))
		q.refused("delay beyond 9999", q.schedule(q.item("late", dueq.In(left+1)))[0], dueq.ErrInvalid)
		m := fmt.Sprint("last:", left)
		same(q, "due in the outcome", score(q.put(m, dueq.In(left)).Due), dueq.MaxDueMilli)
		o := q.change(dueq.OpReschedule, dueq.Target{Member: m, When: dueq.In(left + 1)})[0]
		q.refused("reschedule beyond 9999", o, dueq.ErrInvalid)
		same(q, "due", q.dump().Scheduled[m], dueq.MaxDueMilli)
	}
}

func (q *queue) advanceTo(t time.Time) {
	for left := t.Sub(q.Now()); left > 0; left = t.Sub(q.Now()) {
		q.Advance(min(left, 100*year))
	}
}
