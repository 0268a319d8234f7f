package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"pgregory.net/rapid"
)

// modelSteps is how many random operations one check of Model makes.
const modelSteps = 60

var modelQueues atomic.Int64 // names of queues, also across calls of Model

// Model runs random operations on both stores in lockstep with the same frozen
// clock and compares every answer and every snapshot. The clocks must show the
// same time; steps are applied to both. The number of checks is rapid's
// -rapid.checks; a failure prints the simplest sequence found, both answers and
// the seed. At the end the log says how many operations of which kind ran.
func Model(t *testing.T, got, oracle Fixture) {
	ran := counts{}
	defer func() { t.Logf("%d operations on both stores: %s", ran.sum(), ran) }()
	rapid.Check(t, lockstep(t, got, oracle, ran))
}

// FuzzModel is one check of Model with the operations that the fuzzer chooses,
// on stores that open makes for it.
func FuzzModel(f *testing.F, open func(t *testing.T) (got, oracle Fixture)) {
	for seed := range uint64(4) {
		f.Add(randomBytes(seed, 16<<10)) // a check draws that much; where there is less it is skipped
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, oracle := open(t)
		rapid.MakeFuzz(lockstep(t, got, oracle, counts{}))(t, data)
	})
}

func randomBytes(seed uint64, n int) []byte {
	random, data := rand.New(rand.NewPCG(seed, 0)), make([]byte, n)
	for i := range data {
		data[i] = byte(random.Uint64())
	}
	return data
}

// lockstep is one check, which adds to ran what it ran.
func lockstep(t *testing.T, got, oracle Fixture, ran counts) func(*rapid.T) {
	t.Helper()
	if !got.Now().Equal(oracle.Now()) {
		t.Fatalf("the clocks differ: %v and %v", got.Now(), oracle.Now())
	}
	return func(rt *rapid.T) {
		m := newModel(rt, got, oracle)
		for range modelSteps {
			s := rapid.Custom(m.draw).Draw(rt, "step")
			if s.op == "nothing" || s.held != nil && len(m.held) == 0 {
				continue
			}
			m.log = append(m.log, s.String())
			m.apply(s)
			m.compare()
			ran[s.kind()]++
		}
		m.invariants()
	}
}

// counts says how often each kind of operation ran.
type counts map[string]int

func (c counts) sum() (n int) {
	for _, times := range c {
		n += times
	}
	return n
}

// String names the frequent ones first.
func (c counts) String() string {
	kinds := slices.SortedFunc(maps.Keys(c), func(a, b string) int { return cmp.Or(c[b]-c[a], strings.Compare(a, b)) })
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%s %d", kind, c[kind])
	}
	return strings.Join(kinds, ", ")
}

// model is one check: two queues of the same name, and what both stores have
// leased.
type model struct {
	*rapid.T
	sides    [2]Fixture // the store under test, the oracle
	name     string
	priority bool
	members  []string
	held     [][2]*dueq.Task // every delivery so far, stale ones included
	log      []string
	checks   checks
}

var (
	plainMembers    = []string{"a", "b:k", "c", "b:l", "d:k#t", "bad member"}
	priorityMembers = []string{"a:k", "a:k:p5", "a:k:p9", "b:p1", "b", "bad member"}
)

func newModel(rt *rapid.T, got, oracle Fixture) *model {
	m := &model{T: rt, sides: [2]Fixture{got, oracle}, members: plainMembers}
	m.name = fmt.Sprintf("model:%d", modelQueues.Add(1))
	m.priority = rapid.Bool().Draw(rt, "priority")
	patch := dueq.SettingsPatch{"retry_jitter": "0%", "dead_keep": pick(rt, []string{"7d", "10s"}), "retries": pick(rt, []string{"3", "1", "0"})}
	if m.priority {
		m.members = priorityMembers
		patch["priority"] = "on"
	}
	m.checks.priority = m.priority
	if rapid.IntRange(0, 7).Draw(rt, "at most once") == 7 {
		patch["delivery"], m.checks.lossy = "at_most_once", true
	}
	now := got.Now()
	m.advance(now.Truncate(time.Second).Add(time.Second).Sub(now))
	m.log = append(m.log, fmt.Sprintf("%v", patch))
	m.both("settings", func(f Fixture) any {
		_, err := f.Store.SetSettings(context.Background(), m.name, patch)
		return sentinel(err)
	})
	return m
}

func (m *model) advance(d time.Duration) {
	for _, f := range m.sides {
		f.Advance(d)
	}
}

// both runs the same on both stores and compares the answers.
func (m *model) both(what string, run func(f Fixture) any) {
	m.Helper()
	got, want := fmt.Sprintf("%+v", run(m.sides[0])), fmt.Sprintf("%+v", run(m.sides[1]))
	if got != want {
		m.differ(what, got, want)
	}
}

// differ fails. The text of the failure is the same whenever the steps are, or
// rapid could not shrink them; what has times in it is logged.
func (m *model) differ(what, got, want string) {
	m.Helper()
	m.Logf("queue %s, priority %v, members %q\ngot  %s\nwant %s\nthe store has\n%vthe oracle has\n%v",
		m.name, m.priority, m.members, got, want, m.sides[0].Dump(m.name), m.sides[1].Dump(m.name))
	m.Fatalf("%s differs after\n  %s", what, strings.Join(m.log, "\n  "))
}

// apply runs one step on both stores and compares the answers.
func (m *model) apply(s step) {
	switch s.op {
	case "advance":
		m.advance(s.d)
	case "add":
		m.add(s)
	case "remove":
		m.checks.leftovers = true
		m.remove(s)
	case "claim":
		m.claim(s)
	case "set":
		m.checks.lossy = m.checks.lossy || s.setting == "delivery" && s.value == "at_most_once"
		m.both("settings", func(f Fixture) any {
			settings, err := f.Store.SetSettings(context.Background(), m.name, dueq.SettingsPatch{s.setting: s.value})
			settings.Version = 0
			return []any{settings, sentinel(err)}
		})
	default:
		m.both(s.op, func(f Fixture) any { return m.call(f, s) })
	}
}

func (m *model) add(s step) {
	due := float64(m.sides[1].Now().UnixMilli()) + s.score
	if s.raw {
		due = s.score
	}
	for _, f := range m.sides {
		f.Add(m.name, m.members[s.member], due)
	}
}

func (m *model) remove(s step) {
	for _, f := range m.sides {
		f.Remove(m.name, m.members[s.member])
	}
}

// call runs the steps whose answer is one outcome per item.
func (m *model) call(f Fixture, s step) any {
	var outcomes []dueq.Outcome
	var err error
	ctx := context.Background()
	switch s.op {
	case "schedule":
		outcomes, err = f.Store.Schedule(ctx, m.items(f, s))
	case "change":
		outcomes, err = f.Store.Change(ctx, m.name, s.change, m.targets(f, s))
	case "settle":
		outcomes, err = f.Store.Settle(ctx, m.name, m.results(f, s))
	case "extend":
		var leases []dueq.Lease
		for _, task := range m.tasks(f, s) {
			leases = append(leases, task.Lease)
		}
		outcomes, err = f.Store.Extend(ctx, m.name, leases, s.d)
	case "list":
		return m.pages(f, s)
	}
	answers := []string{sentinel(err)}
	for _, o := range outcomes {
		answers = append(answers, fmt.Sprintf("%v due %s %s", o.Status, shortTime(o.Due), sentinel(o.Err)))
	}
	return answers
}

// tasks are the deliveries that a step is about, as one of the stores gave
// them.
func (m *model) tasks(f Fixture, s step) (tasks []*dueq.Task) {
	side := 0
	if f.Store == m.sides[1].Store {
		side = 1
	}
	for _, back := range s.held {
		n := len(m.held)
		tasks = append(tasks, m.held[n-1-back%n][side])
	}
	return tasks
}

func (m *model) results(f Fixture, s step) (results []dueq.Result) {
	for _, task := range m.tasks(f, s) {
		results = append(results, dueq.Result{Task: task, Verdict: s.verdict, Delay: s.d, Err: s.text})
	}
	return results
}

func (m *model) items(f Fixture, s step) []dueq.Item {
	task, err := dueq.ParseMember(m.members[s.member])
	if err != nil {
		task = dueq.Task{ID: m.members[s.member]}
	}
	item := dueq.Item{Queue: m.name, Task: task, When: s.when(f), IfExists: s.mode}
	if s.body != nil {
		item.Task.Body = []byte(*s.body)
	}
	if s.twice {
		second := item
		second.When, second.IfExists = dueq.In(time.Second), dueq.Later
		return []dueq.Item{item, second}
	}
	return []dueq.Item{item}
}

func (m *model) targets(f Fixture, s step) []dueq.Target {
	target := dueq.Target{Member: m.members[s.member], When: s.when(f), State: s.state}
	if s.mustBody && s.body != nil {
		target.Body = []byte(*s.body)
	}
	if s.mustDue {
		target.Due = f.Now()
	}
	return []dueq.Target{target, {Member: m.members[(s.member+1)%len(m.members)], When: s.when(f)}}[:1+btoi(s.twice)]
}

func (m *model) pages(f Fixture, s step) any {
	query := dueq.ListQuery{Queue: m.name, State: s.state, Overdue: s.mustDue && s.state == dueq.StateScheduled, Limit: 2}
	var listed []string
	for range 20 {
		page, err := f.Store.List(context.Background(), query)
		listed = append(listed, sentinel(err))
		for _, info := range page.Tasks {
			listed = append(listed, shortInfo(info))
		}
		if query.Cursor = page.Cursor; query.Cursor == "" {
			break
		}
	}
	return listed
}

// claim claims on both stores and keeps the deliveries side by side.
func (m *model) claim(s step) {
	var tasks [2][]*dueq.Task
	var texts [2]string
	for i, f := range m.sides {
		c, err := f.Store.Claim(context.Background(), dueq.ClaimRequest{Queue: m.name, Max: s.max, Lease: s.d})
		tasks[i] = c.Tasks
		wait := min(c.Wait, 200*year) // until a score beyond the year 9999: some long time
		texts[i] = fmt.Sprintf("%s ends %s wait %v now %s previous %s paused %v", sentinel(err), shortTime(c.LeaseEnds), wait, shortTime(c.Now), shortTime(c.Previous), c.Paused)
		for _, t := range c.Tasks {
			texts[i] += fmt.Sprintf("\n     %q %+v due %s attempt %d round %d age %v body %s",
				t.Lease.Member, dueq.Task{ID: t.ID, Kind: t.Kind, Priority: t.Priority, Trace: t.Trace, Queue: t.Queue},
				shortTime(t.Due), t.Attempt, t.Round, t.Age, shortBody(t.Body))
		}
	}
	if texts[0] != texts[1] {
		m.differ("claim", texts[0], texts[1])
	}
	for i, task := range tasks[0] {
		m.held = append(m.held, [2]*dueq.Task{task, tasks[1][i]})
	}
}

// compare compares all that can be looked at.
func (m *model) compare() {
	m.both("snapshot", func(f Fixture) any { return alike(f.Dump(m.name)) })
	m.both("get", func(f Fixture) any {
		infos, err := f.Store.Get(context.Background(), m.name, m.members)
		texts := []string{sentinel(err)}
		for _, info := range infos {
			texts = append(texts, shortInfo(info))
		}
		return texts
	})
	m.both("stats", func(f Fixture) any {
		stats, err := f.Store.Stats(context.Background(), m.name)
		if err != nil || len(stats) != 1 {
			return fmt.Sprintf("%d stats, error %v", len(stats), err)
		}
		s := stats[0]
		return fmt.Sprintf("%d scheduled, %d overdue, %d active, %d dead, paused %v, now %s, next due %s, next lease %s, last claim %s, %+v",
			s.Scheduled, s.Overdue, s.Active, s.Dead, s.Paused, shortTime(s.Now), shortTime(s.NextDue), shortTime(s.NextLease), shortTime(s.LastClaim), s.Totals)
	})
}

func (m *model) invariants() {
	for i, f := range m.sides {
		stats, err := f.Store.Stats(context.Background(), m.name)
		if err != nil {
			m.Fatalf("Stats: %v", err)
		}
		if found := faults(f.Dump(m.name), stats[0], m.checks); len(found) > 0 {
			m.Logf("queue %s, members %q: %s\n%v", m.name, m.members, strings.Join(found, "\n"), f.Dump(m.name))
			m.Fatalf("invariants of %s broken after\n  %s", []string{"the store", "the oracle"}[i], strings.Join(m.log, "\n  "))
		}
	}
}

// alike is a snapshot without what may differ between stores: delivery
// numbers and the texts of errors.
func alike(s Snapshot) string {
	ends := map[string]int64{}
	for m, lease := range s.Active {
		ends[m] = lease / 1e6
	}
	failed := slices.Sorted(maps.Keys(s.Error))
	return fmt.Sprintf("scheduled %v next %v dead %v active until %v body %q tries %q with error %q",
		s.Scheduled, s.Next, s.Dead, ends, s.Body, s.Tries, failed)
}

func shortInfo(i dueq.Info) string {
	return fmt.Sprintf("{%q %v due %s ends %s died %s again %v cancelled %v failures %d round %d error %v body %v %s malformed %v id %q}",
		i.Member, i.State, shortTime(i.Due), shortTime(i.LeaseEnds), shortTime(i.DiedAt), i.Again, i.Cancelled,
		i.Failures, i.Round, i.LastError != "", i.HasBody, shortBody(i.Body), i.Malformed != nil, i.ID)
}

func shortTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	if dueq.ValidDue(t.UnixMilli()) != nil {
		return "out of bounds" // how a bad score reads as a time is the store's
	}
	return t.UTC().Format("0102T15:04:05.000000")
}

func shortBody(body []byte) string {
	if body == nil {
		return "none"
	}
	return fmt.Sprintf("%q", body)
}

// sentinel is the sentinel of an error, which is what stores agree on.
func sentinel(err error) string {
	if err == nil {
		return "ok"
	}
	for _, known := range []error{dueq.ErrNotFound, dueq.ErrRunning, dueq.ErrDead, dueq.ErrChanged, dueq.ErrLeaseLost,
		dueq.ErrTooLarge, dueq.ErrInvalid, dueq.ErrUnavailable, dueq.ErrClosed} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "error: " + err.Error()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
