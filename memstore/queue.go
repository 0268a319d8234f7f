package memstore

import (
	"math"
	"sort"

	"github.com/dueq/dueq"
	"github.com/tidwall/btree"
)

// place is one of the sorted sets of a queue.
type place uint8

const (
	scheduled place = iota // score: due, Unix ms
	next                   // score: due; scheduled again and due while an earlier run is active
	active                 // score: entry.lease
	dead                   // score: when it died, Unix ms
	places
)

// entry is all there is of one member.
type entry struct {
	member string
	in     [places]bool
	score  [places]float64 // where in is set
	lease  int64           // end in Unix seconds × 1,000,000 + delivery number, while active

	body      []byte // nil means none
	failures  int
	rounds    int
	cancelled bool // the run in progress is the last
	lastErr   string
}

func (e *entry) somewhere() bool {
	return e.in[scheduled] || e.in[next] || e.in[active] || e.in[dead]
}

func (e *entry) empty() bool {
	return !e.somewhere() && e.body == nil && e.failures == 0 && e.rounds == 0 && !e.cancelled && e.lastErr == ""
}

// forgetTries drops failures, rounds, the cancelled mark and the last error.
func (e *entry) forgetTries() {
	e.failures, e.rounds, e.cancelled, e.lastErr = 0, 0, false, ""
}

// item is an entry in a sorted set, ordered by score, then member.
type item struct {
	score float64
	entry *entry
}

func (a item) before(b item) bool {
	return a.score < b.score || a.score == b.score && a.entry.member < b.entry.member
}

// never is a time, in Unix ms, before all others.
const never = math.MinInt64 / 1_000_000

type queue struct {
	name     string
	known    bool // scheduled to, claimed from or set
	settings dueq.Settings
	entries  map[string]*entry
	sets     [places]*btree.BTreeG[item]

	lastClaim int64 // Unix ms, or never
	grace     int64 // Unix ms: no lease is taken back before; or never
	delivery  int64 // number of the last claim that took tasks
	totals    dueq.Totals

	found []*entry // of the last call of find
	due   []*entry // of the last call of first or last
}

func newQueue(name string) *queue {
	q := &queue{
		name: name, settings: dueq.DefaultSettings(), entries: map[string]*entry{},
		lastClaim: never, grace: never,
	}
	for p := range q.sets {
		q.sets[p] = btree.NewBTreeGOptions(item.before, btree.Options{NoLocks: true})
	}
	return q
}

// entry returns the entry of a member, new if there is none.
func (q *queue) entry(member string) *entry {
	e := q.entries[member]
	if e == nil {
		e = &entry{member: member}
		q.entries[member] = e
	}
	return e
}

// put sets the score of e in a set.
func (q *queue) put(p place, e *entry, score float64) {
	q.remove(p, e)
	e.in[p], e.score[p] = true, score
	q.sets[p].Set(item{score, e})
}

func (q *queue) remove(p place, e *entry) {
	if e.in[p] {
		q.sets[p].Delete(item{e.score[p], e})
		e.in[p] = false
	}
}

// activate gives e a lease.
func (q *queue) activate(e *entry, lease int64) {
	e.lease = lease
	q.put(active, e, float64(lease))
}

// bury makes e a dead letter.
func (q *queue) bury(e *entry, now instant) {
	q.put(dead, e, float64(now.ms))
}

// head returns the earliest score of a set, or +Inf if it is empty.
func (q *queue) head(p place) float64 {
	if it, ok := q.sets[p].Min(); ok {
		return it.score
	}
	return math.Inf(1)
}

// first returns up to n entries of a set with scores up to limit, in order. It
// is valid until the next call of first or last.
func (q *queue) first(p place, limit float64, n int) []*entry {
	q.due = q.due[:0]
	q.sets[p].Scan(func(it item) bool {
		if it.score > limit || len(q.due) == n {
			return false
		}
		q.due = append(q.due, it.entry)
		return true
	})
	return q.due
}

// last returns up to n entries of a set with scores over limit, last first. It
// is valid until the next call of first or last.
func (q *queue) last(p place, limit float64, n int) []*entry {
	q.due = q.due[:0]
	q.sets[p].Reverse(func(it item) bool {
		if it.score <= limit || len(q.due) == n {
			return false
		}
		q.due = append(q.due, it.entry)
		return true
	})
	return q.due
}

// count returns how many entries of a set have scores up to limit.
func (q *queue) count(p place, limit float64) int {
	set := q.sets[p]
	return sort.Search(set.Len(), func(i int) bool {
		it, _ := set.GetAt(i)
		return it.score > limit
	})
}
