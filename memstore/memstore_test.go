package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
)

const queue = "order:close"

var start = time.UnixMicro(1_750_000_000_123_456).UTC()

// fixture is a store with a clock that stands still.
type fixture struct {
	*memstore.Store
	t   *testing.T
	now time.Time
}

func newFixture(t *testing.T, settings ...string) *fixture {
	t.Parallel()
	f := &fixture{t: t, now: start}
	f.Store = memstore.New(memstore.Options{Now: func() time.Time { return f.now }})
	f.set(append([]string{"retry_jitter", "0%"}, settings...)...)
	f.claim() // the first claim gives grace
	f.now = f.now.Add(6 * time.Second)
	f.claim()
	f.now = f.now.Add(6 * time.Second)
	return f
}

func (f *fixture) set(pairs ...string) {
	f.t.Helper()
	patch := dueq.SettingsPatch{}
	for i := 0; i < len(pairs); i += 2 {
		patch[pairs[i]] = pairs[i+1]
	}
	_, err := f.SetSettings(f.t.Context(), queue, patch)
	f.must(err)
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) schedule(t dueq.Task, when dueq.When, how ...dueq.IfExists) dueq.Outcome {
	f.t.Helper()
	it := dueq.Item{Queue: queue, Task: t, When: when}
	if len(how) > 0 {
		it.IfExists = how[0]
	}
	got, err := f.Schedule(f.t.Context(), []dueq.Item{it})
	f.must(err)
	return got[0]
}

func (f *fixture) claim() dueq.Claim {
	f.t.Helper()
	c, err := f.Claim(f.t.Context(), dueq.ClaimRequest{Queue: queue, Max: 100})
	f.must(err)
	return c
}

func (f *fixture) change(op dueq.Op, target dueq.Target) dueq.Status {
	f.t.Helper()
	got, err := f.Change(f.t.Context(), queue, op, []dueq.Target{target})
	f.must(err)
	return got[0].Status
}

func (f *fixture) settle(task *dueq.Task, v dueq.Verdict, delay time.Duration) dueq.Outcome {
	f.t.Helper()
	got, err := f.Settle(f.t.Context(), queue, []dueq.Result{{Task: task, Verdict: v, Delay: delay, Err: "broken"}})
	f.must(err)
	return got[0]
}

func (f *fixture) get(member string) dueq.Info {
	f.t.Helper()
	infos, err := f.Get(f.t.Context(), queue, []string{member})
	f.must(err)
	return infos[0]
}

func (f *fixture) stats() dueq.QueueStats {
	f.t.Helper()
	stats, err := f.Stats(f.t.Context(), queue)
	f.must(err)
	return stats[0]
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func members(tasks []*dueq.Task) string {
	var all []string
	for _, t := range tasks {
		all = append(all, t.Lease.Member)
	}
	return strings.Join(all, " ")
}

func TestClock(t *testing.T) {
	f := newFixture(t)
	o := f.schedule(dueq.Task{ID: "a"}, dueq.In(1500*time.Microsecond+time.Nanosecond))
	due := start.Add(12 * time.Second).Truncate(time.Millisecond).Add(2 * time.Millisecond)
	equal(t, "due of a delay", o.Due, due)

	f.now = due.Add(-time.Microsecond)
	c := f.claim()
	equal(t, "tasks a microsecond early", len(c.Tasks), 0)
	equal(t, "wait", c.Wait, time.Microsecond)

	f.now = due.Add(300 * time.Microsecond)
	c = f.claim()
	equal(t, "tasks when due", members(c.Tasks), "a")
	equal(t, "age", c.Tasks[0].Age, 300*time.Microsecond)
	equal(t, "now", c.Now, f.now)
	if early := c.LeaseEnds.Sub(f.now); early < 30*time.Second || early >= 31*time.Second {
		t.Errorf("lease of 30s ends in %v", early)
	}
}

func TestSchedule_refuses_bad_items_alone(t *testing.T) {
	f := newFixture(t, "body_max", "3")
	bad := []struct {
		item  dueq.Item
		field string
	}{
		{dueq.Item{Queue: "-", Task: dueq.Task{ID: "a"}}, "queue"},
		{dueq.Item{Queue: queue}, "id"},
		{dueq.Item{Queue: queue, Task: dueq.Task{ID: "a", Priority: dueq.P(1)}}, "priority"},
		{dueq.Item{Queue: queue, Task: dueq.Task{ID: "a"}, When: dueq.In(-1)}, "delay"},
		{dueq.Item{Queue: queue, Task: dueq.Task{ID: "a"}, When: dueq.At(time.Unix(1, 0))}, "due"},
		{dueq.Item{Queue: queue, Task: dueq.Task{ID: "a"}, IfExists: 9}, "if_exists"},
		{dueq.Item{Queue: queue, Task: dueq.Task{ID: "a", Body: []byte("long")}}, ""},
	}
	items := []dueq.Item{{Queue: queue, Task: dueq.Task{ID: "good"}}}
	for _, b := range bad {
		items = append(items, b.item)
	}
	got, err := f.Schedule(t.Context(), items)
	f.must(err)
	equal(t, "good item", got[0].Status, dueq.StatusScheduled)
	for i, b := range bad {
		o := got[i+1]
		var field *dueq.FieldError
		if o.Status != dueq.StatusRefused || b.field != "" && (!errors.As(o.Err, &field) || field.Field != b.field) {
			t.Errorf("item %d: got %v, want %s refused", i, o, b.field)
		}
	}
	if !errors.Is(got[len(bad)].Err, dueq.ErrTooLarge) {
		t.Errorf("long body: got %v", got[len(bad)].Err)
	}
}

func TestClaim_meets_odd_scores(t *testing.T) {
	f := newFixture(t)
	due := float64(start.UnixMilli())
	f.Add(queue, "low", 1_750_000_000)
	f.Add(queue, "minus", math.Inf(-1))
	f.Add(queue, "high", 1e18)
	f.Add(queue, "plus", math.Inf(1))
	f.Add(queue, "bad member", due)
	f.Add(queue, "", due)
	f.Add(queue, "fraction", due+0.25)
	f.Add(queue, "good", due)
	f.Add(queue, "removed", due)
	f.Remove(queue, "removed")

	c := f.claim()
	equal(t, "claimed", members(c.Tasks), "good fraction")
	equal(t, "due of a fraction", c.Tasks[1].Due.UnixMilli(), start.UnixMilli()+1)
	for _, member := range []string{"low", "minus", "high", "plus", "bad member", ""} {
		info := f.get(member)
		if info.State != dueq.StateDead || info.LastError == "" || info.Member != member {
			t.Errorf("%q: got %+v, want a dead letter with its reason", member, info)
		}
	}
	if f.get("bad member").Malformed == nil {
		t.Error("bad member is not shown as malformed")
	}
	equal(t, "delete by raw text", f.change(dueq.OpDelete, dueq.Target{Member: "bad member"}), dueq.StatusDone)
	equal(t, "dead", f.stats().Dead, 5)
	equal(t, "refused", f.stats().Totals.Refused, 6)
}

func TestClaim_parks_what_is_active(t *testing.T) {
	f := newFixture(t)
	f.schedule(dueq.Task{ID: "a", Body: []byte("one")}, dueq.In(0))
	f.now = f.now.Add(time.Second)
	run := f.claim().Tasks[0]
	equal(t, "schedule", f.schedule(dueq.Task{ID: "a", Body: []byte("two")}, dueq.In(0)).Status, dueq.StatusRunning)
	f.now = f.now.Add(time.Second)
	equal(t, "beside itself", len(f.claim().Tasks), 0)
	info := f.get("a")
	equal(t, "state", info.State, dueq.StateActive)
	equal(t, "again", info.Again, true)
	equal(t, "scheduled", f.stats().Scheduled, 1)

	equal(t, "retry", f.settle(run, dueq.VerdictRetry, dueq.ByPolicy).Status, dueq.StatusSuperseded)
	second := f.claim().Tasks[0]
	equal(t, "body", string(second.Body), "two")
	equal(t, "attempt", second.Attempt, 1)
	equal(t, "old lease", f.settle(run, dueq.VerdictAck, 0).Status, dueq.StatusLeaseLost)
	equal(t, "ack", f.settle(second, dueq.VerdictAck, 0).Status, dueq.StatusDone)
	equal(t, "state", f.get("a").State, dueq.StateNone)
}

func TestClaim_takes_back_ended_leases_after_grace(t *testing.T) {
	f := newFixture(t, "retries", "1")
	f.schedule(dueq.Task{ID: "a"}, dueq.In(0))
	f.now = f.now.Add(time.Second)
	first := f.claim()
	f.now = first.LeaseEnds.Add(time.Minute)
	c := f.claim()
	equal(t, "after a pause of claims", len(c.Tasks), 0)
	equal(t, "wait", c.Wait, 5*time.Second)
	for range 5 {
		f.now = f.now.Add(time.Second)
		c = f.claim()
	}
	equal(t, "after grace", members(c.Tasks), "a")
	equal(t, "attempt", c.Tasks[0].Attempt, 2)
	for range 32 {
		f.now = f.now.Add(time.Second)
		f.claim()
	}
	equal(t, "after the second lease", f.get("a").State, dueq.StateDead)
	equal(t, "ended", f.stats().Totals.Ended, 2)
}

func TestClaim_prefers_priority(t *testing.T) {
	f := newFixture(t, "priority", "on")
	f.schedule(dueq.Task{ID: "a", Kind: "k", Priority: dueq.P(1)}, dueq.In(0))
	f.schedule(dueq.Task{ID: "b", Kind: "k"}, dueq.In(0))
	f.schedule(dueq.Task{ID: "c", Kind: "k", Priority: dueq.P(3)}, dueq.In(0))
	o := f.schedule(dueq.Task{ID: "b", Kind: "k", Priority: dueq.P(9)}, dueq.In(0))
	equal(t, "other spelling", o.Status, dueq.StatusReplaced)
	equal(t, "found by any spelling", f.get("b:k").Member, "b:k:p9")
	f.now = f.now.Add(time.Second)
	equal(t, "order", members(f.claim().Tasks), "b:k:p9 c:k:p3 a:k:p1")
	equal(t, "cancel", f.change(dueq.OpCancel, dueq.Target{Member: "b:k:p5"}), dueq.StatusRunning)
	equal(t, "cancelled", f.get("b:k").Cancelled, true)
}

func TestClaim_bounds_bodies(t *testing.T) {
	f := newFixture(t, "body_max", "2000000")
	for i := range 3 {
		f.schedule(dueq.Task{ID: fmt.Sprint(i), Body: make([]byte, 600_000)}, dueq.In(0))
	}
	f.schedule(dueq.Task{ID: "huge", Body: make([]byte, 2_000_000)}, dueq.In(time.Second))
	f.now = f.now.Add(time.Minute)
	for i := range 3 {
		equal(t, "claimed", members(f.claim().Tasks), fmt.Sprint(i))
	}
	equal(t, "alone", members(f.claim().Tasks), "huge")
}

func TestAtMostOnce_leaves_nothing(t *testing.T) {
	f := newFixture(t, "delivery", "at_most_once")
	f.schedule(dueq.Task{ID: "a", Body: []byte("x")}, dueq.In(0))
	f.now = f.now.Add(time.Second)
	c := f.claim()
	equal(t, "state", f.get("a").State, dueq.StateNone)
	equal(t, "lease ends", c.LeaseEnds.IsZero(), true)
	f.set("delivery", "at_least_once")
	equal(t, "again", f.settle(c.Tasks[0], dueq.VerdictAgain, time.Second).Status, dueq.StatusDone)
	equal(t, "again once more", f.settle(c.Tasks[0], dueq.VerdictAgain, time.Second).Status, dueq.StatusSuperseded)
	info := f.get("a")
	equal(t, "round", info.Round, 1)
	equal(t, "body", string(info.Body), "x")
}

func TestBodies_are_copies(t *testing.T) {
	f := newFixture(t)
	body := []byte("body")
	f.schedule(dueq.Task{ID: "a", Body: body}, dueq.In(0))
	body[0] = 'B'
	f.now = f.now.Add(time.Second)
	f.claim().Tasks[0].Body[0] = 'X'
	f.get("a").Body[0] = 'Y'
	equal(t, "body", string(f.get("a").Body), "body")
}

func TestList_pages_exactly(t *testing.T) {
	f := newFixture(t)
	const n = 30_000
	due := float64(start.UnixMilli())
	f.Add(queue, "\x00\xff raw", due)
	f.Add(queue, "first", math.Inf(-1))
	f.Add(queue, "last", math.Inf(1))
	for i := range n {
		f.Add(queue, fmt.Sprintf("task-%d", i*7919%n), due)
	}
	query := dueq.ListQuery{Queue: queue, State: dueq.StateScheduled, Limit: 997}
	var got []string
	for {
		page, err := f.List(t.Context(), query)
		f.must(err)
		for _, info := range page.Tasks {
			got = append(got, info.Member)
		}
		if query.Cursor = page.Cursor; query.Cursor == "" {
			break
		}
	}
	equal(t, "listed", len(got), n+3)
	equal(t, "first", got[0], "first")
	equal(t, "last", got[n+2], "last")
	if !slices.IsSorted(got[1 : n+2]) {
		t.Error("equal scores are not in the order of members")
	}
	equal(t, "listed once", len(slices.Compact(got)), n+3)

	query.Cursor = "no cursor"
	if _, err := f.List(t.Context(), query); !errors.Is(err, dueq.ErrInvalid) {
		t.Errorf("bad cursor: got %v", err)
	}
}

func TestList_merges_parked_and_scheduled(t *testing.T) {
	f := newFixture(t)
	f.schedule(dueq.Task{ID: "b"}, dueq.In(0))
	f.now = f.now.Add(time.Second)
	f.claim()
	f.Add(queue, "a", float64(f.now.UnixMilli()-2))
	f.Add(queue, "b", float64(f.now.UnixMilli()-1))
	f.Add(queue, "c", float64(f.now.UnixMilli()))
	f.set("paused", "off")
	if _, err := f.Claim(t.Context(), dueq.ClaimRequest{Queue: queue, Max: 2}); err != nil {
		t.Fatal(err)
	}
	f.Add(queue, "a", float64(f.now.UnixMilli()-2))
	f.schedule(dueq.Task{ID: "later"}, dueq.In(time.Hour))
	query := dueq.ListQuery{Queue: queue, State: dueq.StateScheduled, Overdue: true, Limit: 1}
	var got []string
	for {
		page, err := f.List(t.Context(), query)
		f.must(err)
		for _, info := range page.Tasks {
			got = append(got, info.Member)
		}
		if query.Cursor = page.Cursor; query.Cursor == "" {
			break
		}
	}
	equal(t, "overdue", strings.Join(got, " "), "a b c")
}

func TestStats_of_unknown_queues(t *testing.T) {
	f := newFixture(t)
	f.Add("zadded", "a", 1)
	_, err := f.Get(t.Context(), "looked-at", []string{"a"})
	f.must(err)
	all, err := f.Stats(t.Context())
	f.must(err)
	if len(all) != 1 || all[0].Queue != queue {
		t.Errorf("got %v, want %s only", all, queue)
	}
	some, err := f.Stats(t.Context(), "zadded", "nowhere")
	f.must(err)
	equal(t, "zadded", some[0].Scheduled, 1)
	equal(t, "nowhere", some[1], dueq.QueueStats{Queue: "nowhere", Now: f.now})
}

func TestWake(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	hints, err := f.Wake(ctx)
	f.must(err)
	o := f.schedule(dueq.Task{ID: "a"}, dueq.In(time.Hour))
	equal(t, "hint", <-hints, dueq.Hint{Queue: queue, Due: o.Due})
	f.schedule(dueq.Task{ID: "b"}, dueq.In(2*time.Hour))
	equal(t, "hints of a later task", len(hints), 0)
	for i := range 1000 {
		f.schedule(dueq.Task{ID: fmt.Sprint(i)}, dueq.In(time.Hour-time.Duration(i+1)*time.Second))
	}
	cancel()
	for range hints { // until closed
	}
	f.schedule(dueq.Task{ID: "c"}, dueq.In(0))
}

func TestClose(t *testing.T) {
	f := newFixture(t)
	hints, err := f.Wake(t.Context())
	f.must(err)
	f.must(f.Close())
	f.must(f.Close())
	if _, open := <-hints; open {
		t.Error("wake channel is open after Close")
	}
	if _, err := f.Claim(t.Context(), dueq.ClaimRequest{Queue: queue, Max: 1}); !errors.Is(err, dueq.ErrClosed) {
		t.Errorf("claim: got %v, want ErrClosed", err)
	}
	if _, err := f.Wake(t.Context()); !errors.Is(err, dueq.ErrClosed) {
		t.Errorf("wake: got %v, want ErrClosed", err)
	}
}

func TestContext_that_ended_is_unavailable(t *testing.T) {
	f := newFixture(t)
	cause := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err := f.Stats(ctx)
	if !errors.Is(err, dueq.ErrUnavailable) || !errors.Is(err, cause) {
		t.Errorf("got %v, want ErrUnavailable and its cause", err)
	}
}

func BenchmarkScheduleClaimAck(b *testing.B) {
	s := memstore.New(memstore.Options{})
	items := make([]dueq.Item, 100)
	for n := 0; n < b.N; n += len(items) {
		for i := range items {
			items[i] = dueq.Item{Queue: queue, Task: dueq.Task{ID: fmt.Sprint(n + i), Kind: "close"}, When: dueq.At(start)}
		}
		if _, err := s.Schedule(b.Context(), items); err != nil {
			b.Fatal(err)
		}
		c, err := s.Claim(b.Context(), dueq.ClaimRequest{Queue: queue, Max: 100})
		if err != nil || len(c.Tasks) != len(items) {
			b.Fatal(len(c.Tasks), err)
		}
		results := make([]dueq.Result, len(c.Tasks))
		for i, t := range c.Tasks {
			results[i].Task = t
		}
		if _, err := s.Settle(b.Context(), queue, results); err != nil {
			b.Fatal(err)
		}
	}
}
