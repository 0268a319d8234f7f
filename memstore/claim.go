package memstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dueq/dueq"
)

// priorityWindow is how many due tasks compete by priority.
const priorityWindow = 1000

// Claim leases due tasks.
func (s *Store) Claim(ctx context.Context, req dueq.ClaimRequest) (dueq.Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readyFor(ctx, req.Queue); err != nil {
		return dueq.Claim{}, callError("claim", req.Queue, err)
	}
	q := s.queue(req.Queue)
	if err := q.checkClaim(&req); err != nil {
		return dueq.Claim{}, callError("claim", req.Queue, err)
	}
	q.known = true
	defer s.hint(q, q.head(scheduled))
	return q.claim(req, s.now()), nil
}

// checkClaim reports what is wrong with a request, and fills in its lease.
func (q *queue) checkClaim(req *dueq.ClaimRequest) error {
	if req.Max < 0 || req.Max > dueq.MaxItems {
		return &dueq.FieldError{Field: "max", Reason: fmt.Sprintf("%d is not 0 to %d", req.Max, dueq.MaxItems)}
	}
	if req.Lease == 0 {
		req.Lease = q.settings.Lease
	}
	return q.checkLease(req.Lease)
}

func (q *queue) checkLease(d time.Duration) error {
	if d < time.Second || d > q.settings.LeaseMax {
		return &dueq.FieldError{Field: "lease", Reason: fmt.Sprintf("%v is not 1s to lease_max, %s",
			d, dueq.FormatDuration(q.settings.LeaseMax))}
	}
	return nil
}

// claim is the one tick of a queue: it does all that time made due.
func (q *queue) claim(req dueq.ClaimRequest, now instant) dueq.Claim {
	q.takeBackLeases(now)
	q.takeBackNext()
	q.trimDead(now)
	c := dueq.Claim{Now: now.time(), Paused: q.settings.Paused}
	if !c.Paused {
		taker := &taker{q: q, now: now, lease: req.Lease, claim: &c}
		taker.take(req.Max)
	}
	c.Wait = q.wait(now)
	return c
}

// taker takes the due tasks of one claim.
type taker struct {
	q     *queue
	now   instant
	lease time.Duration
	claim *dueq.Claim

	drawn bool  // a task was taken, so number and end are set
	score int64 // of the active entries
	token dueq.Token
	bytes int // of the bodies taken
}

func (k *taker) take(limit int) {
	due := k.q.dueFirst(k.now, limit)
	found := len(due)
	for _, e := range due {
		if !k.meet(e) {
			break
		}
	}
	if found == limit {
		return
	}
	beyond := max(float64(k.now.ms), dueq.MaxDueMilli)
	for _, e := range k.q.last(scheduled, beyond, limit-found) {
		k.meet(e)
	}
}

// dueFirst returns up to limit due entries in the order in which they are
// claimed.
func (q *queue) dueFirst(now instant, limit int) []*entry {
	if !q.settings.Priority {
		return q.first(scheduled, float64(now.ms), limit)
	}
	due := q.first(scheduled, float64(now.ms), priorityWindow)
	rank := make(map[*entry]int, len(due))
	for _, e := range due {
		rank[e] = claimRank(e)
	}
	slices.SortStableFunc(due, func(a, b *entry) int { return cmp.Compare(rank[b], rank[a]) })
	return due[:min(limit, len(due))]
}

// claimRank is higher for what is claimed first: bad ones, then priorities.
func claimRank(e *entry) int {
	t, err := dueq.ParseMember(e.member)
	if err != nil || !validScore(e.score[scheduled]) {
		return 10
	}
	return t.Priority.Level()
}

// meet parks, sets aside or delivers one scheduled entry. It reports false,
// and does nothing, when the claim has bodies enough.
func (k *taker) meet(e *entry) bool {
	q, t, score := k.q, k.q.find(e.member), e.score[scheduled]
	if t.is(active) {
		q.remove(scheduled, e)
		q.put(next, e, score)
		return true
	}
	parsed, err := dueq.ParseMember(e.member)
	if err == nil {
		err = q.checkScore(score, k.now)
	}
	if err != nil {
		k.setAside(t, e, err)
		return true
	}
	if len(k.claim.Tasks) > 0 && k.bytes+len(e.body) > dueq.MaxBytes {
		return false
	}
	k.deliver(t, e, parsed)
	return true
}

// checkScore reports why a due task must not run.
func (q *queue) checkScore(score float64, now instant) error {
	if !validScore(score) {
		return fmt.Errorf("score %v is not a time in ms from 1973 to 9999", score)
	}
	late, limit := now.ms-scoreMilli(score), q.settings.MaxLate
	if limit > 0 && late > limit.Milliseconds() {
		return fmt.Errorf("due %v ago, max_late is %s", time.Duration(late)*time.Millisecond, dueq.FormatDuration(limit))
	}
	return nil
}

// setAside makes a task that must not run a dead letter.
func (k *taker) setAside(t task, e *entry, reason error) {
	k.q.remove(scheduled, e)
	failures, rounds := e.failures, e.rounds
	t.dropDead()
	e.failures, e.rounds = failures, rounds
	k.q.bury(e, k.now)
	e.lastErr = reason.Error()
	t.tidy()
	k.q.totals.Refused++
}

func (k *taker) deliver(t task, e *entry, parsed dueq.Task) {
	q, once := k.q, k.q.settings.Delivery == dueq.AtMostOnce
	k.draw(once)
	t.dropDead()
	due := scoreMilli(e.score[scheduled])
	q.remove(scheduled, e)
	d := &parsed
	d.Queue, d.Due = q.name, milliTime(due)
	d.Attempt, d.Round = e.failures+1, e.rounds
	d.Age = time.Duration(k.now.micro()-due*1000) * time.Microsecond
	d.Lease = dueq.Lease{Member: e.member, Token: k.token}
	d.Body = e.body
	if once {
		q.remove(next, e)
	} else {
		d.Body = bytes.Clone(e.body)
		q.activate(e, k.score)
	}
	t.tidy()
	k.bytes += len(d.Body)
	k.claim.Tasks = append(k.claim.Tasks, d)
	q.totals.Claimed++
}

// draw gives the claim its delivery number when it takes its first task.
func (k *taker) draw(once bool) {
	if k.drawn {
		return
	}
	k.drawn = true
	k.q.delivery = (k.q.delivery + 1) % deliveries
	k.token = newToken(k.q.delivery, once)
	if once {
		return
	}
	end := k.now.leaseEnd(k.lease)
	k.score = leaseScore(end, k.q.delivery)
	k.claim.LeaseEnds = secondTime(end)
}

// wait returns the time until a task is due or a lease ends, or -1.
func (q *queue) wait(now instant) time.Duration {
	wait := time.Duration(math.MaxInt64)
	due, isDue := q.sets[scheduled].Min()
	isDue = isDue && !q.settings.Paused
	if isDue {
		wait = now.until(scoreMilli(due.score))
		if math.Ceil(due.score) > dueq.MaxDueMilli {
			wait = 0 // the next claim sets it aside
		}
	}
	lease, isLeased := q.sets[active].Min()
	if isLeased {
		end := leaseSecond(lease.entry.lease) * 1000
		wait = min(wait, now.until(max(end, q.grace)))
	}
	if !isDue && !isLeased {
		return -1
	}
	return wait
}
