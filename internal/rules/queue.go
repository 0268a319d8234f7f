// Package rules is what a queue does with its tasks: every transition of
// docs/design.md, over whatever keeps the entries. The stores that run in Go
// are a [Storage] each, with their own way of locking and of telling sleepers.
package rules

import (
	"bytes"
	"fmt"
	"math"

	"github.com/dueq/dueq"
)

// Place is one of the ordered sets of a queue.
type Place uint8

const (
	Scheduled Place = iota // score: due, Unix ms
	Next                   // score: due; scheduled again and due while an earlier run is active
	Active                 // score: Entry.Lease
	Dead                   // score: when it died, Unix ms
	Places
)

// Entry is all there is of one member.
type Entry struct {
	Member string
	In     [Places]bool
	Score  [Places]float64 // where In is set
	Lease  int64           // end in Unix seconds × 1,000,000 + delivery number, while active

	Failures  int
	Rounds    int
	Cancelled bool // the run in progress is the last
	LastErr   string

	HasBody  bool
	BodySize int
	Body     []byte // nil also if it is left for Storage.Body to fetch
	NewBody  bool   // it was set or taken away: for storages that write only what changed
}

// Somewhere reports whether the entry is in a place.
func (e *Entry) Somewhere() bool {
	return e.In[Scheduled] || e.In[Next] || e.In[Active] || e.In[Dead]
}

func (e *Entry) empty() bool {
	return !e.Somewhere() && !e.HasBody && e.Failures == 0 && e.Rounds == 0 && !e.Cancelled && e.LastErr == ""
}

func (e *Entry) setBody(body []byte) {
	if body == nil && !e.HasBody {
		return
	}
	e.HasBody, e.BodySize, e.Body, e.NewBody = body != nil, len(body), bytes.Clone(body), true
}

// forgetTries drops failures, rounds, the cancelled mark and the last error.
func (e *Entry) forgetTries() {
	e.Failures, e.Rounds, e.Cancelled, e.LastErr = 0, 0, false, ""
}

// Position is where an entry stands in a place: by score, then member.
type Position struct {
	Score  float64
	Member string
}

// Before is the order of a place.
func (a Position) Before(b Position) bool {
	return a.Score < b.Score || a.Score == b.Score && a.Member < b.Member
}

// At is the position of an entry in a place.
func (e *Entry) At(p Place) Position { return Position{e.Score[p], e.Member} }

// Storage keeps the entries of one queue. It has no errors: one that can fail
// notes its first error, answers with nothing from then on, and undoes what
// the call did.
//
// There is one Entry per member at a time, so that changes through one pointer
// are seen through all.
type Storage interface {
	Find(member string) *Entry // nil if there is none
	New(member string) *Entry  // an empty one, where Find found none
	Drop(e *Entry)             // it is empty now
	Body(e *Entry) []byte      // of an entry that has one

	Put(p Place, e *Entry)    // In and Score say so already
	Remove(p Place, e *Entry) // In and Score still say where it is
	Min(p Place) *Entry       // the first, or nil
	// Ascend and Descend yield entries in order while yield says so; Ascend
	// begins after a position, or at the start. yield changes nothing.
	Ascend(p Place, after *Position, yield func(*Entry) bool)
	Descend(p Place, yield func(*Entry) bool)
	Len(p Place) int
	Count(p Place, limit float64) int // of those with scores up to limit
}

// Never is a time, in Unix ms, before all others.
const Never = math.MinInt64 / 1_000_000

// Meta is what a queue has besides entries.
type Meta struct {
	Known     bool // scheduled to, claimed from or set
	Settings  dueq.Settings
	LastClaim int64 // Unix ms, or Never
	Grace     int64 // Unix ms: no lease is taken back before; or Never
	Delivery  int64 // number of the last claim that took tasks
	Totals    dueq.Totals
}

// NewMeta is that of a queue that nobody used.
func NewMeta() Meta {
	return Meta{Settings: dueq.DefaultSettings(), LastClaim: Never, Grace: Never}
}

// Queue applies the rules to one queue. It is not safe for concurrent use.
type Queue struct {
	Name string
	Meta
	Storage Storage

	found []*Entry // of the last call of find
	due   []*Entry // of the last call of first or last
}

// New returns a queue that nobody used.
func New(name string, s Storage) *Queue {
	return &Queue{Name: name, Meta: NewMeta(), Storage: s}
}

// Add does what a plain ZADD does on Redis: it sets the due time, in Unix ms,
// of any member to any score but NaN, and touches nothing else.
func (q *Queue) Add(member string, score float64) {
	if !math.IsNaN(score) {
		q.put(Scheduled, q.entry(member), score)
	}
}

// Remove does what a plain ZREM does on Redis: it takes the due time away, and
// leaves what else the member has.
func (q *Queue) Remove(member string) {
	if e := q.Storage.Find(member); e != nil {
		q.remove(Scheduled, e)
		if e.empty() {
			q.Storage.Drop(e)
		}
	}
}

// Head returns the earliest score of a place, or +Inf if it is empty.
func (q *Queue) Head(p Place) float64 {
	if e := q.Storage.Min(p); e != nil {
		return e.Score[p]
	}
	return math.Inf(1)
}

// entry returns the entry of a member, new if there is none.
func (q *Queue) entry(member string) *Entry {
	if e := q.Storage.Find(member); e != nil {
		return e
	}
	return q.Storage.New(member)
}

// put sets the score of e in a place.
func (q *Queue) put(p Place, e *Entry, score float64) {
	q.remove(p, e)
	e.In[p], e.Score[p] = true, score
	q.Storage.Put(p, e)
}

func (q *Queue) remove(p Place, e *Entry) {
	if e.In[p] {
		q.Storage.Remove(p, e)
		e.In[p] = false
	}
}

// activate gives e a lease.
func (q *Queue) activate(e *Entry, lease int64) {
	q.remove(Active, e)
	e.Lease = lease
	q.put(Active, e, float64(lease))
}

// bury makes e a dead letter.
func (q *Queue) bury(e *Entry, now Instant) {
	q.put(Dead, e, float64(now.ms))
}

func (q *Queue) body(e *Entry) []byte {
	if e.HasBody && e.Body == nil {
		e.Body = q.Storage.Body(e)
	}
	return e.Body
}

// first returns up to n entries of a place with scores up to limit, in order.
// It is valid until the next call of first or last.
func (q *Queue) first(p Place, limit float64, n int) []*Entry {
	q.due = q.due[:0]
	if n > 0 {
		q.Storage.Ascend(p, nil, func(e *Entry) bool {
			if e.Score[p] > limit {
				return false
			}
			q.due = append(q.due, e)
			return len(q.due) < n
		})
	}
	return q.due
}

// last returns up to n entries of a place with scores over limit, last first.
// It is valid until the next call of first or last.
func (q *Queue) last(p Place, limit float64, n int) []*Entry {
	q.due = q.due[:0]
	if n > 0 {
		q.Storage.Descend(p, func(e *Entry) bool {
			if e.Score[p] <= limit {
				return false
			}
			q.due = append(q.due, e)
			return len(q.due) < n
		})
	}
	return q.due
}

// checkCount reports that n items are too many for one call.
func checkCount(field string, n int) error {
	if n > dueq.MaxItems {
		return &dueq.FieldError{Field: field, Reason: fmt.Sprintf("are %d, the limit is %d", n, dueq.MaxItems)}
	}
	return nil
}

func refused(err error) dueq.Outcome {
	return dueq.Outcome{Status: dueq.StatusRefused, Err: err}
}
