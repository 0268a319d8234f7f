package httpapi

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/dueq/dueq"
)

// lastRelease is how long closing polls try to release what nobody waits for.
const lastRelease = 5 * time.Second

// line is one queue in polls: who waits, and what goes back. The polls' mu
// guards it.
type line struct {
	p       *polls
	queue   string
	waiters list.List // of *waiter
	spares  []spare   // to be released
	plan    linePlan

	queued   bool // among polls.ready
	claiming bool // a claim is under way
	settling bool // a release is under way

	last dueq.Claim // the last one, without its tasks
	err  error      // of the last call that failed
	lent time.Time  // when tasks were last leased here; zero when no lease is left
}

// spare is a claimed task that nobody waits for any more.
type spare struct {
	task *dueq.Task
	once bool // claimed at most once: there is no lease
}

func leftOf(c dueq.Claim) []spare {
	spares := make([]spare, len(c.Tasks))
	for i, t := range c.Tasks {
		spares[i] = spare{t, c.LeaseEnds.IsZero()}
	}
	return spares
}

func newLine(p *polls, queue string) *line {
	l := &line{p: p, queue: queue}
	now := time.Now()
	l.plan.scan, l.plan.scanAt, l.plan.moved = minScan, now.Add(maxScan), now
	return l
}

// all are the waiters in order. The one at hand may leave meanwhile.
func (l *line) all() iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		for e := l.waiters.Front(); e != nil; {
			next := e.Next()
			if !yield(e.Value.(*waiter)) {
				return
			}
			e = next
		}
	}
}

// first are those at the head of the line who ask for the same lease, and how
// many tasks they take together.
func (l *line) first() (called []*waiter, req dueq.ClaimRequest) {
	req.Queue = l.queue
	for w := range l.all() {
		if req.Max > 0 && w.req.Lease != req.Lease {
			break
		}
		called = append(called, w)
		req.Lease, req.Max = w.req.Lease, req.Max+w.req.Max
		if req.Max >= dueq.MaxItems {
			req.Max = dueq.MaxItems
			break
		}
	}
	return called, req
}

// share hands out the tasks of a claim in the order of the line, to those who
// asked for this lease. What is left goes back.
func (l *line) share(lease time.Duration, c dueq.Claim) {
	once := c.LeaseEnds.IsZero()
	l.lend(c, nil)
	for w := range l.all() {
		if len(c.Tasks) == 0 {
			return
		}
		if w.req.Lease != lease && !once {
			continue
		}
		n := min(w.req.Max, len(c.Tasks))
		part := c
		part.Tasks, c.Tasks = c.Tasks[:n:n], c.Tasks[n:]
		l.answer(w, part, nil)
	}
	l.spares = append(l.spares, leftOf(c)...)
}

// lend notes that tasks may be leased here now.
func (l *line) lend(c dueq.Claim, err error) {
	if !c.LeaseEnds.IsZero() || mayHaveHappened(err) {
		l.lent = time.Now()
	}
}

func (l *line) answer(w *waiter, c dueq.Claim, err error) {
	w.claim, w.err = c, err
	l.leave(w)
	close(w.ready)
}

func (l *line) leave(w *waiter) {
	l.waiters.Remove(w.place)
	w.place = nil
	if l.waiters.Len() == 0 {
		l.plan.left = time.Now()
		l.p.wake()
	}
}

// end answers a waiter whose wait has ended without tasks. One for whom a claim
// is under way, or comes any moment since none was made yet, stays for that.
func (w *waiter) end() {
	if w.place == nil {
		return
	}
	w.over = true
	if !w.called && (w.line.known() || w.line.plan.failures > 0) {
		w.dismiss()
	}
}

// dismiss answers a waiter without tasks.
func (w *waiter) dismiss() {
	w.line.answer(w, w.line.nothing(), cmp.Or(w.unsure, w.line.trouble()))
}

// known reports that the store was asked since the first of the line came.
func (l *line) known() bool { return !l.plan.at.Before(l.plan.opened) }

// dismissUnclaimed ends it for those for whom no claim could be made long after
// the first of the line came: those of other queues hang.
func (l *line) dismissUnclaimed(now time.Time) {
	if l.known() || now.Sub(l.plan.opened) < maxScan {
		return
	}
	for w := range l.all() {
		if w.over && !w.called {
			w.dismiss()
		}
	}
}

// nothing is the last claim as it would be now, without tasks.
func (l *line) nothing() dueq.Claim {
	c := l.last
	if c.Now.IsZero() {
		return c
	}
	passed := time.Since(l.plan.claimed)
	c.Now = c.Now.Add(passed)
	if c.Wait > 0 {
		c.Wait = max(c.Wait-passed, 0)
	}
	return c
}

// trouble is why nothing is known of the queue now, nil if something is. It says
// that no claim was made: who was claimed for knows better.
func (l *line) trouble() error {
	cause := l.err
	if l.plan.failures == 0 {
		if l.known() {
			return nil
		}
		cause = dueq.Unavailable(errCrowded)
	}
	var call *dueq.CallError
	if errors.As(cause, &call) {
		cause = call.Err
	}
	return &dueq.CallError{Op: "claim", Queue: l.queue, Err: cause}
}

var errCrowded = errors.New("no claim could be made in time, those of other queues hang")

// finished reports that the line is of no use any more.
func (l *line) finished(now time.Time) bool {
	used := l.waiters.Len() > 0 || len(l.spares) > 0 || l.queued || l.claiming || l.settling
	away := l.plan.failures > 0 && now.Sub(l.plan.left) < forgetAfter // nobody needs find out anew
	return !used && !away && l.lent.IsZero()
}

// claimFor makes one claim for waiters, or for the sake of the queue.
func (p *polls) claimFor(l *line, req dueq.ClaimRequest, called []*waiter) {
	c, err := p.store.Claim(context.Background(), req)
	p.report("claim", l.queue, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.wake()
	p.claims--
	l.claiming = false
	if err == nil {
		l.claimed(req, c)
	} else {
		l.unclaimed(called, err)
	}
	for _, w := range called {
		w.called = false
		if w.over {
			w.end()
		}
	}
}

func (l *line) claimed(req dueq.ClaimRequest, c dueq.Claim) {
	if l.plan.failures > 0 {
		l.p.quiet.log(slog.LevelInfo, "back", "store available again", "queue", l.queue)
	}
	l.plan.after(req, c, time.Now())
	l.last, l.err = c, nil
	l.last.Tasks, l.last.LeaseEnds = nil, time.Time{}
	l.share(req.Lease, c)
}

// unclaimed lets waiters wait on for a store that is away, and tells the rest.
func (l *line) unclaimed(called []*waiter, err error) {
	l.lend(dueq.Claim{}, err)
	if !errors.Is(err, dueq.ErrInvalid) { // lease_max is lower than it was
		l.failed(err)
	}
	for _, w := range called {
		switch {
		case w.place == nil:
		case !errors.Is(err, dueq.ErrUnavailable):
			l.answer(w, dueq.Claim{}, err)
		case mayHaveHappened(err):
			w.unsure = err
		}
	}
}

// failed plans after a call that failed.
func (l *line) failed(err error) {
	l.err = err
	l.plan.stepAside(time.Now())
}

func mayHaveHappened(err error) bool {
	var call *dueq.CallError
	return errors.As(err, &call) && call.MayHaveHappened
}

// releaseFor releases spares of a line.
func (p *polls) releaseFor(l *line, spares []spare) {
	left, err := p.release(context.Background(), l.queue, spares)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.wake()
	l.settling = false
	l.spares = append(left, l.spares...)
	if err != nil {
		l.failed(err)
	} else if l.waiters.Len() > 0 {
		l.plan.next = time.Now()
	}
}

// release puts tasks back as they were, and returns those that it is worth
// trying again for.
func (p *polls) release(ctx context.Context, queue string, spares []spare) (left []spare, err error) {
	results := make([]dueq.Result, len(spares))
	for i, s := range spares {
		results[i] = dueq.Result{Task: s.task, Verdict: dueq.VerdictRelease}
	}
	outcomes, err := p.store.Settle(ctx, queue, results)
	p.report("settle", queue, err)
	for i, s := range spares {
		var o dueq.Outcome
		if i < len(outcomes) {
			o = outcomes[i]
		}
		switch {
		case o.Status != dueq.StatusUnknown && o.Status != dueq.StatusRefused: // or the lease has ended
		case err != nil && s.worthAnother(err):
			left = append(left, s)
		default:
			p.unreleased(queue, s, cmp.Or(o.Err, err))
		}
	}
	return left, err
}

// worthAnother: what lies in no place is lost if it is not put back, and may be
// there twice if it is put back twice. What is leased comes back by itself, but
// sooner if the store is back before.
func (s spare) worthAnother(err error) bool {
	if s.once {
		return !mayHaveHappened(err)
	}
	return errors.Is(err, dueq.ErrUnavailable)
}

func (p *polls) unreleased(queue string, s spare, err error) {
	p.log.Error("task not released", "queue", queue, "task", s.task.Lease.Member, "err", err)
}

// leaveAll answers whoever still waits, and makes the last attempt to release
// what nobody waits for.
func (p *polls) leaveAll() {
	ctx, cancel := context.WithTimeout(context.Background(), lastRelease)
	defer cancel()
	p.mu.Lock()
	lines := p.lines
	p.lines = nil
	p.mu.Unlock()
	for _, l := range lines {
		for w := range l.all() {
			w.dismiss()
		}
		for spares := range slices.Chunk(l.spares, dueq.MaxItems) {
			left, err := p.release(ctx, l.queue, spares)
			for _, s := range left {
				p.unreleased(l.queue, s, err)
			}
		}
	}
}

// report logs trouble with the store.
func (p *polls) report(op, queue string, err error) {
	switch {
	case err == nil, errors.Is(err, dueq.ErrInvalid):
	case errors.Is(err, dueq.ErrUnavailable):
		p.quiet.log(slog.LevelWarn, "unavailable", "store unavailable", "queue", queue, "op", op, "err", err)
	default:
		p.quiet.log(slog.LevelWarn, op, "store call failed", "queue", queue, "op", op, "err", err)
	}
}
