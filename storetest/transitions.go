package storetest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dueq/dueq"
)

// The places a member can be in, in the order of the columns of transitions:
// S scheduled, N in next, A active, C active and cancelled, D dead.
var places = []string{"none", "S", "A", "A+S", "A+N", "C", "C+S", "D", "D+S"}

// before is the side data (body, tries, error) that arrange leaves in a place.
var before = map[string]string{
	"none": ". . .", "S": "b1 1/1 e1", "A": "b1 1/1 e1", "A+S": "b2 1/1 e1", "A+N": "b2 1/1 e1",
	"C": ". - *", "C+S": ". - *", "D": "b1 2/1 e2", "D+S": "b1 2/1 e2",
}

// transitions is the table of docs/design.md with its side data: one line per
// transition, one cell per place, "places answer due body tries error". A dot
// is none, an asterisk anything, a plus anything but none, a tilde anything
// but the mark of a cancelled run. Due is that of S or else N: old is as it
// was, new as asked for, task as the delivery carried, now the clock.
// A cell of one word is an answer after which nothing has changed; unchanged
// stands for any such answer.
const transitions = `
schedule replace      | S scheduled new b3 . . | S replaced new b3 . . | A+S running new b3 1/1 e1 | A+S running new b3 1/1 e1 | A+S running new b3 1/1 e1 | A+S running new b3 ~ * | A+S running new b3 ~ * | S scheduled new b3 . . | S replaced new b3 . .
schedule bodiless     | S scheduled new . . . | S replaced new . . . | A+S running new . 1/1 e1 | A+S running new . 1/1 e1 | A+S running new . 1/1 e1 | A+S running new . ~ * | A+S running new . ~ * | S scheduled new . . . | S replaced new . . .
schedule keep         | S scheduled new b3 . . | kept | A+S running new b3 1/1 e1 | kept | kept | A+S running new b3 ~ * | kept | S scheduled new b3 . . | kept
earlier, better       | S scheduled new b3 . . | S replaced new b3 . . | A+S running new b3 1/1 e1 | A+S running new b3 1/1 e1 | A+S running new b3 1/1 e1 | A+S running new b3 ~ * | A+S running new b3 ~ * | S scheduled new b3 . . | S replaced new b3 . .
earlier, equal        | S scheduled new b3 . . | kept | A+S running new b3 1/1 e1 | kept | kept | A+S running new b3 ~ * | kept | S scheduled new b3 . . | kept
earlier, worse        | S scheduled new b3 . . | kept | A+S running new b3 1/1 e1 | kept | kept | A+S running new b3 ~ * | kept | S scheduled new b3 . . | kept
later, better         | S scheduled new b3 . . | S replaced new b3 . . | A+S running new b3 1/1 e1 | A+S running new b3 1/1 e1 | A+S running new b3 1/1 e1 | A+S running new b3 ~ * | A+S running new b3 ~ * | S scheduled new b3 . . | S replaced new b3 . .
later, equal          | S scheduled new b3 . . | kept | A+S running new b3 1/1 e1 | kept | kept | A+S running new b3 ~ * | kept | S scheduled new b3 . . | kept
later, worse          | S scheduled new b3 . . | kept | A+S running new b3 1/1 e1 | kept | kept | A+S running new b3 ~ * | kept | S scheduled new b3 . . | kept
cancel                | not_found | none done . . . . | C running . . - * | C running . . - * | C running . . - * | C running . . - * | C running . . - * | dead | D done . b1 2/1 e2
stop                  | not_found | none done . . . . | none done . . . . | none done . . . . | none done . . . . | none done . . . . | none done . . . . | dead | D done . b1 2/1 e2
reschedule            | not_found | S done new b1 1/1 e1 | running | A+S done new b2 1/1 e1 | A+S done new b2 1/1 e1 | running | C+S done new . - * | dead | D+S done new b1 2/1 e2
requeue               | not_found | kept | running | running | running | running | running | S done now b1 0/1 . | S kept old b1 . .
requeue later         | not_found | kept | running | running | running | running | running | S done new b1 0/1 . | S kept old b1 . .
delete                | not_found | none done . . . . | running | running | running | running | running | none done . . . . | none done . . . .
delete state dead     | not_found | changed | changed | changed | changed | changed | changed | none done . . . . | S done old b1 . .
delete state scheduled | not_found | none done . . . . | changed | unchanged | unchanged | changed | unchanged | changed | D done . b1 2/1 e2
claim                 | nothing | A claimed . b1 1/1 e1 | nothing | A+N nothing old b2 1/1 e1 | nothing | nothing | C+N nothing old . - * | nothing | A claimed . b1 . .
claim of a bad score  | nothing | D nothing . b1 * + | nothing | A+N nothing * b2 1/1 e1 | nothing | nothing | C+N nothing * . - * | nothing | D nothing . b1 * +
claim too late        | nothing | D nothing . b1 * + | nothing | A+N nothing old b2 1/1 e1 | nothing | nothing | C+N nothing old . - * | nothing | D nothing . b1 * +
ack                   | lease_lost | lease_lost | none done . . . . | S superseded old b2 . . | S superseded old b2 . . | none superseded . . . . | S superseded old . . . | lease_lost | lease_lost
retry                 | lease_lost | lease_lost | S done new b1 2/1 e3 | S superseded old b2 . . | S superseded old b2 . . | none superseded . . . . | S superseded old . . . | lease_lost | lease_lost
retry, used up        | lease_lost | lease_lost | D done . b1 2/1 e3 | S superseded old b2 . . | S superseded old b2 . . | none superseded . . . . | S superseded old . . . | lease_lost | lease_lost
again                 | lease_lost | lease_lost | S done new b1 0/2 . | S superseded old b2 . . | S superseded old b2 . . | none superseded . . . . | S superseded old . . . | lease_lost | lease_lost
release               | lease_lost | lease_lost | S done task b1 1/1 e1 | S superseded old b2 . . | S superseded old b2 . . | none superseded . . . . | S superseded old . . . | lease_lost | lease_lost
release with a delay  | lease_lost | lease_lost | S done new b1 1/1 e1 | S superseded old b2 . . | S superseded old b2 . . | none superseded . . . . | S superseded old . . . | lease_lost | lease_lost
dead                  | lease_lost | lease_lost | D done . b1 2/1 e3 | S superseded old b2 . . | S superseded old b2 . . | none superseded . . . . | S superseded old . . . | lease_lost | lease_lost
extend                | lease_lost | lease_lost | done | done | done | done | done | lease_lost | lease_lost
lease ends            | nothing | nothing | S nothing * b1 2/1 + | S nothing old b2 . . | S nothing old b2 . . | none nothing . . . . | S nothing old . . . | nothing | nothing
last lease ends       | nothing | nothing | D nothing . b1 2/1 + | S nothing old b2 . . | S nothing old b2 . . | none nothing . . . . | S nothing old . . . | nothing | nothing
plain ZADD            | S nothing new . . . | S nothing new b1 1/1 e1 | A+S nothing new b1 1/1 e1 | A+S nothing new b2 1/1 e1 | A+N+S nothing new b2 1/1 e1 | C+S nothing new . - * | C+S nothing new . - * | D+S nothing new b1 2/1 e2 | D+S nothing new b1 2/1 e2
plain ZREM            | nothing | none nothing . b1 1/1 e1 | nothing | A nothing . b2 1/1 e1 | nothing | nothing | C nothing . . - * | nothing | D nothing . b1 2/1 e2
`

func transitionTests() []test {
	var tests []test
	for line := range strings.Lines(strings.TrimSpace(transitions)) {
		cells := strings.Split(line, "|")
		name := strings.TrimSpace(cells[0])
		for i, place := range places {
			cell := strings.Fields(cells[i+1])
			title := fmt.Sprintf("%s of %s: %s", name, place, strings.Join(cell, " "))
			tests = append(tests, test{title, func(q *queue) { newCase(q, place).check(name, cell) }})
		}
	}
	return append(tests,
		test{"a ZADD beside next survives the run and next goes", zaddBesideNext},
		test{"what is in next keeps its due when its run ends in any way", nextKeepsDue})
}

const member = "order:close"

// transition is one cell: a member brought to a place, and the last delivery
// that anybody holds of it.
type transition struct {
	*queue
	place string
	held  *dueq.Task
	old   float64 // due in S or N
	due   float64 // that the transition asks for
}

// newCase brings the member to a place. Each delivery but the last was
// settled; where nothing is active the held one was settled too.
func newCase(q *queue, place string) *transition {
	q.align(0)
	c := &transition{queue: q, place: place}
	if place == "none" {
		q.put(member, dueq.In(0), "b0")
		c.held = q.one(0)
		q.ack(c.held)
		return c
	}
	c.failOnce()
	switch place[0] {
	case 'A', 'C':
		q.Advance(time.Hour)
		c.held = q.one(10 * time.Hour)
	case 'D':
		q.Advance(time.Hour)
		c.held = q.one(0)
		q.end(c.held, dueq.VerdictDead, 0, "e2", dueq.StatusDone)
	}
	c.besides()
	c.old = inForce(q.dump())
	return c
}

// failOnce leaves the member scheduled an hour ahead in its second round after
// one failure.
func (c *transition) failOnce() {
	c.put(member, dueq.In(0), "b1")
	c.end(c.one(0), dueq.VerdictAgain, 0, "", dueq.StatusDone)
	c.held = c.one(0)
	c.end(c.held, dueq.VerdictRetry, time.Hour, "e1", dueq.StatusDone)
}

// besides adds what a place has besides the run or the dead letter.
func (c *transition) besides() {
	switch c.place {
	case "A+S":
		c.put(member, dueq.In(time.Hour), "b2")
	case "A+N":
		c.put(member, dueq.In(0), "b2")
		c.none()
	case "C", "C+S":
		c.status("cancel", c.changeOne(dueq.OpCancel, member), dueq.StatusRunning)
	}
	if c.place == "C+S" || c.place == "D+S" {
		c.add(member, c.inMilli(time.Hour))
	}
}

// check applies a transition and compares with the cell.
func (c *transition) check(name string, cell []string) {
	was := c.dump()
	same(c.queue, "place before", placesOf(was, member), c.place)
	c.sides("before", was, strings.Fields(before[c.place]))
	answer := c.apply(name)
	now := c.dump()
	if len(cell) == 1 {
		if cell[0] != "unchanged" {
			same(c.queue, "answer", answer, cell[0])
		}
		c.unchanged(name, was, now)
		return
	}
	same(c.queue, "answer", answer, cell[1])
	same(c.queue, "places", placesOf(now, member), cell[0])
	c.sides("after", now, cell[3:])
	c.dueIs(cell[2], now)
	if c.Failed() {
		c.Logf("%s of %s, before:\n%vafter:\n%v", name, c.place, was, now)
	}
}

func (c *transition) unchanged(name string, was, now Snapshot) {
	if name == "extend" {
		was.Active, now.Active = nil, nil
	}
	same(c.queue, "after "+name+" of "+c.place, now.String(), was.String())
}

// apply applies a transition and returns the answer in a word.
func (c *transition) apply(name string) string {
	word, _, _ := strings.Cut(name, " ")
	switch strings.TrimSuffix(word, ",") {
	case "schedule", "earlier", "later":
		return c.applySchedule(name)
	case "cancel", "stop", "reschedule", "requeue", "delete":
		return c.applyChange(name)
	case "claim":
		return c.applyClaim(name)
	case "ack", "retry", "again", "release", "dead", "extend":
		return c.applySettle(name)
	}
	switch name {
	case "last lease ends":
		c.set("retries", "1")
		fallthrough
	case "lease ends":
		c.endLeases()
	case "plain ZADD":
		c.due = c.inMilli(7 * time.Minute)
		c.add(member, c.due)
	case "plain ZREM":
		c.remove(member)
	default:
		c.Fatalf("no such transition: %s", name)
	}
	return "nothing"
}

func (c *transition) applySchedule(name string) string {
	c.due = c.inMilli(42 * time.Minute)
	item := c.item(member, dueq.When{}, "b3")
	switch name {
	case "schedule bodiless":
		item.Task.Body = nil
	case "schedule keep":
		item.IfExists = dueq.Keep
	default:
		c.due += c.better(name)
	}
	if strings.HasPrefix(name, "earlier") {
		item.IfExists = dueq.Earlier
	} else if strings.HasPrefix(name, "later") {
		item.IfExists = dueq.Later
	}
	item.When = dueq.At(time.UnixMilli(int64(c.due)))
	return c.answer(c.schedule(item)[0])
}

// better moves c.due to the existing due, or a millisecond to the side of it
// that a name like "earlier, worse" asks for.
func (c *transition) better(name string) float64 {
	mode, side, found := strings.Cut(name, ", ")
	if !found || c.old == 0 {
		return 0
	}
	move := c.old - c.due
	if side == "equal" {
		return move
	}
	if (mode == "earlier") == (side == "better") {
		return move - 1
	}
	return move + 1
}

func (c *transition) applyChange(name string) string {
	op := slices.IndexFunc([]string{"cancel", "stop", "reschedule", "requeue", "delete"},
		func(s string) bool { return strings.HasPrefix(name, s) })
	target := dueq.Target{Member: member}
	switch name {
	case "reschedule", "requeue later":
		c.due = c.inMilli(17 * time.Minute)
		target.When = dueq.In(17 * time.Minute)
	case "delete state dead":
		target.State = dueq.StateDead
	case "delete state scheduled":
		target.State = dueq.StateScheduled
	}
	return c.answer(c.change(dueq.Op(op), target)[0])
}

func (c *transition) applyClaim(name string) string {
	switch scheduled := len(c.dump().Scheduled) > 0; {
	case name == "claim":
		c.Advance(time.Hour)
	case name == "claim too late":
		c.set("max_late", "1s")
		c.Advance(time.Hour + 1001*time.Millisecond)
	case scheduled:
		c.add(member, -1)
	}
	claim := c.claim(10, time.Hour)
	if len(claim.Tasks) == 0 {
		return "nothing"
	}
	c.held = claim.Tasks[0]
	same(c.queue, "member claimed", c.held.Lease.Member, member)
	return "claimed"
}

func (c *transition) applySettle(name string) string {
	if name == "extend" {
		o := c.extend(20*time.Hour, c.held)[0]
		if o.Status == dueq.StatusDone {
			sameTime(c.queue, "end of lease in the outcome", o.Due, c.Now().Add(20*time.Hour))
			same(c.queue, "end of lease", c.dump().Active[member]/1e6, c.Now().Add(20*time.Hour).Unix())
		}
		return o.Status.String()
	}
	c.Advance(time.Second)
	result := dueq.Result{Task: c.held, Delay: 3 * time.Minute, Err: "e3"}
	verb, rest, _ := strings.Cut(name, " ")
	result.Verdict, _ = dueq.ParseVerdict(strings.TrimSuffix(verb, ","))
	switch {
	case verb == "release" && rest == "":
		result.Delay = 0
	case rest == "used up":
		c.set("retries", "1")
	}
	c.due = c.inMilli(3 * time.Minute)
	return c.answer(c.settle(result)[0])
}

// answer is the word for an outcome, whose due must be the one in force or,
// where nothing was scheduled by the call, may be missing.
func (c *transition) answer(o dueq.Outcome) string {
	due, optional := inForce(c.dump()), true
	switch o.Status {
	case dueq.StatusScheduled, dueq.StatusReplaced, dueq.StatusKept:
		optional = false
	}
	switch {
	case o.Due.IsZero() && (optional || due == 0):
	case due == 0:
		c.Errorf("outcome %v has due %v, but nothing is scheduled", o.Status, o.Due)
	default:
		sameTime(c.queue, "due in the outcome "+o.Status.String(), o.Due, time.UnixMilli(int64(math.Ceil(due))))
	}
	if o.Err != nil {
		c.Errorf("outcome %v has an error: %v", o.Status, o.Err)
	}
	return o.Status.String()
}

// sides compares body, tries and error with the words of a cell.
func (c *transition) sides(when string, s Snapshot, want []string) {
	c.Helper()
	for i, side := range []map[string]string{s.Body, s.Tries, s.Error} {
		got, ok := side[member]
		switch w := want[i]; {
		case w == "*" || w == "+" && got != "" || w == "~" && !strings.HasPrefix(got, "-"):
		case w == "-" && strings.HasPrefix(got, "-"):
		case w == "." && !ok || ok && got == w:
		default:
			c.Errorf("%s %s of %s: got %q, want %s", []string{"body", "tries", "error"}[i], when, c.place, got, w)
		}
	}
}

func (c *transition) dueIs(word string, s Snapshot) {
	want := map[string]float64{".": 0, "old": c.old, "new": c.due, "task": score(c.held.Due), "now": c.inMilli(0)}
	if got := inForce(s); word != "*" && got != want[word] {
		c.Errorf("due in force: got %.3f, want %.3f (%s)", got, want[word], word)
	}
}

// inForce is the due time of the member in S or else in N, 0 without one.
func inForce(s Snapshot) float64 {
	if due, ok := s.Scheduled[member]; ok {
		return due
	}
	return s.Next[member]
}

// placesOf names where a member is.
func placesOf(s Snapshot, m string) string {
	var at []string
	if _, ok := s.Active[m]; ok && strings.HasPrefix(s.Tries[m], "-") {
		at = append(at, "C")
	} else if ok {
		at = append(at, "A")
	}
	for _, set := range []struct {
		name string
		of   map[string]float64
	}{{"D", s.Dead}, {"N", s.Next}, {"S", s.Scheduled}} {
		if _, ok := set.of[m]; ok {
			at = append(at, set.name)
		}
	}
	if len(at) == 0 {
		return "none"
	}
	return strings.Join(at, "+")
}

func zaddBesideNext(q *queue) {
	c := newCase(q, "A+N")
	due := q.inMilli(time.Minute)
	q.add(member, due)
	q.end(c.held, dueq.VerdictAck, 0, "", dueq.StatusSuperseded)
	s := q.dump()
	same(q, "places", placesOf(s, member), "S")
	same(q, "due", s.Scheduled[member], due)
	same(q, "body", s.Body[member], "b2")
}

func nextKeepsDue(q *queue) {
	for _, v := range []dueq.Verdict{dueq.VerdictAck, dueq.VerdictRetry, dueq.VerdictAgain, dueq.VerdictRelease, dueq.VerdictDead} {
		q.put(member, dueq.In(0))
		task := q.one(time.Hour)
		due := q.inMilli(0)
		q.put(member, dueq.In(0), "next")
		q.Advance(time.Second)
		q.none()
		same(q, "places while it runs", placesOf(q.dump(), member), "A+N")
		q.end(task, v, time.Hour, "e", dueq.StatusSuperseded)
		next := q.one(0)
		same(q, v.String()+": due of the next run", score(next.Due), due)
		same(q, v.String()+": body of the next run", string(next.Body), "next")
		same(q, v.String()+": attempt of the next run", next.Attempt, 1)
		q.ack(next)
	}
}
