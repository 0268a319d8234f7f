package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dueq/dueq"
)

func readTests() []test {
	return []test{
		{"get tells all about a task in every state", getStates},
		{"get answers in the order asked, repeats included", getOrder},
		{"get sees a run that is scheduled again", getAgain},
		{"list pages through equal scores without loss or repetition", listEqual},
		{"list is ordered by due time, end of lease or death", listOrder},
		{"a task that does not change is listed once while others come and go", listChanging},
		{"list filters overdue tasks", listOverdue},
		{"list filters by error", listError},
		{"list shows tasks behind their own run as scheduled", listBehind},
		{"list does not carry bodies", listBodies},
		{"a bad query is refused", listRefused},
		{"an unknown queue is empty", unknownQueue},
		{"a probe of whether it takes writes changes no queue", probeLeavesNothing},
		{"stats count and time a queue", statsCount},
		{"stats of several queues come in the order asked, all by name", statsMany},
	}
}

func getStates(q *queue) {
	due := q.put("id:kind#trace", dueq.In(time.Minute), "body").Due
	info := q.get("id:kind#trace")
	same(q, "member", info.Member, "id:kind#trace")
	same(q, "parts", info.ID+" "+info.Kind+" "+info.Trace, "id kind trace")
	same(q, "state", info.State, dueq.StateScheduled)
	sameTime(q, "due", info.Due, due)
	same(q, "body", string(info.Body), "body")
	same(q, "has body", info.HasBody, true)
	same(q, "malformed", info.Malformed, nil)

	q.Advance(time.Minute)
	c := q.claim(1, time.Hour)
	q.length("tasks", len(c.Tasks), 1)
	info = q.get("id:kind#trace")
	same(q, "state", info.State, dueq.StateActive)
	sameTime(q, "end of the lease", info.LeaseEnds, c.LeaseEnds)
	same(q, "due of an active task is zero", info.Due.IsZero(), true)
	same(q, "again", info.Again, false)
	same(q, "cancelled", info.Cancelled, false)
	same(q, "body", string(info.Body), "body")

	q.Advance(time.Second)
	q.end(c.Tasks[0], dueq.VerdictDead, 0, "why", dueq.StatusDone)
	info = q.get("id:kind#trace")
	same(q, "state", info.State, dueq.StateDead)
	sameTime(q, "death", info.DiedAt, q.Now())
	same(q, "end of the lease is zero", info.LeaseEnds.IsZero(), true)
	same(q, "failures", info.Failures, 1)
	same(q, "last error", info.LastError, "why")
	same(q, "body", string(info.Body), "body")

	info = q.get("nobody")
	same(q, "state of nobody", info.State, dueq.StateNone)
	same(q, "member of nobody", info.Member, "nobody")
	same(q, "body of nobody", info.HasBody, false)
}

func getOrder(q *queue) {
	var members []string
	for i := range 500 {
		m := fmt.Sprintf("t%d", i%50)
		if i < 50 && i%2 == 0 {
			q.put(m, dueq.In(time.Hour), m)
		}
		members = append(members, m)
	}
	infos, err := q.Store.Get(q.Context(), q.name, members)
	q.must("Get", err)
	q.length("infos", len(infos), len(members))
	for i, info := range infos {
		same(q, "member", info.Member, members[i])
		same(q, "there", info.State == dueq.StateScheduled, i%2 == 0)
		same(q, "has body", info.HasBody, i%2 == 0)
	}
}

func getAgain(q *queue) {
	q.put("x", dueq.In(0))
	q.one(time.Hour)
	due := q.put("x", dueq.In(time.Minute), "next").Due
	for _, place := range []string{"A+S", "A+N"} {
		info := q.get("x")
		same(q, place, placesOf(q.dump(), "x"), place)
		same(q, "state", info.State, dueq.StateActive)
		same(q, "again", info.Again, true)
		sameTime(q, "due of the next run", info.Due, due)
		same(q, "body of the next run", string(info.Body), "next")
		q.Advance(time.Minute)
		q.none()
	}
}

func listEqual(q *queue) {
	items := q.items("t", 100, dueq.In(0))
	want := make([]string, len(items))
	for i, item := range items {
		want[i] = item.Task.Member()
	}
	q.schedule(items...)
	for _, limit := range []int{1, 3, 7, 99, 100, 1000, 0} {
		sameList(q, fmt.Sprint("scheduled, limit ", limit), q.names(dueq.ListQuery{State: dueq.StateScheduled, Limit: limit}), want)
	}
	c := q.claim(100, time.Hour)
	sameList(q, "active", q.names(dueq.ListQuery{State: dueq.StateActive, Limit: 3}), want)
	for _, task := range c.Tasks {
		q.end(task, dueq.VerdictDead, 0, "e", dueq.StatusDone)
	}
	sameList(q, "dead", q.names(dueq.ListQuery{State: dueq.StateDead, Limit: 3}), want)
	for _, state := range []dueq.State{dueq.StateScheduled, dueq.StateActive} {
		q.length(state.String(), len(q.names(dueq.ListQuery{State: state})), 0)
	}
	page, err := q.Store.List(q.Context(), dueq.ListQuery{Queue: q.name, State: dueq.StateDead, Limit: 10})
	q.must("List", err)
	q.length("tasks of a page", len(page.Tasks), 10)
}

// names are the members that a query lists, all pages together.
func (q *queue) names(query dueq.ListQuery) []string {
	q.Helper()
	var names []string
	for _, info := range q.list(query) {
		if info.State != query.State && !info.Again {
			q.Errorf("%s is listed as %v but %v", info.Member, query.State, info.State)
		}
		names = append(names, info.Member)
	}
	return names
}

func listOrder(q *queue) {
	for m, in := range map[string]int{"a": 3, "b": 1, "c": 2, "d": 0, "e": 2} {
		q.put(m, dueq.In(time.Duration(in)*time.Second))
	}
	sameList(q, "by due", q.names(dueq.ListQuery{State: dueq.StateScheduled, Limit: 2}), []string{"d", "b", "c", "e", "a"})
	q.Advance(3 * time.Second)
	var tasks []*dueq.Task
	for range 5 {
		c := q.claim(1, time.Minute-time.Duration(len(tasks))*10*time.Second)
		q.length("tasks", len(c.Tasks), 1)
		tasks = append(tasks, c.Tasks...)
	}
	sameList(q, "by end of lease", q.names(dueq.ListQuery{State: dueq.StateActive, Limit: 2}), []string{"a", "e", "c", "b", "d"})
	for i, j := range []int{2, 0, 4, 1, 3} {
		q.end(tasks[j], dueq.VerdictDead, 0, fmt.Sprint(i), dueq.StatusDone)
		q.Advance(time.Millisecond)
	}
	sameList(q, "by death", q.names(dueq.ListQuery{State: dueq.StateDead, Limit: 2}), []string{"c", "d", "a", "b", "e"})
}

func listChanging(q *queue) {
	base := q.Now()
	for i := range 100 {
		q.put(fmt.Sprintf("keep%02d", i), dueq.At(base.Add(time.Duration(i/10)*time.Second)))
		q.put(fmt.Sprintf("goes%02d", i), dueq.At(base.Add(time.Duration(i/10)*time.Second)))
	}
	seen := map[string]int{}
	query := dueq.ListQuery{Queue: q.name, State: dueq.StateScheduled, Limit: 9}
	for page := range 1000 {
		got, err := q.Store.List(q.Context(), query)
		q.must("List", err)
		for _, info := range got.Tasks {
			seen[info.Member]++
		}
		if got.Cursor == "" {
			break
		}
		query.Cursor = got.Cursor
		for i := range 5 { // one goes, one moves, one comes before and after
			q.changeOne(dueq.OpDelete, fmt.Sprintf("goes%02d", (page*5+i)%100))
		}
		q.change(dueq.OpReschedule, dueq.Target{Member: fmt.Sprintf("goes%02d", 99-page%50), When: dueq.At(base)})
		q.schedule(q.item(fmt.Sprintf("aa%d", page), dueq.At(base)), q.item(fmt.Sprintf("zz%d", page), dueq.At(base.Add(9*time.Second))))
		if len(got.Tasks) > 0 { // the one the cursor stands on, if it may go
			if last := got.Tasks[len(got.Tasks)-1].Member; strings.HasPrefix(last, "goes") {
				q.changeOne(dueq.OpDelete, last)
			}
		}
	}
	for i := range 100 {
		m := fmt.Sprintf("keep%02d", i)
		same(q, "times that "+m+" was listed", seen[m], 1)
	}
}

func listOverdue(q *queue) {
	q.put("past", dueq.At(q.Now().Add(-time.Hour)))
	q.put("now", dueq.In(0))
	q.put("next", dueq.In(time.Millisecond))
	overdue := dueq.ListQuery{State: dueq.StateScheduled, Overdue: true, Limit: 1}
	sameList(q, "overdue", q.names(overdue), []string{"past", "now"})
	q.Advance(time.Millisecond)
	sameList(q, "overdue a millisecond later", q.names(overdue), []string{"past", "now", "next"})
}

func listError(q *queue) {
	var want []string
	q.schedule(q.items("t", 60, dueq.In(0))...)
	for i, task := range q.claim(60, 0).Tasks {
		text := fmt.Sprintf("code %d: 100%% [a-z]* of %s", i%3, task.ID)
		if i%3 == 1 {
			want = append(want, task.ID)
		}
		q.end(task, dueq.VerdictDead, 0, text, dueq.StatusDone)
	}
	for _, text := range []string{"code 1", "1: 100% [a-z]*"} {
		sameList(q, text, q.names(dueq.ListQuery{State: dueq.StateDead, Error: text, Limit: 7}), want)
	}
	q.length("with another case", len(q.names(dueq.ListQuery{State: dueq.StateDead, Error: "CODE"})), 0)
	sameList(q, "one of them", q.names(dueq.ListQuery{State: dueq.StateDead, Error: "of t00017"}), []string{"t00017"})
	q.length("among scheduled", len(q.names(dueq.ListQuery{State: dueq.StateScheduled, Error: "code"})), 0)
}

func listBehind(q *queue) {
	for _, m := range []string{"a", "b", "c"} {
		q.put(m, dueq.In(0))
	}
	q.length("tasks", len(q.claim(10, time.Hour).Tasks), 3)
	q.put("a", dueq.In(0))
	q.Advance(time.Second)
	q.none()
	q.put("b", dueq.At(q.Now().Add(-time.Minute)))
	q.put("d", dueq.At(q.Now().Add(-time.Hour)))
	q.put("e", dueq.In(time.Hour))
	for _, limit := range []int{1, 2, 100} {
		sameList(q, "scheduled", q.names(dueq.ListQuery{State: dueq.StateScheduled, Limit: limit}), []string{"d", "b", "a", "e"})
		sameList(q, "active", q.names(dueq.ListQuery{State: dueq.StateActive, Limit: limit}), []string{"a", "b", "c"})
		sameList(q, "overdue", q.names(dueq.ListQuery{State: dueq.StateScheduled, Overdue: true, Limit: limit}), []string{"d", "b", "a"})
	}
}

func listBodies(q *queue) {
	q.put("with", dueq.In(time.Hour), "body")
	q.put("without", dueq.In(time.Hour))
	for _, info := range q.list(dueq.ListQuery{State: dueq.StateScheduled}) {
		same(q, "body of "+info.Member, string(info.Body), "")
		same(q, "has body: "+info.Member, info.HasBody, info.Member == "with")
	}
}

func listRefused(q *queue) {
	q.schedule(q.items("t", 3, dueq.In(time.Hour))...)
	for name, query := range map[string]dueq.ListQuery{
		"no state":      {},
		"state 9":       {State: 9},
		"limit -1":      {State: dueq.StateScheduled, Limit: -1},
		"limit 1001":    {State: dueq.StateScheduled, Limit: dueq.MaxItems + 1},
		"cursor":        {State: dueq.StateScheduled, Cursor: "garbage"},
		"binary cursor": {State: dueq.StateDead, Cursor: "\x00\xff"},
		"long cursor":   {State: dueq.StateActive, Cursor: string(make([]byte, 5000))},
	} {
		query.Queue = q.name
		page, err := q.Store.List(q.Context(), query)
		q.fails(name, err, dueq.ErrInvalid)
		q.length("tasks", len(page.Tasks), 0)
	}
}

func unknownQueue(q *queue) {
	infos, err := q.Store.Get(q.Context(), q.name, []string{"x", "y"})
	q.must("Get", err)
	q.length("infos", len(infos), 2)
	same(q, "state", infos[1].State, dueq.StateNone)
	for _, state := range []dueq.State{dueq.StateScheduled, dueq.StateActive, dueq.StateDead} {
		q.length(state.String(), len(q.list(dueq.ListQuery{State: state})), 0)
	}
	s := q.stats()
	sameTime(q, "now", s.Now, q.Now())
	s.Now = time.Time{}
	same(q, "stats", s, dueq.QueueStats{Queue: q.name})
	settings, err := q.Store.Settings(q.Context(), q.name)
	q.must("Settings", err)
	same(q, "settings", settings, dueq.DefaultSettings())
	all, err := q.Store.Stats(q.Context())
	q.must("Stats", err)
	if slices.ContainsFunc(all, func(s dueq.QueueStats) bool { return s.Queue == q.name }) {
		q.Error("reading made the queue known")
	}
}

func statsCount(q *queue) {
	q.watched()
	q.schedule(q.items("a", 3, dueq.In(0))...)
	c := q.claim(3, time.Minute)
	claimed := q.Now()
	q.length("tasks", len(c.Tasks), 3)
	q.end(c.Tasks[0], dueq.VerdictDead, 0, "e", dueq.StatusDone)
	q.put("b", dueq.In(0))
	due := q.put("c", dueq.In(time.Minute)).Due
	q.put(c.Tasks[1].ID, dueq.In(time.Hour))
	q.Advance(time.Millisecond)
	s := q.stats()
	same(q, "queue", s.Queue, q.name)
	sameTime(q, "now", s.Now, q.Now())
	same(q, "scheduled", s.Scheduled, 3)
	same(q, "overdue", s.Overdue, 1)
	same(q, "active", s.Active, 2)
	same(q, "dead", s.Dead, 1)
	sameTime(q, "next due", s.NextDue, claimed)
	sameTime(q, "next lease end", s.NextLease, c.LeaseEnds)
	sameTime(q, "last claim", s.LastClaim, claimed)
	q.changeOne(dueq.OpDelete, "b")
	sameTime(q, "next due", q.stats().NextDue, due)
}

func statsMany(q *queue) {
	names := []string{q.name + "z", q.name + "a", q.name + "m"}
	for i, name := range names {
		item := q.item("x", dueq.In(time.Hour))
		item.Queue = name
		for j := range i + 1 {
			item.Task.ID = fmt.Sprint("x", j)
			q.schedule(item)
		}
	}
	some, err := q.Store.Stats(q.Context(), names...)
	q.must("Stats", err)
	q.length("stats", len(some), 3)
	for i, s := range some {
		same(q, "queue", s.Queue, names[i])
		same(q, "scheduled", s.Scheduled, int64(i+1))
	}
	all, err := q.Store.Stats(q.Context())
	q.must("Stats", err)
	var known []string
	for _, s := range all {
		known = append(known, s.Queue)
	}
	if !slices.IsSorted(known) {
		q.Errorf("not by name: %q", known)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			q.Errorf("%s is not known: %q", name, known)
		}
	}
}

func probeLeavesNothing(q *queue) {
	p, ok := q.Store.(dueq.Prober)
	if !ok {
		return // it cannot be asked
	}
	q.put("there", dueq.In(time.Hour))
	before := q.stats()
	for range 2 {
		q.must("Probe", p.Probe(q.Context()))
	}
	after := q.stats()
	before.Now, after.Now = time.Time{}, time.Time{}
	same(q, "stats", after, before)
}
