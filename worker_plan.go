package dueq

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// When a worker looks at its queues.
const (
	minScan   = 50 * time.Millisecond // between safety scans of a queue with work
	maxScan   = time.Second           // of an idle one
	minPause  = 50 * time.Millisecond // after a failed call
	maxPause  = time.Second
	probeGap  = 100 * time.Millisecond // between repeated calls for queues that fail, all together
	minBack   = 2 * time.Millisecond   // how far losers of a race step back
	maxBack   = 30 * time.Millisecond
	deepAfter = 6                      // lost races in a row, after which a worker leaves heads to others
	helpAfter = 5 * time.Millisecond   // overdue before a worker without room calls for others
	helpEvery = 100 * time.Millisecond // between such calls
	clockJump = time.Second            // of the store's clock, after which leases are renewed first
)

// lanePlan is when a lane is next looked at. It is guarded by its lane's mu.
type lanePlan struct {
	claiming int           // claims queued or under way, at most maxClaims
	next     time.Time     // when a claim is worth making; zero if nothing is known to come
	more     bool          // more was due when the last claim was answered
	answers  int           // to claims
	scanAt   time.Time     // when the safety scan is due
	scan     time.Duration // its present interval
	back     time.Duration // how far to step back from a common head
	losses   int           // races for a head lost in a row
	helped   time.Time     // when others were last called for what is due here
	helping  bool          // the claim to come is such a call
	head     time.Time     // the due time waited for, by the store's clock
	upkeep   time.Time     // when to claim even without room: somebody must while there are leases; zero if nobody need
	failures int           // failed calls in a row
	renew    bool          // leases must be renewed before the next claim
	hint     time.Time     // earliest due announced since the last look at the store began
	now      time.Time     // the store's clock …
	at       time.Time     // … at this time of ours
}

// saw notes the store's clock, and whether it jumped.
func (p *lanePlan) saw(clock, now time.Time) {
	if !p.at.IsZero() && (clock.Sub(p.now)-now.Sub(p.at)).Abs() > clockJump {
		p.renew = true
	}
	p.now, p.at = clock, now
}

// plan hands lanes to the claim loops when a claim is worth making, and scans
// the heads of the others now and then. It is the only place that sleeps.
func (w *Worker) plan(ctx context.Context) {
	defer close(w.ready)
	defer close(w.again)
	epoch := time.Now()
	for _, l := range w.lanes {
		l.mu.Lock()
		l.plan.next, l.plan.scanAt, l.plan.scan = epoch, epoch.Add(minScan), minScan
		l.mu.Unlock()
	}
	sleeper := newSleeper()
	defer sleeper.timer.Stop()
	for ctx.Err() == nil {
		now := time.Now()
		scan, next := w.dispatch(now)
		if len(scan) > 0 {
			w.scan(scan, epoch)
			continue
		}
		sleeper.sleep(ctx, next, w.kick)
	}
}

// dispatch hands out the lanes to claim from now. It returns the lanes to scan
// now, and when to look again.
func (w *Worker) dispatch(now time.Time) (scan []*lane, next time.Time) {
	next = now.Add(maxScan)
	for _, l := range w.lanes {
		l.mu.Lock()
		p := &l.plan
		full, failing := l.room() == 0, p.failures > 0
		due := !p.next.IsZero() && !p.next.After(now)
		upkeep := !p.upkeep.IsZero() && !p.upkeep.After(now)
		help := full && p.wantsHelp(now)
		scanAt := p.scanAt
		if full && !p.renew {
			scanAt = laterOf(scanAt, p.at.Add(maxScan)) // for the settings and a jump of the clock only
		}
		switch {
		case p.claiming > 0 && !(due && l.another()):
		case due && p.failures > 1:
			if w.probe(l) {
				p.claiming++
			}
			next = earlier(next, now.Add(probeGap/10))
		case due && (!full || failing), upkeep && !failing, help:
			p.claiming++
			p.helping = help
			w.ready <- l
		case !failing && !scanAt.After(now):
			scan = append(scan, l)
		case failing:
			next = earlier(next, p.next)
		default:
			next = earlier(next, scanAt)
			if !p.next.IsZero() && !full {
				next = earlier(next, p.next)
			}
			if !p.next.IsZero() && full {
				next = earlier(next, p.helpAt())
			}
			if !p.upkeep.IsZero() {
				next = earlier(next, p.upkeep)
			}
		}
		l.mu.Unlock()
	}
	return scan, next
}

// maxClaims is how many claims a lane has under way at a time: with a backlog
// the store need not wait while one is handed out.
const maxClaims = 2

// another reports that a claim is worth making beside the one under way: there
// is a backlog, and room for a whole batch besides. Called with mu held.
func (l *lane) another() bool {
	p := &l.plan
	return p.more && p.claiming < maxClaims && p.failures == 0 && !p.renew && l.coming > 0 && l.room() == l.settings.Batch
}

// helpAt is when a worker without room calls for others to take what is due.
func (p *lanePlan) helpAt() time.Time {
	return laterOf(p.next.Add(helpAfter), p.helped.Add(helpEvery))
}

func (p *lanePlan) wantsHelp(now time.Time) bool {
	return !p.next.IsZero() && p.failures == 0 && !p.helpAt().After(now)
}

// deep reports that others always come first here. A worker then leaves heads
// to them and looks with its safety scans, or when it is called for help.
func (p *lanePlan) deep() bool { return p.losses >= deepAfter }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// probe hands a lane that failed twice to the probeLoop, if that is free, so
// that a store that is away is called seldom and hanging calls do not hold up
// other queues.
func (w *Worker) probe(l *lane) bool {
	if w.probing.Load() || !w.turn() {
		return false
	}
	w.probing.Store(true)
	w.again <- l
	return true
}

func (w *Worker) probeLoop(ctx context.Context) {
	for l := range w.again {
		if ctx.Err() == nil {
			l.claim()
		}
		w.probing.Store(false)
	}
}

// turn reports whether a call that failed twice may be repeated now: one may
// every probeGap, whatever the number of queues, until one of them works.
func (w *Worker) turn() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if now.Sub(w.probed) < probeGap {
		return false
	}
	w.probed = now
	return true
}

// recovered lets the next repeated call be made at once: one has worked.
func (w *Worker) recovered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.probed = time.Time{}
}

// scan reads the heads of lanes in one round trip: it finds what nobody could
// announce, and sees to it that a queue with leases is claimed from.
func (w *Worker) scan(lanes []*lane, epoch time.Time) {
	ctx := context.WithoutCancel(w.base)
	queues := make([]string, len(lanes))
	for i, l := range lanes {
		queues[i] = l.queue
		l.mu.Lock()
		l.plan.hint = time.Time{}
		l.mu.Unlock()
	}
	began := time.Now()
	stats, err := w.store.Stats(ctx, queues...)
	w.opts.Observer.call("stats", "", len(queues), time.Since(began), err)
	for i, l := range lanes {
		failure := err
		if err == nil {
			failure = stats[i].Err
		}
		if failure != nil {
			w.failed(l.queue, "stats", failure)
		}
		l.mu.Lock()
		if failure != nil {
			l.stepAside()
		} else {
			l.scanned(stats[i], epoch)
		}
		look := l.room() == 0 || l.plan.renew
		l.mu.Unlock()
		if failure == nil && look {
			l.refresh(ctx)
		}
	}
}

// refresh does what must be done before a claim, and now and then while there
// is no room for one: it reads the settings, and renews the leases if they are
// in danger.
func (l *lane) refresh(ctx context.Context) error {
	settings, err := l.w.store.Settings(ctx, l.queue)
	if errors.Is(err, ErrInvalid) {
		l.w.failed(l.queue, "settings", err)
	} else if err != nil {
		return err
	}
	l.mu.Lock()
	l.settings = settings
	renew := l.plan.renew
	l.plan.renew = false
	l.mu.Unlock()
	if !renew {
		return nil
	}
	err = l.renew(ctx, l.toRenew(true))
	if err != nil {
		l.mu.Lock()
		l.plan.renew = true
		l.mu.Unlock()
	}
	return err
}

// scanned plans by what a scan saw. Called with mu held.
func (l *lane) scanned(st QueueStats, epoch time.Time) {
	p := &l.plan
	now := time.Now()
	p.saw(st.Now, now)
	p.next, p.head, p.upkeep = time.Time{}, time.Time{}, time.Time{}
	p.scan = min(2*p.scan, maxScan)
	p.scanAt = nextTick(epoch, now, p.scan)
	if !st.NextDue.IsZero() && !st.Paused && (!p.deep() || st.NextDue.Before(st.Now)) {
		p.head = st.NextDue
		p.next = now.Add(st.NextDue.Sub(st.Now))
		if st.NextDue.UnixMilli() >= MaxDueMilli {
			p.next = now // a bad score, for a claim to set aside
		}
	}
	if !st.NextLease.IsZero() {
		p.upkeep = now.Add(maxScan*9/10 - st.Now.Sub(st.LastClaim))
	}
	l.heed()
}

// nextTick puts scans of the same interval on common instants, so that they
// share a round trip.
func nextTick(epoch, now time.Time, interval time.Duration) time.Time {
	return now.Add(interval - now.Sub(epoch)%interval)
}

// stepAside plans the next attempt after a failure. Called with mu held.
func (l *lane) stepAside() {
	p := &l.plan
	pause := min(minPause<<min(p.failures, 10), maxPause)
	p.failures++
	p.renew = true
	p.next = time.Now().Add(jitter(pause))
}

func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}

// claimLoop claims for the lanes it is handed.
func (w *Worker) claimLoop(ctx context.Context) {
	for l := range w.ready {
		if ctx.Err() == nil {
			l.claim()
		}
	}
}

// claim makes one claim and plans the next. It runs to its end even if the
// worker stops meanwhile, so that nothing is leased to nobody.
func (l *lane) claim() {
	ctx := context.WithoutCancel(l.w.base)
	err := l.refresh(ctx)
	l.mu.Lock()
	room := l.room()
	idle := room == 0 && l.plan.upkeep.IsZero() && !l.plan.helping
	if l.plan.helping {
		l.plan.helped = time.Now()
	}
	l.plan.hint, l.plan.upkeep, l.plan.helping = time.Time{}, time.Time{}, false
	req := ClaimRequest{Queue: l.queue, Max: room, Lease: l.settings.Lease}
	l.coming += room
	answers := l.plan.answers
	another := l.another()
	l.mu.Unlock()
	if another {
		l.w.wake()
	}
	if err != nil || idle {
		l.claimed(Claim{}, err, room, answers)
		return
	}
	began := time.Now()
	claim, err := l.w.store.Claim(ctx, req)
	l.w.opts.Observer.call(l.w.op, l.queue, claim.taken(), time.Since(began), err)
	if err == nil {
		l.w.opts.Observer.claimed(l.queue, claim)
		l.accept(hold(claim, began))
	}
	l.claimed(claim, err, room, answers)
}

// hold notes how long the leases of a claim hold by our clock. Counted from
// before the call, it is on the safe side.
func hold(c Claim, began time.Time) []*held {
	tasks := make([]held, len(c.Tasks))
	out := make([]*held, len(c.Tasks))
	for i, t := range c.Tasks {
		tasks[i] = held{task: t, since: began, until: began.Add(c.LeaseEnds.Sub(c.Now)), once: c.LeaseEnds.IsZero()}
		out[i] = &tasks[i]
	}
	return out
}

// claimed plans by the answer to a claim, which asked for some tasks and began
// after so many answers.
func (l *lane) claimed(c Claim, err error, asked, answers int) {
	if err != nil {
		l.w.failed(l.queue, l.w.op, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.w.wake()
	p := &l.plan
	p.claiming--
	l.coming -= asked
	switch {
	case errors.Is(err, ErrInvalid) && l.w.op == "claim": // settings changed under us
		p.next = time.Now().Add(minPause)
	case err != nil:
		l.stepAside()
	case c.Now.IsZero(): // no room, but the store answers
		p.failures = 0
	default:
		if p.answers > answers && p.more { // the other one may have seen more
			c.Wait = 0
		}
		p.answers++
		l.planAfter(c)
	}
}

func (l *lane) planAfter(c Claim) {
	p := &l.plan
	now := time.Now()
	p.saw(c.Now, now)
	if p.failures > 0 {
		l.w.log.Info("store available again", "queue", l.queue)
		l.w.recovered()
	}
	switch {
	case c.taken() > 0:
		p.back, p.losses, p.scan = 0, 0, minScan
	case !p.head.IsZero() && !c.Previous.Before(p.head) && !c.Paused: // somebody else was first
		p.back = min(max(2*p.back, minBack), maxBack)
		p.losses++
	}
	p.failures, p.next, p.head, p.more = 0, time.Time{}, time.Time{}, c.Wait == 0
	p.scanAt = now.Add(p.scan)
	switch {
	case c.Wait > 0 && !p.deep():
		p.next, p.head = now.Add(c.Wait+l.stepBack()), c.Now.Add(c.Wait)
	case c.Wait == 0:
		p.next = now
	}
	l.heed()
	if p.renew {
		p.next, p.scanAt = now, now // either renews first
	}
}

// stepBack is how long to let others go first: workers that lost the race for
// a head come later to the next one, so that a herd costs little. Called with
// mu held.
func (l *lane) stepBack() time.Duration {
	if l.plan.back == 0 {
		return 0
	}
	return l.plan.back + rand.N(l.plan.back)
}

// listen wakes lanes by the store's hints. Without hints the scan finds all.
func (w *Worker) listen(ctx context.Context) {
	for ctx.Err() == nil {
		hints, err := w.store.Wake(ctx)
		switch {
		case err == nil:
			w.follow(hints)
		case ctx.Err() == nil:
			w.failed("", "wake", err)
			if !errors.Is(err, ErrUnavailable) {
				return
			}
		}
		pause(ctx, maxPause)
	}
}

// follow wakes lanes by hints until they end.
func (w *Worker) follow(hints <-chan Hint) {
	for hint := range hints {
		if l := w.lanes[hint.Queue]; l != nil && l.hinted(hint.Due) {
			w.wake()
		}
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// hinted notes a due time that was announced, and plans an earlier claim if it
// is of one.
func (l *lane) hinted(due time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.plan
	if p.hint.IsZero() || due.Before(p.hint) {
		p.hint = due
	}
	return l.heed()
}

// heed plans a claim for what was announced since the last look at the store
// began: its answer may not know of it. Called with mu held.
func (l *lane) heed() bool {
	p := &l.plan
	if p.hint.IsZero() || p.at.IsZero() || p.failures > 0 {
		return false
	}
	if p.deep() && p.now.Add(time.Since(p.at)).Sub(p.hint) < helpAfter {
		return false // for others, unless they call for help
	}
	next := p.at.Add(p.hint.Sub(p.now) + l.stepBack())
	if !p.next.IsZero() && !next.Before(p.next) {
		return false
	}
	p.next, p.head = next, p.hint
	return true
}
