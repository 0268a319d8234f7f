// Package storetest is what every implementation of dueq.Store must pass:
// [Run] checks the semantics of docs/design.md one sentence at a time, [Model]
// compares a store with another one over random operations.
//
// The clock of a store under test stands still unless a test steps it, so
// every expectation is exact and nothing sleeps. After each test the
// invariants of its queue are checked.
package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

// Fixture is a store under test with a clock that stands still unless it is
// stepped.
type Fixture struct {
	Store   dueq.Store
	Now     func() time.Time                          // the store's clock, in whole microseconds
	Advance func(d time.Duration)                     // step the store's clock; negative steps back
	Add     func(queue, member string, score float64) // plain ZADD
	Remove  func(queue, member string)                // plain ZREM
	Dump    func(queue string) Snapshot               // what lies in the store, raw

	// Of stores that are a dueq.Forwarder; nil of others.
	Key  func(queue string) string     // K of docs/design.md
	Sent func(key string) [][]string   // a list's elements, one by one, or a stream's fields and values
	Put  func(key, kind, value string) // makes a key that is a list, stream, hash, zset or string

	// JSON says that what the store is told passes through the JSON of the HTTP
	// API: delays are rounded up to the millisecond before they are added to the
	// clock, and the text of an error is UTF-8.
	JSON bool
}

// Snapshot is what lies in a store for one queue.
type Snapshot struct {
	Scheduled, Next, Dead map[string]float64 // Unix ms by member
	Active                map[string]int64   // end of lease in seconds × 1,000,000 + delivery number
	Body, Tries, Error    map[string]string
}

// Run runs every topic against stores from open, which is called once per
// topic. The tests of a topic run one after the other on queues of their own;
// topics run in parallel, so their fixtures may not share a clock.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	for _, topic := range topics {
		t.Run(topic.name, func(t *testing.T) {
			t.Parallel()
			topic.run(t, open(t))
		})
	}
}

// RunInTurn is Run for fixtures that share a clock: the topics run one after
// the other. Each needs a store of its own all the same, for one of them closes
// it, and a clock that is set back, for one of them goes to the year 9999. If
// names are given, only these topics run.
func RunInTurn(t *testing.T, open func(t *testing.T) Fixture, names ...string) {
	for _, topic := range topics {
		if len(names) > 0 && !slices.Contains(names, topic.name) {
			continue
		}
		t.Run(topic.name, func(t *testing.T) { topic.run(t, open(t)) })
	}
}

type topic struct {
	name  string // starts the names of its queues as well
	tests func() []test
}

func (topic topic) run(t *testing.T, f Fixture) {
	for i, test := range topic.tests() {
		t.Run(test.name, func(t *testing.T) {
			q := &queue{T: t, Fixture: f, name: fmt.Sprintf("%s:%d", topic.name, i)}
			q.align(0) // so that what is scheduled for now is due now
			test.run(q)
			q.check()
		})
	}
}

var topics = []topic{
	{"transitions", transitionTests},
	{"schedule", scheduleTests},
	{"members", memberTests},
	{"far", farTests},
	{"claim", claimTests},
	{"scores", scoreTests},
	{"backlog", backlogTests},
	{"lease", leaseTests},
	{"grace", graceTests},
	{"settle", settleTests},
	{"once", onceTests},
	{"forward", forwardTests},
	{"priority", priorityTests},
	{"change", changeTests},
	{"read", readTests},
	{"settings", settingsTests},
	{"input", inputTests},
	{"wake", wakeTests},
	{"close", closeTests},
	{"closing", closingTests},
}

// test is one sentence about stores.
type test struct {
	name string
	run  func(q *queue)
}

// queue is the queue of one test, with what the test did to it that an
// invariant does not survive.
type queue struct {
	*testing.T
	Fixture
	name   string
	zrem   bool // a plain ZREM: side data may be left over
	lossy  bool // it was at_most_once: the totals do not add up
	closed bool // nothing can be checked any more
	faults int
}

// Errorf reports a failure; after twenty of them the test ends.
func (q *queue) Errorf(format string, args ...any) {
	q.Helper()
	q.T.Errorf(format, args...)
	if q.faults++; q.faults == 20 {
		q.Fatal("and so on")
	}
}

// other is another queue of the same test, which has to check it itself.
func (q *queue) other(suffix string) *queue {
	return &queue{T: q.T, Fixture: q.Fixture, name: q.name + suffix}
}

// align steps the clock forward to offset after the next whole second.
func (q *queue) align(offset time.Duration) {
	now := q.Now()
	q.Advance(now.Truncate(time.Second).Add(time.Second + offset).Sub(now))
}

// inMilli is the score of a task due d from now: rounded up, never early.
func (q *queue) inMilli(d time.Duration) float64 {
	if q.JSON {
		d = (d + time.Millisecond - 1).Truncate(time.Millisecond)
	}
	micro := q.Now().UnixMicro() + int64((d+time.Microsecond-1)/time.Microsecond)
	return float64((micro + 999) / 1000)
}

// score is the score of a task due at t.
func score(t time.Time) float64 {
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return float64(ms)
}

func (q *queue) add(member string, score float64) { q.Fixture.Add(q.name, member, score) }

func (q *queue) remove(member string) {
	q.zrem = true
	q.Fixture.Remove(q.name, member)
}

func (q *queue) dump() Snapshot { return q.Dump(q.name) }

// set changes settings given as names and values in turn.
func (q *queue) set(pairs ...string) dueq.Settings {
	q.Helper()
	patch := dueq.SettingsPatch{}
	for i := 0; i < len(pairs); i += 2 {
		patch[pairs[i]] = pairs[i+1]
	}
	q.lossy = q.lossy || patch["delivery"] == "at_most_once"
	s, err := q.Store.SetSettings(q.Context(), q.name, patch)
	q.must("SetSettings", err)
	return s
}

func (q *queue) must(what string, err error) {
	q.Helper()
	if err != nil {
		q.Fatalf("%s: %v", what, err)
	}
}

// item is a task of the queue by its member.
func (q *queue) item(member string, when dueq.When, body ...string) dueq.Item {
	q.Helper()
	task, err := dueq.ParseMember(member)
	q.must("ParseMember", err)
	if len(body) > 0 {
		task.Body = []byte(body[0])
	}
	return dueq.Item{Queue: q.name, Task: task, When: when}
}

// items are n tasks named prefix and a number, all of the same due time.
func (q *queue) items(prefix string, n int, when dueq.When) []dueq.Item {
	items := make([]dueq.Item, n)
	for i := range items {
		items[i] = q.item(fmt.Sprintf("%s%05d", prefix, i), when)
	}
	return items
}

func (q *queue) schedule(items ...dueq.Item) []dueq.Outcome {
	q.Helper()
	var all []dueq.Outcome
	for chunk := range slices.Chunk(items, dueq.MaxItems) {
		outcomes, err := q.Store.Schedule(q.Context(), chunk)
		q.must("Schedule", err)
		all = append(all, outcomes...)
	}
	q.length("outcomes", len(all), len(items))
	return all
}

// put schedules one task that is not scheduled yet.
func (q *queue) put(member string, when dueq.When, body ...string) dueq.Outcome {
	q.Helper()
	o := q.schedule(q.item(member, when, body...))[0]
	if o.Status != dueq.StatusScheduled && o.Status != dueq.StatusRunning {
		q.Fatalf("scheduling %q: got %v (%v), want scheduled or running", member, o.Status, o.Err)
	}
	return o
}

func (q *queue) change(op dueq.Op, targets ...dueq.Target) []dueq.Outcome {
	q.Helper()
	outcomes, err := q.Store.Change(q.Context(), q.name, op, targets)
	q.must(op.String(), err)
	q.length("outcomes", len(outcomes), len(targets))
	return outcomes
}

func (q *queue) changeOne(op dueq.Op, member string) dueq.Outcome {
	q.Helper()
	return q.change(op, dueq.Target{Member: member})[0]
}

func (q *queue) claim(max int, lease time.Duration) dueq.Claim {
	q.Helper()
	c, err := q.Store.Claim(q.Context(), dueq.ClaimRequest{Queue: q.name, Max: max, Lease: lease})
	q.must("Claim", err)
	if len(c.Tasks) > max {
		q.Fatalf("a claim of %d returned %d tasks", max, len(c.Tasks))
	}
	for _, task := range c.Tasks {
		if task.Due.After(q.Now()) {
			q.Fatalf("%q was claimed at %v, before it is due at %v", task.Lease.Member, q.Now(), task.Due)
		}
	}
	return c
}

// one claims the only task that is due.
func (q *queue) one(lease time.Duration) *dueq.Task {
	q.Helper()
	c := q.claim(dueq.MaxItems, lease)
	if len(c.Tasks) != 1 {
		q.Fatalf("claimed %v, want one task; %v", membersOf(c), q.dump())
	}
	return c.Tasks[0]
}

// none claims and expects nothing.
func (q *queue) none() dueq.Claim {
	q.Helper()
	c := q.claim(dueq.MaxItems, 0)
	if len(c.Tasks) > 0 {
		q.Fatalf("claimed %v, want nothing", membersOf(c))
	}
	return c
}

func membersOf(c dueq.Claim) []string {
	members := make([]string, 0, len(c.Tasks))
	for _, task := range c.Tasks {
		members = append(members, task.Lease.Member)
	}
	return members
}

func (q *queue) settle(results ...dueq.Result) []dueq.Outcome {
	q.Helper()
	var all []dueq.Outcome
	for chunk := range slices.Chunk(results, dueq.MaxItems) {
		outcomes, err := q.Store.Settle(q.Context(), q.name, chunk)
		q.must("Settle", err)
		all = append(all, outcomes...)
	}
	q.length("outcomes", len(all), len(results))
	return all
}

// end settles one delivery and expects its status.
func (q *queue) end(task *dueq.Task, v dueq.Verdict, delay time.Duration, text string, want dueq.Status) dueq.Outcome {
	q.Helper()
	o := q.settle(dueq.Result{Task: task, Verdict: v, Delay: delay, Err: text})[0]
	q.status(fmt.Sprintf("%v of %q", v, task.Lease.Member), o, want)
	return o
}

func (q *queue) ack(task *dueq.Task) {
	q.Helper()
	q.end(task, dueq.VerdictAck, 0, "", dueq.StatusDone)
}

func (q *queue) extend(d time.Duration, tasks ...*dueq.Task) []dueq.Outcome {
	q.Helper()
	leases := make([]dueq.Lease, 0, len(tasks))
	for _, task := range tasks {
		leases = append(leases, task.Lease)
	}
	outcomes, err := q.Store.Extend(q.Context(), q.name, leases, d)
	q.must("Extend", err)
	q.length("outcomes", len(outcomes), len(leases))
	return outcomes
}

func (q *queue) get(member string) dueq.Info {
	q.Helper()
	infos, err := q.Store.Get(q.Context(), q.name, []string{member})
	q.must("Get", err)
	q.length("infos", len(infos), 1)
	return infos[0]
}

// list pages through all tasks of one state.
func (q *queue) list(query dueq.ListQuery) []dueq.Info {
	q.Helper()
	query.Queue = q.name
	var all []dueq.Info
	for range 10_000 {
		page, err := q.Store.List(q.Context(), query)
		q.must("List", err)
		all = append(all, page.Tasks...)
		if query.Cursor = page.Cursor; page.Cursor == "" {
			return all
		}
	}
	q.Fatal("the list does not end")
	return nil
}

func (q *queue) stats() dueq.QueueStats {
	q.Helper()
	all, err := q.Store.Stats(q.Context(), q.name)
	q.must("Stats", err)
	q.length("stats", len(all), 1)
	return all[0]
}

// claimEverySecond passes d, in whole seconds, on a queue where somebody
// claims; tasks that turn up are a failure.
func (q *queue) claimEverySecond(d time.Duration) {
	q.Helper()
	for ; d > 0; d -= time.Second {
		q.Advance(time.Second)
		q.none()
	}
}

// watched makes the queue one that has been claimed from for a while, on a
// whole second: no grace holds a lease back.
func (q *queue) watched() {
	q.Helper()
	q.align(0)
	q.none()
	q.claimEverySecond(6 * time.Second)
}

// endLeases passes the time until every lease has ended and been taken back,
// while nothing is handed out.
func (q *queue) endLeases() {
	q.Helper()
	q.set("paused", "on")
	for _, lease := range q.dump().Active {
		if left := time.Unix(lease/1e6, 0).Sub(q.Now()); left > 0 {
			q.Advance(left)
		}
	}
	for range 4 { // the first finds a gap and starts a grace of 5 s
		q.none()
		q.Advance(2 * time.Second)
	}
	q.set("paused", "off")
}

func (q *queue) length(what string, got, want int) {
	q.Helper()
	if got != want {
		q.Fatalf("got %d %s, want %d", got, what, want)
	}
}

func (q *queue) status(what string, o dueq.Outcome, want dueq.Status) {
	q.Helper()
	if o.Status != want || (o.Err != nil) != (want == dueq.StatusRefused) {
		q.Errorf("%s: got %v (%v), want %v", what, o.Status, o.Err, want)
	}
}

// refused expects that an item was refused because of a sentinel.
func (q *queue) refused(what string, o dueq.Outcome, want error) {
	q.Helper()
	if o.Status != dueq.StatusRefused || !errors.Is(o.Err, want) || o.Err.Error() == "" {
		q.Errorf("%s: got %v (%v), want refused (%v)", what, o.Status, o.Err, want)
	}
}

// fails expects the error of a call.
func (q *queue) fails(what string, err, want error) {
	q.Helper()
	if !errors.Is(err, want) {
		q.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// same expects two comparable values to be equal.
func same[T comparable](q *queue, what string, got, want T) {
	q.Helper()
	if got != want {
		q.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// sameTime expects two instants to be equal.
func sameTime(q *queue, what string, got, want time.Time) {
	q.Helper()
	if !got.Equal(want) {
		q.Errorf("%s: got %v, want %v (%v off)", what, got, want, got.Sub(want))
	}
}

// sameList expects two lists to be equal.
func sameList[T comparable](q *queue, what string, got, want []T) {
	q.Helper()
	if !slices.Equal(got, want) {
		q.Errorf("%s:\n got %.300s\nwant %.300s", what, fmt.Sprintf("%q", any(got)), fmt.Sprintf("%q", any(want)))
	}
}

// String shows where members are and their side data, for failures.
func (s Snapshot) String() string {
	var b strings.Builder
	for _, part := range []struct {
		name string
		set  any
		n    int
	}{
		{"scheduled", s.Scheduled, len(s.Scheduled)}, {"next", s.Next, len(s.Next)},
		{"active", s.Active, len(s.Active)}, {"dead", s.Dead, len(s.Dead)},
		{"body", s.Body, len(s.Body)}, {"tries", s.Tries, len(s.Tries)}, {"error", s.Error, len(s.Error)},
	} {
		if part.n > 0 {
			fmt.Fprintf(&b, "%s %.400s\n", part.name, fmt.Sprintf("%v", part.set))
		}
	}
	return b.String()
}
