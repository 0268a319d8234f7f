package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dueq/dueq"
)

func memberTests() []test {
	return []test{
		{"odd members are distinct tasks that every method can address", oddMembers},
		{"members that nobody can write are refused", refusedMembers},
		{"malformed members can be looked up, listed and deleted", malformedMembers},
	}
}

// odd members, close to each other: none may be taken for another.
var odd = []string{
	"order", "Order", "ORDER", "order:", "a:b:c", "a:b:d", "a:bc", "ab:c", "a", "b:a", ":b", "::b",
	"caf\u00e9", "cafe\u0301", "stra\u00dfe", "strasse", "\u212bngstrom", "\u00c5ngstrom",
	"{1}", "{}", "{a}{b}", "{x", "x}", "{{x}}", `"quoted"`, "'quoted'", `back\slash`, `back\\slash`, `\u0041`, "A",
	"*", "?", "[a-z]", "a*", "a?", "^a", "%00", "%41", "$1", "a,b", "a;b", "a|b", "a/b", "../x", "...", "-1", "+1", "0", "00", "1e3", "1000", "0x10", "16",
	"nil", "null", "true", "(1", "[1", "+inf", "-inf", "nan", "-", "+", "a#t", "a#T", "b:k#t:1", "p1", "p1:k", "\U0001f600", "<b>", "&amp;",
	"日本語:種類", "x" + strings.Repeat("y", dueq.MemberMax-1),
}

func oddMembers(q *queue) {
	q.align(0)
	var members []string
	for _, m := range odd {
		if task, err := dueq.ParseMember(m); err != nil {
			continue // refusedMembers has those
		} else if !task.Due.IsZero() || task.Member() != m {
			q.Fatalf("%q parses as %+v", m, task)
		}
		members = append(members, m)
	}
	if len(members) < 60 {
		q.Fatalf("only %d members are left", len(members))
	}
	for i, m := range members {
		q.put(m, dueq.In(time.Duration(i)*time.Second), "body of "+m)
	}
	q.eachIs(members, dueq.StateScheduled)
	sameList(q, "scheduled", q.listed(dueq.StateScheduled), members)

	for i, m := range members {
		o := q.change(dueq.OpReschedule, dueq.Target{Member: m, When: dueq.In(time.Duration(i) * time.Millisecond)})[0]
		q.status("reschedule "+m, o, dueq.StatusDone)
	}
	q.Advance(time.Second)
	c := q.claim(1000, 0)
	sameList(q, "claimed", membersOf(c), members)
	q.eachIs(members, dueq.StateActive)
	for _, task := range c.Tasks {
		same(q, "body", string(task.Body), "body of "+task.Lease.Member)
		same(q, "member of the task", task.Member(), task.Lease.Member)
		same(q, "extend", q.extend(time.Minute, task)[0].Status, dueq.StatusDone)
		q.end(task, dueq.VerdictDead, 0, "error of "+task.Lease.Member, dueq.StatusDone)
	}
	q.eachIs(members, dueq.StateDead)
	for _, m := range members {
		same(q, "error", q.get(m).LastError, "error of "+m)
	}
	q.oneByOne(members)
}

// oneByOne deletes dead members and looks that no other went with them.
func (q *queue) oneByOne(members []string) {
	for i, m := range members {
		q.status("delete "+m, q.changeOne(dueq.OpDelete, m), dueq.StatusDone)
		q.length("dead letters", len(q.dump().Dead), len(members)-i-1)
		same(q, "state of the deleted", q.get(m).State, dueq.StateNone)
	}
}

func (q *queue) eachIs(members []string, want dueq.State) {
	q.Helper()
	infos, err := q.Store.Get(q.Context(), q.name, members)
	q.must("Get", err)
	q.length("infos", len(infos), len(members))
	for i, info := range infos {
		if info.State != want || info.Member != members[i] || info.Malformed != nil || info.Task.Member() != members[i] {
			q.Errorf("%q: got state %v, member %q, malformed %v, want %v", members[i], info.State, info.Member, info.Malformed, want)
		}
		if string(info.Body) != "body of "+members[i] || !info.HasBody {
			q.Errorf("%q: got body %q", members[i], info.Body)
		}
	}
}

// listed are the members of a state in the order of List.
func (q *queue) listed(state dueq.State) []string {
	q.Helper()
	var members []string
	for _, info := range q.list(dueq.ListQuery{State: state, Limit: 7}) {
		members = append(members, info.Member)
	}
	return members
}

func refusedMembers(q *queue) {
	for _, task := range []dueq.Task{
		{}, {ID: "."}, {ID: ".."}, {ID: "a#b"}, {ID: "a:b"}, {ID: "a", Kind: "b:c"}, {ID: "a", Kind: "p0"}, {ID: "a", Kind: "b#c"},
		{ID: " "}, {ID: "a b"}, {ID: "a\n"}, {ID: "a\x00"}, {ID: "a\u00a0b"}, {ID: "\xff"}, {ID: "a", Kind: "\xc0"}, {ID: "a", Kind: "k k"},
		{ID: "a", Trace: "t#"}, {ID: "a", Trace: " "}, {ID: strings.Repeat("x", dueq.MemberMax), Kind: "k"},
	} {
		o := q.schedule(dueq.Item{Queue: q.name, Task: task, When: dueq.In(0)})[0]
		q.refused(fmt.Sprintf("%.30q", task.Member()), o, dueq.ErrInvalid)
	}
	same(q, "what lies there", q.dump().String(), "")
}

// malformed are members that only a plain ZADD can write.
var malformed = []string{"a b", "x#", "a:", "a:b:", "#t", "\xff\xfe", "a\x00b", "tab\t", ".", "..", "a#b#c", ":p3:p4", strings.Repeat("z", dueq.MemberMax+1)}

func malformedMembers(q *queue) {
	q.align(0)
	bad := slices.DeleteFunc(slices.Clone(malformed), func(m string) bool {
		_, err := dueq.ParseMember(m)
		return err == nil
	})
	for _, m := range bad {
		q.add(m, q.inMilli(0))
	}
	q.put("good", dueq.In(0))
	q.malformedAre(bad, dueq.StateScheduled)
	same(q, "the only one claimed", q.one(0).ID, "good")
	q.malformedAre(bad, dueq.StateDead)
	for _, m := range bad {
		if info := q.get(m); info.LastError == "" {
			q.Errorf("%q died without a reason", m)
		}
	}
	same(q, "refused in total", q.stats().Totals.Refused, int64(len(bad)))
	q.oneByOne(bad)
}

func (q *queue) malformedAre(members []string, want dueq.State) {
	q.Helper()
	infos, err := q.Store.Get(q.Context(), q.name, members)
	q.must("Get", err)
	for i, info := range infos {
		if info.State != want || info.Member != members[i] || info.Malformed == nil || info.ID != "" {
			q.Errorf("%.40q: got state %v, member %.40q, malformed %v, id %q, want %v", members[i], info.State, info.Member, info.Malformed, info.ID, want)
		}
	}
	listed := q.listed(want)
	for _, m := range members {
		if !slices.Contains(listed, m) {
			q.Errorf("%.40q is not listed as %v: %.200q", m, want, listed)
		}
	}
}
