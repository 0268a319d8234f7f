package rules

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dueq/dueq"
)

// priorityWindow is how many due tasks compete by priority.
const priorityWindow = 1000

// Claim leases due tasks. It is the one tick of a queue: it does all that time
// made due.
func (q *Queue) Claim(req dueq.ClaimRequest, now Instant) (dueq.Claim, error) {
	if err := q.checkClaim(&req); err != nil {
		return dueq.Claim{}, err
	}
	q.Known = true
	c := dueq.Claim{Now: now.time()}
	if q.LastClaim != Never {
		c.Previous = milliTime(q.LastClaim)
	}
	q.takeBackLeases(now)
	q.takeBackNext()
	q.trimDead(now)
	c.Paused = q.Settings.Paused
	if !c.Paused {
		taker := &taker{q: q, now: now, lease: req.Lease, claim: &c}
		taker.take(req.Max)
	}
	c.Wait = q.wait(now)
	return c, nil
}

// CallsForOthers reports whether sleepers are to be told of a due task because
// who claimed had no room for it.
func (q *Queue) CallsForOthers(req dueq.ClaimRequest, c dueq.Claim) bool {
	return req.Max == 0 && !c.Paused && q.Head(Scheduled) <= float64(c.Now.UnixMilli())
}

// checkClaim reports what is wrong with a request, and fills in its lease.
func (q *Queue) checkClaim(req *dueq.ClaimRequest) error {
	if req.Max < 0 || req.Max > dueq.MaxItems {
		return &dueq.FieldError{Field: "max", Reason: fmt.Sprintf("%d is not 0 to %d", req.Max, dueq.MaxItems)}
	}
	if req.Lease == 0 {
		req.Lease = q.Settings.Lease
	}
	return q.checkLease(req.Lease)
}

func (q *Queue) checkLease(d time.Duration) error {
	if d < time.Second || d > q.Settings.LeaseMax {
		return &dueq.FieldError{Field: "lease", Reason: fmt.Sprintf("%v is not 1s to lease_max, %s",
			d, dueq.FormatDuration(q.Settings.LeaseMax))}
	}
	return nil
}

// taker takes the due tasks of one claim.
type taker struct {
	q     *Queue
	now   Instant
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
	for _, e := range k.q.last(Scheduled, beyond, limit-found) {
		k.meet(e)
	}
}

// dueFirst returns up to limit due entries in the order in which they are
// claimed.
func (q *Queue) dueFirst(now Instant, limit int) []*Entry {
	if !q.Settings.Priority {
		return q.first(Scheduled, float64(now.ms), limit)
	}
	due := q.first(Scheduled, float64(now.ms), priorityWindow)
	rank := make(map[*Entry]int, len(due))
	for _, e := range due {
		rank[e] = claimRank(e)
	}
	slices.SortStableFunc(due, func(a, b *Entry) int { return cmp.Compare(rank[b], rank[a]) })
	return due[:min(limit, len(due))]
}

// claimRank is higher for what is claimed first: bad ones, then priorities.
func claimRank(e *Entry) int {
	t, err := dueq.ParseMember(e.Member)
	if err != nil || !validScore(e.Score[Scheduled]) {
		return 10
	}
	return t.Priority.Level()
}

// meet parks, sets aside or delivers one scheduled entry. It reports false,
// and does nothing, when the claim has bodies enough.
func (k *taker) meet(e *Entry) bool {
	q, t, score := k.q, k.q.find(e.Member), e.Score[Scheduled]
	if t.is(Active) {
		q.remove(Scheduled, e)
		q.put(Next, e, score)
		return true
	}
	parsed, err := dueq.ParseMember(e.Member)
	if err == nil {
		err = q.checkScore(score, k.now)
	}
	if err != nil {
		k.setAside(t, e, err)
		return true
	}
	if len(k.claim.Tasks) > 0 && k.bytes+e.BodySize > dueq.MaxBytes {
		return false
	}
	k.deliver(t, e, parsed)
	return true
}

// checkScore reports why a due task must not run.
func (q *Queue) checkScore(score float64, now Instant) error {
	if !validScore(score) {
		return fmt.Errorf("score %v is not a time in ms from 1973 to 9999", score)
	}
	late, limit := now.ms-scoreMilli(score), q.Settings.MaxLate
	if limit > 0 && late > limit.Milliseconds() {
		return fmt.Errorf("due %v ago, max_late is %s", time.Duration(late)*time.Millisecond, dueq.FormatDuration(limit))
	}
	return nil
}

// setAside makes a task that must not run a dead letter.
func (k *taker) setAside(t task, e *Entry, reason error) {
	k.q.remove(Scheduled, e)
	failures, rounds := e.Failures, e.Rounds
	t.dropDead()
	e.Failures, e.Rounds = failures, rounds
	k.q.bury(e, k.now)
	e.LastErr = reason.Error()
	t.tidy()
	k.q.Totals.Refused++
}

func (k *taker) deliver(t task, e *Entry, parsed dueq.Task) {
	q, once := k.q, k.q.Settings.Delivery == dueq.AtMostOnce
	k.draw(once)
	t.dropDead()
	due := scoreMilli(e.Score[Scheduled])
	q.remove(Scheduled, e)
	d := &parsed
	d.Queue, d.Due = q.Name, milliTime(due)
	d.Attempt, d.Round = e.Failures+1, e.Rounds
	d.Age = time.Duration(k.now.micro()-due*1000) * time.Microsecond
	d.Lease = dueq.Lease{Member: e.Member, Token: k.token}
	d.Body = bytes.Clone(q.body(e))
	if once {
		q.remove(Next, e)
	} else {
		q.activate(e, k.score)
	}
	t.tidy()
	k.bytes += len(d.Body)
	k.claim.Tasks = append(k.claim.Tasks, d)
	q.Totals.Claimed++
}

// draw gives the claim its delivery number when it takes its first task.
func (k *taker) draw(once bool) {
	if k.drawn {
		return
	}
	k.drawn = true
	k.q.Delivery = (k.q.Delivery + 1) % deliveries
	k.token = newToken(k.q.Delivery, once)
	if once {
		return
	}
	end := k.now.leaseEnd(k.lease)
	k.score = leaseScore(end, k.q.Delivery)
	k.claim.LeaseEnds = secondTime(end)
}

// wait returns the time until a task is due or a lease ends, or -1.
func (q *Queue) wait(now Instant) time.Duration {
	wait := time.Duration(math.MaxInt64)
	var due *Entry
	if !q.Settings.Paused {
		due = q.Storage.Min(Scheduled)
	}
	if due != nil {
		wait = now.until(scoreMilli(due.Score[Scheduled]))
		if math.Ceil(due.Score[Scheduled]) > dueq.MaxDueMilli {
			wait = 0 // the next claim sets it aside
		}
	}
	lease := q.Storage.Min(Active)
	if lease != nil {
		end := leaseSecond(lease.Lease) * 1000
		wait = min(wait, now.until(max(end, q.Grace)))
	}
	if due == nil && lease == nil {
		return -1
	}
	return wait
}
