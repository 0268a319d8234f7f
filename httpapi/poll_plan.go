package httpapi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dueq/dueq"
)

// When polls look at queues: as a [dueq.Worker] does, where there is no reason
// to differ.
const (
	claimsAtOnce = 3                      // for all lines together
	minScan      = 50 * time.Millisecond  // between safety scans of a queue with work
	maxScan      = time.Second            // of an idle one, and of one nobody waits for
	minPause     = 50 * time.Millisecond  // after a failed call
	maxPause     = time.Second            //
	probeGap     = 100 * time.Millisecond // between probes of all queues that failed
	forgetAfter  = time.Minute            // a queue that failed and nobody waits for
	minBack      = 2 * time.Millisecond   // how far losers of a race step back
	maxBack      = 30 * time.Millisecond  //
	deepAfter    = 6                      // lost races in a row, after which heads are left to others
	helpAfter    = 5 * time.Millisecond   // overdue before a line without waiters calls for others …
	helpEvery    = 100 * time.Millisecond // … so often …
	helpFor      = 2 * maxScan            // … so long after its last one left: then others have looked
	stuckAfter   = 5 * time.Second        // without a look at a queue that is waited for
)

// linePlan is when a line is next looked at. The polls' mu guards it.
type linePlan struct {
	next     time.Time     // when a claim is worth making; zero if nothing is known to come
	head     time.Time     // the due time waited for, by the store's clock
	upkeep   time.Time     // when to claim because there are leases; zero if nobody need
	scanAt   time.Time     // when the safety scan is due
	scan     time.Duration // its present interval
	hint     time.Time     // earliest due announced since the last look at the store began
	back     time.Duration // how far to step back from a common head
	losses   int           // races for a head lost in a row
	opened   time.Time     // when the first waiter came
	left     time.Time     // when the last one left
	helped   time.Time     // when others were last called
	failures int           // failed calls in a row
	cleared  bool          // the store answers again, so one may be made
	moved    time.Time     // when all was last as it should be
	claimed  time.Time     // when the last claim came back
	now      time.Time     // the store's clock …
	at       time.Time     // … at this time of ours
}

// open plans for the first waiter of a line: nothing newer is known than what a
// claim says now.
func (p *linePlan) open(now time.Time) {
	if p.failures == 0 {
		p.next, p.head, p.opened, p.moved = now, time.Time{}, now, now
	}
}

func (p *linePlan) failing() bool { return p.failures > 0 && !p.cleared }

// deep reports that others always come first here. Heads are then left to them;
// safety scans and calls for help show what they do not take.
func (p *linePlan) deep() bool { return p.losses >= deepAfter }

// claimAt is when to claim, zero for never. Nobody waiting, that is when leases
// must be looked after, or others be called who stand back for this process.
func (l *line) claimAt() time.Time {
	p := &l.plan
	if l.waiters.Len() > 0 {
		return sooner(p.next, p.upkeep)
	}
	help := later(p.next.Add(helpAfter), p.helped.Add(helpEvery))
	if p.next.IsZero() || help.After(p.left.Add(helpFor)) {
		return p.upkeep
	}
	return sooner(help, p.upkeep)
}

// scanAt is when to scan, zero if a claim comes first.
func (l *line) scanAt() time.Time {
	switch {
	case l.queued || l.claiming:
		return time.Time{}
	case l.waiters.Len() == 0:
		return later(l.plan.scanAt, l.plan.at.Add(maxScan))
	}
	return l.plan.scanAt
}

// sooner is the earlier of two times, of which zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// plan makes calls for lines when they are worth making, until ctx ends. It is
// the only place that sleeps.
func (p *polls) plan(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		timer.Reset(time.Until(p.dispatch(time.Now())))
		select {
		case <-timer.C:
		case <-p.kick:
		case <-ctx.Done():
		}
	}
}

// dispatch begins the calls that are worth making now, and returns when to look
// again. The end of each call makes the planner look as well.
func (p *polls) dispatch(now time.Time) (next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next = now.Add(maxScan)
	var scan, failing []*line
	var probeAt time.Time
	for _, l := range p.lines {
		switch {
		case l.finished(now):
			delete(p.lines, l.queue)
		case l.plan.failing():
			failing = append(failing, l)
			probeAt = sooner(probeAt, l.plan.next)
		default:
			next = sooner(next, p.begin(l, now))
			if at := l.scanAt(); at.After(now) {
				next = sooner(next, at)
			} else if !at.IsZero() {
				scan = append(scan, l)
			}
		}
	}
	if len(scan) > 0 && !p.scanning {
		p.look(scan, &p.scanning)
	}
	if len(failing) > 0 && !p.probing {
		if at := later(probeAt, p.probed.Add(probeGap)); at.After(now) {
			next = sooner(next, at)
		} else {
			p.look(failing, &p.probing)
			p.probed = now
		}
	}
	p.takeTurns(now)
	return next
}

// begin begins what a line needs now but its scan, and returns when there is
// more; zero if that is not known.
func (p *polls) begin(l *line, now time.Time) time.Time {
	if len(l.spares) > 0 && !l.settling {
		n := min(len(l.spares), dueq.MaxItems)
		spares := l.spares[:n:n]
		l.spares, l.settling = l.spares[n:], true
		p.going.Go(func() { p.releaseFor(l, spares) })
	}
	if l.queued || l.claiming {
		l.dismissUnclaimed(now)
		return time.Time{}
	}
	at := l.claimAt()
	if at.IsZero() || at.After(now) {
		return at
	}
	l.queued = true
	p.ready = append(p.ready, l)
	return time.Time{}
}

// takeTurns begins claims for the lines that are ready, in turn, as many as may
// be under way. Called with mu held.
func (p *polls) takeTurns(now time.Time) {
	for p.claims < claimsAtOnce && len(p.ready) > 0 {
		l := p.ready[0]
		p.ready[0] = nil
		p.ready = p.ready[1:]
		l.queued = false
		if at := l.claimAt(); at.IsZero() || at.After(now) || l.plan.failing() {
			p.wake() // it has changed
			continue
		}
		called, req := l.first()
		for _, w := range called {
			w.called = true
		}
		if req.Max == 0 {
			l.plan.helped = now
		}
		l.plan.hint, l.plan.upkeep = time.Time{}, time.Time{}
		l.claiming = true
		p.claims++
		p.going.Go(func() { p.claimFor(l, req, called) })
	}
}

// look reads the heads of lines in one round trip: it finds what nobody could
// announce, whether there are leases to look after, and whether a store that
// was away is back. It never claims, so it holds nothing up and leaves nothing
// in doubt, however the store fails. Called with mu held.
func (p *polls) look(lines []*line, busy *bool) {
	*busy = true
	queues := make([]string, len(lines))
	for i, l := range lines {
		queues[i] = l.queue
		l.plan.hint = time.Time{}
	}
	p.going.Go(func() {
		began := time.Now()
		stats, err := p.store.Stats(context.Background(), queues...)
		if err != nil {
			stats = make([]dueq.QueueStats, len(lines))
		}
		for i := range stats {
			if err != nil {
				stats[i].Err = err
			}
			p.report("stats", queues[i], stats[i].Err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		defer p.wake()
		*busy = false
		for i, l := range lines {
			l.saw(stats[i], began, p.epoch)
		}
	})
}

// saw plans by a look that began then, unless a claim knows better.
func (l *line) saw(st dueq.QueueStats, began, epoch time.Time) {
	if st.Err == nil && st.NextLease.IsZero() && l.lent.Before(began) {
		l.lent = time.Time{}
	}
	if l.claiming || l.plan.claimed.After(began) {
		return
	}
	now := time.Now()
	switch {
	case st.Err != nil:
		l.failed(st.Err)
		if !errors.Is(st.Err, dueq.ErrUnavailable) {
			for w := range l.all() {
				l.answer(w, dueq.Claim{}, l.trouble())
			}
		}
	case l.plan.failures > 0:
		l.plan.clear(now)
		if l.waiters.Len() == 0 && len(l.spares) == 0 {
			l.plan.failures = 0 // nothing to find out by
		}
	default:
		l.plan.scanned(st, now, epoch)
	}
}

// clear has a call made that will tell whether the store is back.
func (p *linePlan) clear(now time.Time) {
	p.cleared, p.next, p.scanAt = true, now, now.Add(maxScan)
}

func (p *linePlan) scanned(st dueq.QueueStats, now, epoch time.Time) {
	p.now, p.at, p.moved = st.Now, now, now
	p.next, p.head, p.upkeep = time.Time{}, time.Time{}, time.Time{}
	p.scan = min(2*p.scan, maxScan)
	p.scanAt = now.Add(p.scan - now.Sub(epoch)%p.scan) // on common ticks, to share round trips
	if !st.NextDue.IsZero() && !st.Paused && (!p.deep() || st.NextDue.Before(st.Now)) {
		p.head = st.NextDue
		p.next = now.Add(st.NextDue.Sub(st.Now))
		if st.NextDue.UnixMilli() >= dueq.MaxDueMilli {
			p.next = now // a bad score, for a claim to set aside
		}
	}
	if !st.NextLease.IsZero() {
		p.upkeep = now.Add(maxScan*9/10 - st.Now.Sub(st.LastClaim))
	}
	p.heed()
}

// after plans by the answer to a claim.
func (p *linePlan) after(req dueq.ClaimRequest, c dueq.Claim, now time.Time) {
	switch {
	case len(c.Tasks) > 0:
		p.back, p.losses, p.scan = 0, 0, minScan
	case req.Max > 0 && !p.head.IsZero() && !c.Previous.Before(p.head) && !c.Paused: // somebody else was first
		p.back = min(max(2*p.back, minBack), maxBack)
		p.losses++
	}
	p.now, p.at, p.claimed, p.moved = c.Now, now, now, now
	p.failures, p.next, p.head = 0, time.Time{}, time.Time{}
	p.scanAt = now.Add(p.scan)
	switch {
	case c.Wait > 0 && !p.deep():
		p.next, p.head = now.Add(c.Wait+p.stepBack()), c.Now.Add(c.Wait)
	case c.Wait == 0:
		p.next = now
	}
	p.heed()
}

// stepBack is how long to let others go first.
func (p *linePlan) stepBack() time.Duration {
	if p.back == 0 {
		return 0
	}
	return p.back + rand.N(p.back)
}

// stepAside plans the next attempt after a failure.
func (p *linePlan) stepAside(now time.Time) {
	pause := min(minPause<<min(p.failures, 10), maxPause)
	p.failures++
	p.cleared = false
	p.next = now.Add(pause/2 + rand.N(pause/2+1))
}

// heed plans a claim for what was announced since the last look at the store
// began: its answer may not know of it.
func (p *linePlan) heed() bool {
	if p.hint.IsZero() || p.at.IsZero() || p.failures > 0 {
		return false
	}
	if p.deep() && p.now.Add(time.Since(p.at)).Sub(p.hint) < helpAfter {
		return false // for others, unless they call for help
	}
	next := p.at.Add(p.hint.Sub(p.now) + p.stepBack())
	if !p.next.IsZero() && !next.Before(p.next) {
		return false
	}
	p.next, p.head = next, p.hint
	return true
}

// listen wakes lines by the store's hints, until ctx ends. Without hints the
// scans find all.
func (p *polls) listen(ctx context.Context) {
	for ctx.Err() == nil {
		hints, err := p.store.Wake(ctx)
		if err == nil {
			for hint := range hints {
				p.hinted(hint)
			}
		} else if ctx.Err() == nil {
			p.report("wake", "", err)
			if !errors.Is(err, dueq.ErrUnavailable) {
				return
			}
		}
		timer := time.NewTimer(maxPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (p *polls) hinted(hint dueq.Hint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[hint.Queue]
	if l == nil {
		return
	}
	l.plan.hint = sooner(l.plan.hint, hint.Due)
	if l.plan.heed() {
		p.wake()
	}
}

var errHangs = errors.New("calls to the store hang")

// moving returns why a queue that is waited for has not been claimed from for
// much longer than it should have been: a call hangs, or calls fail with
// ErrUnavailable. It is nil while nobody waits. What a store says of one queue
// alone, as of a key of the wrong type, is for those who poll it.
func (p *polls) moving() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	worst, since := (*line)(nil), time.Now().Add(-stuckAfter)
	for _, l := range p.lines {
		alone := l.err != nil && !errors.Is(l.err, dueq.ErrUnavailable)
		if l.waiters.Len() > 0 && !alone && l.plan.moved.Before(since) {
			worst, since = l, l.plan.moved
		}
	}
	if worst == nil {
		return nil
	}
	cause := worst.err
	if cause == nil {
		cause = errHangs
	}
	return fmt.Errorf("queue %s was not looked at for %v: %w", worst.queue, time.Since(since).Round(time.Second), cause)
}
