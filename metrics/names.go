package metrics

import (
	"sync"
	"sync/atomic"

	"github.com/dueq/dueq"
)

// other is the label of what has none of its own. A queue of that name shares
// it.
const other = "other"

// names gives queues their labels: the first so many keep their names, those
// seen later share one. A lookup takes no lock.
type names struct {
	limit int
	make  func(label string) *queue
	rest  *queue // all that share a label

	known sync.Map     // name → *queue
	mu    sync.Mutex   // held to add to known
	count atomic.Int64 // of known
}

// queue is one label and its series, which are made when there is something to
// count.
type queue struct {
	label  string
	series func() *series
}

func newNames(limit int, seriesOf func(label string) *series) *names {
	n := &names{limit: limit, make: func(label string) *queue {
		return &queue{label: label, series: sync.OnceValue(func() *series { return seriesOf(label) })}
	}}
	n.rest = n.make(other)
	return n
}

// of returns the label of a queue.
func (n *names) of(name string) *queue {
	if q, ok := n.known.Load(name); ok {
		return q.(*queue)
	}
	if n.full() || dueq.ValidateQueue(name) != nil {
		return n.rest
	}
	return n.add(name)
}

func (n *names) full() bool { return n.count.Load() >= int64(n.limit) }

func (n *names) add(name string) *queue {
	n.mu.Lock()
	defer n.mu.Unlock()
	if q, ok := n.known.Load(name); ok {
		return q.(*queue)
	}
	if n.full() {
		return n.rest
	}
	q := n.make(name)
	n.known.Store(name, q)
	n.count.Add(1)
	return q
}
