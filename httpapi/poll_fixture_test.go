package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
)

// pollBubble is a test of polls on a store in memory with a fake clock, in
// which nothing really sleeps. It fails if a goroutine is left at its end.
func pollBubble(t *testing.T, name string, f func(b *pollTest)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := &pollTest{T: t, mem: memstore.New(memstore.Options{})}
			b.tap = &pollTap{Store: b.mem}
			b.p = b.hub()
			f(b)
		})
	})
}

// pollTest is one test: a store, a tap before it, and polls of that.
type pollTest struct {
	*testing.T
	mem  *memstore.Store
	tap  *pollTap
	p    *polls
	logs pollLog
}

// hub are polls of the store, closed when the test ends.
func (b *pollTest) hub() *polls {
	p := newPolls(b.tap, slog.New(&b.logs))
	b.Cleanup(p.close)
	return p
}

// polled is what a poll was answered.
type polled struct {
	dueq.Claim
	err error
	at  time.Time
}

func (p polled) members() string {
	var all []string
	for _, t := range p.Tasks {
		all = append(all, t.Lease.Member)
	}
	return strings.Join(all, " ")
}

// poll begins a poll of queue q for one task, at the end of the line.
func (b *pollTest) poll(wait time.Duration) <-chan polled {
	return b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: "q", Max: 1}, wait)
}

func (b *pollTest) pollWith(ctx context.Context, p *polls, req dueq.ClaimRequest, wait time.Duration) <-chan polled {
	got := make(chan polled, 1)
	go func() {
		c, err := p.claim(ctx, req, wait)
		got <- polled{c, err, time.Now()}
	}()
	synctest.Wait()
	return got
}

func (b *pollTest) schedule(queue string, when dueq.When, ids ...string) {
	b.Helper()
	for _, id := range ids {
		o, err := b.mem.Schedule(b.Context(), []dueq.Item{{Queue: queue, Task: dueq.Task{ID: id}, When: when}})
		if err != nil || o[0].Error() != nil {
			b.Fatalf("schedule %s: %v, %v", id, o, err)
		}
	}
}

func (b *pollTest) set(queue, name, value string) {
	b.Helper()
	if _, err := b.mem.SetSettings(b.Context(), queue, dueq.SettingsPatch{name: value}); err != nil {
		b.Fatal(err)
	}
}

func (b *pollTest) get(queue, member string) dueq.Info {
	b.Helper()
	infos, err := b.mem.Get(b.Context(), queue, []string{member})
	if err != nil {
		b.Fatal(err)
	}
	return infos[0]
}

// untouched checks that a task is scheduled as if it had never been claimed.
func (b *pollTest) untouched(queue, member string) {
	b.Helper()
	b.untouchedBut(queue, member, 0)
}

// untouchedBut is untouched for a task with failures.
func (b *pollTest) untouchedBut(queue, member string, failures int) {
	b.Helper()
	info := b.get(queue, member)
	if info.State != dueq.StateScheduled || info.Failures != failures || info.Round != 0 {
		b.Errorf("%s: got %v with %d failures in round %d, want it scheduled with %d", member, info.State, info.Failures, info.Round, failures)
	}
}

// pass lets time go by, and all that is due meanwhile come to rest.
func (b *pollTest) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// still checks that a poll has no answer yet.
func (b *pollTest) still(got <-chan polled) {
	b.Helper()
	synctest.Wait()
	select {
	case a := <-got:
		b.Fatalf("answered %q, %v, want it to wait", a.members(), a.err)
	default:
	}
}

// answer is what a poll was answered by now.
func (b *pollTest) answer(got <-chan polled) polled {
	b.Helper()
	synctest.Wait()
	select {
	case a := <-got:
		return a
	default:
		b.Fatal("not answered")
		return polled{}
	}
}

// want checks that a poll was answered with these tasks by now.
func (b *pollTest) want(got <-chan polled, members string) polled {
	b.Helper()
	a := b.answer(got)
	if a.err != nil || a.members() != members {
		b.Errorf("answered %q, %v, want %q", a.members(), a.err, members)
	}
	return a
}

// pollTap is a store that counts its calls and can make them fail.
type pollTap struct {
	dueq.Store
	deaf bool // Wake never hints

	mu    sync.Mutex // guards what follows
	calls []pollCall
	fault func(op, queue string) pollFault // of the next calls; may block
	after func(op, queue string)           // called when they have happened; may block
}

type pollCall struct {
	op  string
	at  time.Time
	max int // of a claim
}

// pollFault is what becomes of a call.
type pollFault struct {
	err      error
	takes    time.Duration // before it fails
	happened bool          // all the same
}

func (s *pollTap) spoil(fault func(op, queue string) pollFault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func (s *pollTap) mend() { s.spoil(nil) }

func (s *pollTap) hold(after func(op, queue string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = after
}

func (s *pollTap) Claim(ctx context.Context, req dueq.ClaimRequest) (dueq.Claim, error) {
	return throughTap(ctx, s, pollCall{op: "claim", max: req.Max}, req.Queue, func() (dueq.Claim, error) { return s.Store.Claim(ctx, req) })
}

func (s *pollTap) Settle(ctx context.Context, queue string, results []dueq.Result) ([]dueq.Outcome, error) {
	return throughTap(ctx, s, pollCall{op: "settle"}, queue, func() ([]dueq.Outcome, error) { return s.Store.Settle(ctx, queue, results) })
}

func throughTap[T any](ctx context.Context, s *pollTap, c pollCall, queue string, call func() (T, error)) (T, error) {
	fault, after := s.note(c)
	var none T
	f := fault(c.op, queue)
	time.Sleep(f.takes)
	if f.err != nil && !f.happened {
		return none, f.err
	}
	got, err := call()
	after(c.op, queue)
	if ctx.Err() != nil {
		return none, unavailableCall(c.op, true)
	}
	if f.err != nil {
		return none, f.err
	}
	return got, err
}

func (s *pollTap) Wake(ctx context.Context) (<-chan dueq.Hint, error) {
	if !s.deaf {
		return s.Store.Wake(ctx)
	}
	none := make(chan dueq.Hint)
	context.AfterFunc(ctx, func() { close(none) })
	return none, nil
}

// Stats fails queue by queue, as in a cluster.
func (s *pollTap) Stats(ctx context.Context, queues ...string) ([]dueq.QueueStats, error) {
	fault, _ := s.note(pollCall{op: "stats"})
	stats, err := s.Store.Stats(ctx, queues...)
	takes, failed := time.Duration(0), 0
	var failure error
	for i, queue := range queues {
		f := fault("stats", queue)
		takes = max(takes, f.takes)
		if f.err != nil {
			stats[i], failure = dueq.QueueStats{Queue: queue, Err: f.err}, f.err
			failed++
		}
	}
	time.Sleep(takes)
	if failed == len(queues) {
		return nil, failure
	}
	return stats, err
}

func (s *pollTap) note(c pollCall) (fault func(op, queue string) pollFault, after func(op, queue string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.at = time.Now()
	s.calls = append(s.calls, c)
	fault, after = s.fault, s.after
	if fault == nil {
		fault = func(string, string) pollFault { return pollFault{} }
	}
	if after == nil {
		after = func(string, string) {}
	}
	return fault, after
}

// count counts calls since then.
func (s *pollTap) count(since time.Time, ops ...string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if !c.at.Before(since) && slices.Contains(ops, c.op) {
			n++
		}
	}
	return n
}

func unavailableCall(op string, happened bool) error {
	return &dueq.CallError{Op: op, Queue: "q", MayHaveHappened: happened, Err: dueq.Unavailable(errors.New("out of order"))}
}

// pollLog keeps log lines.
type pollLog struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (l *pollLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *pollLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *pollLog) WithGroup(string) slog.Handler            { return l }
func (l *pollLog) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, r.Level.String()+" "+r.Message)
	return nil
}

func (l *pollLog) count(prefix string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.lines {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}
