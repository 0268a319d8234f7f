package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dueq/dueq"
)

// Patience is how long after it was asked, or after its caller gave up, a call
// without an answer may still take effect: stores end every call within a
// second, and a shared call may first wait for the one before it.
const Patience = 3 * time.Second

// What is a kind of finding.
type What string

// NotReplicated is what a store that loses its last writes may do; all others
// are never right.
const (
	Lost          What = "lost"           // an acknowledged task never handled to its end, and in no place
	NotReplicated What = "not replicated" // lost, or run though cancelled or replaced, since a fault lost the last writes
	Early         What = "early"          // run before it could be due, by the store's clock
	Unexplained   What = "unexplained"    // run again without a fault that explains it
	Beside        What = "beside itself"  // claimed while an earlier delivery held its lease
	Cancelled     What = "cancelled"      // run after a confirmed cancel, stop, delete or replacement
	Stranger      What = "stranger"       // run though nobody scheduled it, or the schedule was refused or kept another
	Wrong         What = "wrong total"    // counters that do not add up
	Odd           What = "odd error"      // a call failed with an error that is none of dueq's
)

// Finding is one thing wrong in a history.
type Finding struct {
	What
	Key
	Text string
}

func (f Finding) String() string { return fmt.Sprintf("%s: %s: %s", f.What, f.Key, f.Text) }

// Report is what Check found.
type Report struct {
	Tasks        int // with at least one schedule
	Acknowledged int // schedules; Unknown and Refused as well
	Unknown      int
	Refused      int
	Handled      int // schedules with a run that ended for good
	Findings     []Finding
	Second       []Second // runs that a fault explains
}

// Count returns how many findings there are of one kind.
func (r *Report) Count(what What) int {
	n := 0
	for _, f := range r.Findings {
		if f.What == what {
			n++
		}
	}
	return n
}

// Explained returns how many second runs a kind of fault explains; all of them
// without a kind.
func (r *Report) Explained(kind string) int {
	n := 0
	for _, s := range r.Second {
		if kind == "" || s.Fault.Kind == kind {
			n++
		}
	}
	return n
}

// Bad returns the findings that no fault excuses.
func (r *Report) Bad() []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.What == NotReplicated })
}

// Check judges a history that has ended: the faults are over, the queues are
// drained. It raises no false alarm as long as the history's bodies tell its
// schedules apart.
func Check(h *History) *Report {
	c := &checker{
		History: h, report: &Report{}, tasks: map[Key]*task{},
		readings: map[string][]*Delivery{}, second: map[string][]Second{},
	}
	c.sort()
	for _, k := range slices.SortedFunc(maps.Keys(c.tasks), compareKeys) {
		c.checkTask(c.tasks[k])
	}
	c.countExplained()
	c.checkTotals()
	c.checkErrors()
	return c.report
}

// checkErrors finds calls whose callers cannot know what to do.
func (c *checker) checkErrors() {
	for _, call := range c.Calls {
		if call.Err != "" {
			c.find(Odd, call.Key, "%s by %s: %s", call.Do, call.Process, call.Err)
		}
	}
}

func compareKeys(a, b Key) int { return strings.Compare(a.String(), b.String()) }

type checker struct {
	*History
	report *Report
	tasks  map[Key]*task

	readings map[string][]*Delivery // by queue, as they were answered: they tell the store's clock
	second   map[string][]Second    // by queue: what leases that ended must explain
}

// task is what happened to one task, in order.
type task struct {
	Key
	calls      []*Call
	deliveries []*Delivery
	schedules  map[string]*schedule // by mark
}

// schedule is one schedule and its deliveries.
type schedule struct {
	*Call
	deliveries []*Delivery
}

func (c *checker) sort() {
	for _, call := range c.Calls {
		if call.Do == Settle || call.Do == Extend {
			continue
		}
		t := c.task(call.Key)
		t.calls = append(t.calls, call)
		if call.Do != Schedule {
			continue
		}
		if t.schedules[call.Mark] != nil {
			panic(fmt.Sprintf("history: two schedules of %s with body %q", call.Key, call.Mark))
		}
		t.schedules[call.Mark] = &schedule{Call: call}
	}
	for _, d := range c.Deliveries {
		t := c.task(d.Key)
		t.deliveries = append(t.deliveries, d)
		c.readings[d.Queue] = append(c.readings[d.Queue], d)
	}
	for _, all := range c.readings {
		slices.SortFunc(all, func(a, b *Delivery) int { return cmp.Compare(a.Answered, b.Answered) })
	}
	for _, t := range c.tasks {
		c.order(t.deliveries)
		for _, d := range t.deliveries {
			if s := t.schedules[d.Mark]; s != nil {
				s.deliveries = append(s.deliveries, d)
			}
		}
	}
}

func (c *checker) task(k Key) *task {
	t := c.tasks[k]
	if t == nil {
		t = &task{Key: k, schedules: map[string]*schedule{}}
		c.tasks[k] = t
	}
	return t
}

// order sorts deliveries of one task as the store made them. Of claims that
// overlap the store's clock tells or, if somebody set it then, their numbers.
func (c *checker) order(ds []*Delivery) {
	slices.SortStableFunc(ds, func(a, b *Delivery) int { return cmp.Compare(a.Asked, b.Asked) })
	for i := 1; i < len(ds); i++ {
		for j := i; j > 0 && c.inverted(ds[j-1], ds[j]); j-- {
			ds[j], ds[j-1] = ds[j-1], ds[j]
		}
	}
}

func (c *checker) inverted(a, b *Delivery) bool {
	switch {
	case b.Asked >= a.Answered:
		return false
	case c.stepped(min(a.Asked, b.Asked), max(a.Answered, b.Answered)):
		return numbered(b.Token, a.Token)
	}
	return b.Now.Before(a.Now)
}

// numbered: the first delivery number is before the second. They are given one
// after the other and begin anew after 999,999.
func numbered(first, second dueq.Token) bool {
	ahead := (second - first + 1_000_000) % 1_000_000
	return ahead > 0 && ahead < 500_000
}

func (c *checker) checkTask(t *task) {
	for _, mark := range slices.Sorted(maps.Keys(t.schedules)) {
		s := t.schedules[mark]
		c.count(s)
		c.checkLost(t, s)
		c.checkEarly(t, s)
		c.checkCancelled(t, s)
		c.checkRepeats(t, s)
	}
	c.checkStrangers(t)
	c.checkBeside(t)
	if len(t.schedules) > 0 {
		c.report.Tasks++
	}
}

func (c *checker) count(s *schedule) {
	switch {
	case !s.known():
		c.report.Unknown++
	case s.Answer == Refused:
		c.report.Refused++
	default:
		c.report.Acknowledged++
	}
	if s.handled() {
		c.report.Handled++
	}
}

func (c *checker) find(what What, k Key, format string, args ...any) {
	c.report.Findings = append(c.report.Findings, Finding{what, k, fmt.Sprintf(format, args...)})
}

// stepped: the store's clock was set between two instants.
func (c *checker) stepped(from, until Instant) bool {
	return slices.ContainsFunc(c.Faults, func(f Fault) bool { return f.Step != 0 && f.Until >= from && f.From <= until })
}

// losesWrites: what the store was asked to count may be wrong.
func (c *checker) losesWrites() bool {
	return slices.ContainsFunc(c.Faults, func(f Fault) bool { return f.Loses > 0 })
}

// latest is the last instant at which a call can have taken effect. A clock
// that was set, and perhaps back again, lets a late call pass its deadline.
func (c *checker) latest(call *Call) Instant {
	if call.known() {
		return call.Answered
	}
	end := max(call.Asked, call.Answered).add(Patience)
	for _, f := range c.Faults {
		if f.Step != 0 && f.Until >= call.Asked && f.From <= end {
			end = max(end, f.Until.add(Patience+f.Step.Abs()))
		}
	}
	return end
}

// forgotten returns the fault after which a write acknowledged at that instant
// may be gone, or nil.
func (c *checker) forgotten(at Instant) *Fault {
	for i, f := range c.Faults {
		if f.Loses > 0 && f.From.add(-f.Loses) <= at && at <= f.Until {
			return &c.Faults[i]
		}
	}
	return nil
}

// checkStrangers finds runs that nobody asked for.
func (c *checker) checkStrangers(t *task) {
	for _, d := range t.deliveries {
		switch s := t.schedules[d.Mark]; {
		case s == nil:
			c.find(Stranger, t.Key, "body %q was never scheduled", d.Mark)
		case s.known() && !s.applied():
			c.find(Stranger, t.Key, "body %q ran, its schedule was %s, %s", d.Mark, s.Answer, s.Status)
		}
	}
}

// handled: a run decided for good.
func (s *schedule) handled() bool {
	return slices.ContainsFunc(s.deliveries, func(d *Delivery) bool { return d.final() })
}

// final: the handler ended, and did not ask for another run.
func (d *Delivery) final() bool {
	return d.Ended != 0 && (d.Verdict == dueq.VerdictAck || d.Verdict == dueq.VerdictDead)
}
