package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
)

// Whatever a right store does to callers that overlap, lose answers and die,
// the checker has nothing to say.
func TestCheck_says_nothing_of_histories_of_a_right_store(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(5, 60).Draw(t, "steps") {
			w.step()
		}
		w.drain()
		for _, f := range Check(&w.History).Findings {
			t.Errorf("%v\n%s", f, w.Tell(f.Key))
		}
	})
}

// world is a store with a clock that the test moves, producers whose calls
// overlap, and two workers.
type world struct {
	History
	t     *rapid.T
	store *memstore.Store
	now   int // ms
	ahead int // ms by which the store's clock was set
	calls int
	late  []late
	held  []holdingOf
	names [2]string // of the workers
}

// late is a call that takes effect after its caller gave up.
type late struct {
	at int
	do func()
}

type holdingOf struct {
	worker int
	task   *dueq.Task
	*Delivery
	from int // when the answer to the claim is there
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, now: 1000, names: [2]string{"w0", "w1"}}
	w.Final.Tasks = map[Key]Place{}
	w.store = memstore.New(memstore.Options{Now: func() time.Time { return clock(w.now + w.ahead) }})
	_, err := w.store.SetSettings(context.Background(), q, dueq.SettingsPatch{
		"lease": "1s", "retries": "1000", "retry_first": "10ms", "retry_cap": "50ms",
	})
	w.must(err)
	return w
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) draw(what string, most int) int { return rapid.IntRange(0, most).Draw(w.t, what) }

func (w *world) step() {
	switch w.draw("step", 9) {
	case 0, 1:
		w.pass(w.draw("ms", 400))
	case 2, 3:
		w.schedule()
	case 4:
		w.change()
	case 5, 6:
		w.claim(w.draw("worker", 1), true)
	case 7, 8:
		w.settle()
	case 9:
		w.fault()
	}
}

// pass lets time pass. What was late takes effect, living workers keep their
// leases.
func (w *world) pass(d int) {
	end := w.now + d
	slices.SortStableFunc(w.late, func(a, b late) int { return a.at - b.at })
	for len(w.late) > 0 && w.late[0].at <= end {
		next := w.late[0]
		w.late = w.late[1:]
		w.now = max(w.now, next.at)
		next.do()
	}
	w.now = end
	for _, h := range w.held {
		w.extend(h)
	}
}

// ask adds a call around the present moment and lets it take effect now, later
// or never.
func (w *world) ask(c Call, do func() dueq.Outcome) {
	w.calls++
	c.ID, c.Process = fmt.Sprint(w.calls), "producer"
	c.Asked, c.Answered = ms(w.now-w.draw("before", 300)), ms(w.now+w.draw("after", 300))
	c.Answer = Unknown
	w.Calls = append(w.Calls, &c)
	switch w.draw("answer", 7) {
	case 0: // never
	case 1:
		at := int((c.Asked-ms(0))/Instant(time.Millisecond)) + w.draw("late", int(Patience.Milliseconds()))
		w.late = append(w.late, late{max(at, w.now), func() { do() }})
	case 2: // the answer is lost
		do()
	case 3: // the caller died
		c.Answered = 0
		do()
	default:
		o := do()
		c.Answer, c.Status, c.Due = Acknowledged, o.Status, o.Due
	}
}

func (w *world) member() string { return []string{"a:k", "b:k", "c"}[w.draw("member", 2)] }

func (w *world) schedule() {
	member, mark := w.member(), fmt.Sprint(w.calls)
	task, err := dueq.ParseMember(member)
	w.must(err)
	task.Body = []byte(mark)
	delay := time.Duration(w.draw("delay", 900)) * time.Millisecond
	item := dueq.Item{Queue: q, Task: task, When: dueq.In(delay), IfExists: dueq.IfExists(w.draw("if exists", 3))}
	c := Call{Do: Schedule, Key: Key{q, member}, Mark: mark, IfExists: item.IfExists, Delay: delay}
	w.ask(c, func() dueq.Outcome {
		outcomes, err := w.store.Schedule(context.Background(), []dueq.Item{item})
		w.must(err)
		return outcomes[0]
	})
}

func (w *world) change() {
	ops := []dueq.Op{dueq.OpCancel, dueq.OpStop, dueq.OpReschedule, dueq.OpRequeue, dueq.OpDelete}
	op, delay := ops[w.draw("op", 4)], time.Duration(w.draw("delay", 900))*time.Millisecond
	target := dueq.Target{Member: w.member(), When: dueq.In(delay)}
	w.ask(Call{Do: Do(op.String()), Key: Key{q, target.Member}, Delay: delay}, func() dueq.Outcome {
		outcomes, err := w.store.Change(context.Background(), q, op, []dueq.Target{target})
		w.must(err)
		return outcomes[0]
	})
}

func (w *world) claim(worker int, mayLose bool) {
	w.pass(1) // no two claims at one instant: the clock tells their order
	claim, err := w.store.Claim(context.Background(), dueq.ClaimRequest{Queue: q, Max: 2})
	w.must(err)
	if mayLose && w.draw("lose the claim", 9) == 0 {
		w.note("cut", "", w.now, w.now+300)
		return
	}
	before, after := w.draw("before", 300), w.draw("after", 300)
	for _, task := range claim.Tasks {
		d := &Delivery{
			Process: w.names[worker], Key: Key{q, task.Lease.Member}, Mark: string(task.Body), Token: task.Lease.Token,
			Attempt: task.Attempt, Due: task.Due, Now: claim.Now, LeaseEnds: claim.LeaseEnds,
			Asked: ms(w.now - before), Answered: ms(w.now + after), Started: ms(w.now + after),
		}
		w.Deliveries = append(w.Deliveries, d)
		w.held = append(w.held, holdingOf{worker, task, d, w.now + after})
	}
}

func (w *world) settle() {
	if len(w.held) == 0 {
		return
	}
	i := w.draw("held", len(w.held)-1)
	h := w.held[i]
	w.held = slices.Delete(w.held, i, i+1)
	w.pass(max(h.from-w.now, 0))
	r := dueq.Result{Task: h.task, Verdict: dueq.Verdict(w.draw("verdict", 4)), Delay: time.Duration(w.draw("delay", 200)) * time.Millisecond}
	c := &Call{Do: Settle, Key: h.Key, Token: h.Token, Verdict: r.Verdict, Asked: ms(w.now), Answered: ms(w.now + w.draw("after", 300)), Answer: Unknown}
	if h.Ended, h.Verdict = ms(w.now), r.Verdict; r.Verdict == dueq.VerdictRelease {
		h.Started, h.Ended = 0, 0
	}
	h.settles = append(h.settles, c)
	lost := w.draw("settle", 5)
	if lost < 2 { // on its way there, or on its way back
		w.note("cut", "", w.now, w.now+300)
	}
	if lost == 0 {
		return
	}
	outcomes, err := w.store.Settle(context.Background(), q, []dueq.Result{r})
	w.must(err)
	if lost > 1 {
		c.Answer, c.Status, c.Due = Acknowledged, outcomes[0].Status, outcomes[0].Due
	}
}

func (w *world) extend(h holdingOf) {
	outcomes, err := w.store.Extend(context.Background(), q, []dueq.Lease{h.task.Lease}, time.Second)
	w.must(err)
	h.extends = append(h.extends, &Call{Do: Extend, Asked: ms(w.now), Answered: ms(w.now), Answer: Acknowledged, Status: outcomes[0].Status, Due: outcomes[0].Due})
}

func (w *world) note(kind, process string, from, until int) {
	w.Faults = append(w.Faults, Fault{Kind: kind, Process: process, From: ms(from), Until: ms(until)})
}

// fault kills a worker, sets the clock, or cuts all off from the store for
// longer than a lease.
func (w *world) fault() {
	switch w.draw("fault", 2) {
	case 0:
		w.setClock(w.draw("ahead", 6000) - 3000)
	case 1:
		victim := w.draw("worker", 1)
		w.note("worker killed", w.names[victim], w.now, w.now)
		w.held = slices.DeleteFunc(w.held, func(h holdingOf) bool { return h.worker == victim })
		w.names[victim] += "'"
	case 2:
		from := w.now
		w.now += w.draw("outage", 4000)
		w.late = slices.DeleteFunc(w.late, func(l late) bool { return l.at <= w.now }) // never got through
		w.note("outage", "", from, w.now)
	}
}

// setClock sets the store's clock while no claim is under way, or their order
// could not be told.
func (w *world) setClock(by int) {
	w.pass(301)
	w.note("step", "", w.now, w.now)
	w.Faults[len(w.Faults)-1].Step = time.Duration(by) * time.Millisecond
	w.ahead += by
	w.pass(301)
}

// drain lets both workers die and handles all that is left.
func (w *world) drain() {
	for victim, name := range w.names {
		w.note("worker killed", name, w.now, w.now)
		w.names[victim] += "'"
	}
	w.held = nil
	for range 1000 {
		w.pass(500)
		w.claim(0, false)
		for _, h := range w.held {
			w.acknowledge(h)
		}
		w.held = nil
		st, err := w.store.Stats(context.Background(), q)
		w.must(errors.Join(err, st[0].Err))
		if st[0].Scheduled+st[0].Active == 0 && len(w.late) == 0 {
			w.finish(st)
			return
		}
	}
	w.t.Fatal("the queue does not get empty")
}

func (w *world) acknowledge(h holdingOf) {
	w.now = max(w.now, h.from)
	outcomes, err := w.store.Settle(context.Background(), q, []dueq.Result{{Task: h.task}})
	w.must(err)
	h.Ended = ms(w.now)
	h.settles = append(h.settles, &Call{Do: Settle, Asked: ms(w.now), Answered: ms(w.now), Answer: Acknowledged, Status: outcomes[0].Status})
}

func (w *world) finish(st []dueq.QueueStats) {
	w.Final.Queues = st
	members := []string{"a:k", "b:k", "c"}
	infos, err := w.store.Get(context.Background(), q, members)
	w.must(err)
	for i, info := range infos {
		w.Final.Tasks[Key{q, members[i]}] = Place{info.State, strings.Clone(string(info.Body))}
	}
}
