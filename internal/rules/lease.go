package rules

import (
	"cmp"
	"time"

	"github.com/dueq/dueq"
)

// deliveries is how many delivery numbers there are.
const deliveries = 1_000_000

func leaseScore(endSecond, number int64) int64 { return endSecond*deliveries + number }
func leaseSecond(score int64) int64            { return score / deliveries }
func leaseNumber(score int64) int64            { return score % deliveries }

func floorSecond(ms int64) int64 {
	s := ms / 1000
	if ms%1000 < 0 {
		s--
	}
	return s
}

// newToken packs a delivery number and the mode of the delivery. No token is
// zero.
func newToken(number int64, once bool) dueq.Token {
	token := dueq.Token(number+1) << 1
	if once {
		token |= 1
	}
	return token
}

func tokenNumber(t dueq.Token) int64 { return int64(t>>1) - 1 }
func tokenOnce(t dueq.Token) bool    { return t&1 != 0 }

// holder returns the active entry that the lease is of, or nil.
func (q *Queue) holder(lease dueq.Lease) *Entry {
	e := q.Storage.Find(lease.Member)
	if e == nil || !e.In[Active] || tokenOnce(lease.Token) || leaseNumber(e.Lease) != tokenNumber(lease.Token) {
		return nil
	}
	return e
}

// Extend makes leases end d from now.
func (q *Queue) Extend(leases []dueq.Lease, d time.Duration, now Instant) ([]dueq.Outcome, error) {
	if err := cmp.Or(checkCount("leases", len(leases)), q.checkLease(d)); err != nil {
		return nil, err
	}
	end := now.leaseEnd(d)
	outcomes := make([]dueq.Outcome, len(leases))
	for i, lease := range leases {
		outcomes[i] = q.extend(lease, end)
	}
	return outcomes, nil
}

func (q *Queue) extend(lease dueq.Lease, endSecond int64) dueq.Outcome {
	e := q.holder(lease)
	if e == nil {
		return dueq.Outcome{Status: dueq.StatusLeaseLost}
	}
	q.activate(e, leaseScore(endSecond, leaseNumber(e.Lease)))
	return dueq.Outcome{Status: dueq.StatusDone, Due: secondTime(endSecond)}
}
