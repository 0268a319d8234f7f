package httpapi

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/dueq/dueq"
)

// polls are the claims that wait for tasks. Those of one queue stand in a line,
// first come first served. For all of them together one claim at a time is
// made, when there is reason to expect something, by the rules of a
// [dueq.Worker]: a waiter costs memory, but no connection and no call of its
// own.
//
// It also claims, taking nothing, from queues whose tasks it handed out: while
// there are leases somebody has to, or they would not end.
//
// Methods may be called concurrently.
type polls struct {
	store dueq.Store
	log   *slog.Logger
	quiet quietly
	epoch time.Time      // scans fall on ticks counted from here
	kick  chan struct{}  // makes the planner look again
	going sync.WaitGroup // all goroutines

	mu       sync.Mutex // guards what follows and all lines
	lines    map[string]*line
	ready    []*line   // to be claimed from, in turn
	claims   int       // under way for lines
	scanning bool      // a scan is under way
	probing  bool      // … of lines that failed
	probed   time.Time // when that was last begun
	stop     func()    // ends the planner; nil before it began
	draining bool
	closed   bool
}

// newPolls returns polls of store, which stays the caller's. Goroutines begin
// with the first line.
func newPolls(store dueq.Store, log *slog.Logger) *polls {
	return &polls{
		store: store, log: log, quiet: quietly{to: log, last: map[string]time.Time{}},
		epoch: time.Now(), kick: make(chan struct{}, 1), lines: map[string]*line{},
	}
}

// waiter is one poll that waits.
type waiter struct {
	req   dueq.ClaimRequest
	line  *line
	ready chan struct{} // closed when it is answered

	// Guarded by the polls' mu until ready is closed.
	place  *list.Element // in its line; nil when it has left
	called bool          // a claim for it is under way
	over   bool          // its wait has ended; it stays for the claim under way
	unsure error         // of a claim for it that may have happened
	claim  dueq.Claim
	err    error
}

// claim returns the first claim that has tasks within wait, and otherwise one
// without tasks. With wait 0 or less, with a request that takes nothing or that
// the store will refuse, and while draining it is one plain claim. A paused
// queue is waited for.
//
// When wait ends while a claim for the caller is under way, or has yet to begin
// because the caller came just before, that is awaited: at most the store's
// time-out and two seconds longer.
//
// When ctx ends the caller has vanished: it gets the error of ctx, and what was
// or is yet claimed for it goes to the next in line or back to the queue, no
// attempt charged.
//
// A store that is away is waited for too. If it still is when wait ends, the
// error is ErrUnavailable. If a claim for the caller may have happened, the
// error says so, unless a later one brought tasks; what it took comes back when
// its lease ends. Other errors of the store are returned at once. After close
// it is ErrClosed.
func (p *polls) claim(ctx context.Context, req dueq.ClaimRequest, wait time.Duration) (dueq.Claim, error) {
	if wait <= 0 || !p.canWait(ctx, req) {
		return p.claimOnce(ctx, req)
	}
	w := p.join(req)
	if w == nil {
		return p.claimOnce(ctx, req)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-ctx.Done():
	case <-timer.C:
		p.expire(w)
		select {
		case <-w.ready:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		p.abandon(w)
		return dueq.Claim{}, ctx.Err()
	}
	return w.claim, w.err
}

// canWait reports whether a request may stand in a line. What the store will
// refuse may not: those who stand together are claimed for together.
func (p *polls) canWait(ctx context.Context, req dueq.ClaimRequest) bool {
	if dueq.ValidateQueue(req.Queue) != nil || req.Max < 1 || req.Max > dueq.MaxItems {
		return false
	}
	if req.Lease == 0 {
		return true
	}
	settings, err := p.store.Settings(ctx, req.Queue)
	known := err == nil || errors.Is(err, dueq.ErrInvalid)
	return req.Lease >= time.Second && (!known || req.Lease <= settings.LeaseMax)
}

// claimOnce makes one plain claim. It runs to its end when ctx ends meanwhile,
// so that nothing is leased to nobody.
func (p *polls) claimOnce(ctx context.Context, req dueq.ClaimRequest) (dueq.Claim, error) {
	if err := p.usable(ctx, req.Queue); err != nil {
		return dueq.Claim{}, err
	}
	c, err := p.store.Claim(context.WithoutCancel(ctx), req)
	if !c.LeaseEnds.IsZero() || mayHaveHappened(err) {
		p.watch(req.Queue, c, err)
	}
	if ctx.Err() != nil {
		p.handOn(req.Queue, req.Lease, c)
		return dueq.Claim{}, ctx.Err()
	}
	return c, err
}

// watch has leases looked after that a claim past the line left.
func (p *polls) watch(queue string, c dueq.Claim, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.line(queue).lend(c, err)
		p.wake()
	}
}

func (p *polls) usable(ctx context.Context, queue string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return &dueq.CallError{Op: "claim", Queue: queue, Err: dueq.ErrClosed}
	}
	return ctx.Err()
}

// giveBack is for a claim whose answer cannot have arrived whole: its tasks go
// back to their queue, no attempt charged. Tasks claimed at most once go to the
// next in line first. It does not wait for the store.
func (p *polls) giveBack(queue string, c dueq.Claim) {
	const none = -1 // what is left of a lease is for nobody: the next claim gives a full one
	p.handOn(queue, none, c)
}

// handOn gives tasks that were claimed with a lease to the next in line, and
// what is left back to the queue.
func (p *polls) handOn(queue string, lease time.Duration, c dueq.Claim) {
	if len(c.Tasks) == 0 {
		return
	}
	p.mu.Lock()
	if !p.closed {
		defer p.mu.Unlock()
		p.line(queue).share(lease, c)
		p.wake()
		return
	}
	p.mu.Unlock()
	p.release(context.Background(), queue, leftOf(c))
}

// drain ends all waits, and lets none begin.
func (p *polls) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = true
	for _, l := range p.lines {
		for w := range l.all() {
			w.end()
		}
	}
}

// close drains, and returns when all goroutines have ended: claims under way
// have come back, and what nobody waits for any more is released.
func (p *polls) close() {
	p.drain()
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	if p.stop != nil {
		p.stop()
	}
	p.mu.Unlock()
	p.going.Wait()
	if !closed {
		p.leaveAll()
	}
}

// waiting returns how many polls wait.
func (p *polls) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, l := range p.lines {
		n += l.waiters.Len()
	}
	return n
}

// join puts a request in its line; it returns nil when none may wait.
func (p *polls) join(req dueq.ClaimRequest) *waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		return nil
	}
	l := p.line(req.Queue)
	if l.waiters.Len() == 0 {
		l.plan.open(time.Now())
		p.wake()
	}
	w := &waiter{req: req, line: l, ready: make(chan struct{})}
	w.place = l.waiters.PushBack(w)
	return w
}

// line returns the line of a queue, new if there is none. Called with mu held.
func (p *polls) line(queue string) *line {
	l := p.lines[queue]
	if l == nil {
		l = newLine(p, queue)
		p.lines[queue] = l
	}
	if p.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		p.stop = cancel
		p.going.Go(func() { p.plan(ctx) })
		p.going.Go(func() { p.listen(ctx) })
	}
	return l
}

// expire ends a wait.
func (p *polls) expire(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.end()
}

// abandon takes a waiter who vanished out of its line, and what it was given
// away from it.
func (p *polls) abandon(w *waiter) {
	p.mu.Lock()
	waits := w.place != nil
	if waits {
		w.line.leave(w)
	}
	p.mu.Unlock()
	if !waits {
		p.handOn(w.req.Queue, w.req.Lease, w.claim)
	}
}

// wake makes the planner look again.
func (p *polls) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// quietly logs a kind of trouble when it begins, then once per ten seconds.
type quietly struct {
	to   *slog.Logger
	mu   sync.Mutex // guards last
	last map[string]time.Time
}

func (q *quietly) log(level slog.Level, kind, message string, args ...any) {
	if q.isTime(kind) {
		q.to.Log(context.Background(), level, message, args...)
	}
}

func (q *quietly) isTime(kind string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if now.Sub(q.last[kind]) < 10*time.Second {
		return false
	}
	q.last[kind] = now
	return true
}
