package history

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dueq/dueq"
)

// Recorder collects the events of one process, or of several. It is safe for
// concurrent use.
type Recorder struct {
	process string
	parent  *Recorder // has the events instead; nil for one of its own
	calls   atomic.Int64

	mu     sync.Mutex // guards the rest
	events []event
	out    io.Writer // nil: events are kept here
	err    error     // the first that out had
}

// event is one thing that happened: exactly one of its pointers is set.
type event struct {
	Asked     *Call       `json:",omitempty"`
	Answered  *answer     `json:",omitempty"`
	Delivered *Delivery   `json:",omitempty"`
	Started   *runInstant `json:",omitempty"`
	Ended     *runInstant `json:",omitempty"`
	Fault     *Fault      `json:",omitempty"`
}

type answer struct {
	ID       string
	Answered Instant
	Answer   Answer
	Status   dueq.Status
	Due      time.Time
	Err      string
}

type runInstant struct {
	Process string
	Key
	Token   dueq.Token
	At      Instant
	Verdict dueq.Verdict
}

// NewRecorder returns a Recorder that keeps what happens in a process of that
// name. Names are unique: a process that is started again has a new one.
func NewRecorder(process string) *Recorder { return &Recorder{process: process} }

// NewStream returns a Recorder that writes each event to out as it happens, one
// line in one write, so that whoever reads it knows all even if this process is
// killed.
func NewStream(process string, out io.Writer) *Recorder {
	return &Recorder{process: process, out: out}
}

// Err returns the first error of writing a stream.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// As returns a Recorder that adds to r under the name of another process: for
// workers that are several in one process.
func (r *Recorder) As(process string) *Recorder {
	return &Recorder{process: process, parent: r}
}

// Add adds one line of another process's stream. Half a line, the last of a
// process that was killed, says nothing and is an error.
func (r *Recorder) Add(line []byte) error {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	r.add(e)
	return nil
}

// Fault adds a fault.
func (r *Recorder) Fault(f Fault) { r.add(event{Fault: &f}) }

func (r *Recorder) add(e event) {
	if r.parent != nil {
		r.parent.add(e)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out == nil {
		r.events = append(r.events, e)
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.out.Write(append(line, '\n'))
	}
	if r.err == nil {
		r.err = err
	}
}

// asked notes that a call begins.
func (r *Recorder) asked(c Call) *Call {
	c.Process = r.process
	c.ID = fmt.Sprintf("%s/%d", r.process, r.calls.Add(1))
	c.Asked = Now()
	r.add(event{Asked: &c})
	return &c
}

// answered notes how a call ended.
func (r *Recorder) answered(c *Call, o dueq.Outcome, err error) {
	r.add(event{Answered: &answer{c.ID, Now(), answerOf(o, err), o.Status, o.Due, oddOf(err)}})
}

// History puts together what was recorded. Nothing may be recorded after it.
func (r *Recorder) History(final Final) *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := builder{History: &History{Final: final}, calls: map[string]*Call{}, held: map[holding]*Delivery{}}
	for _, e := range r.events {
		b.take(e)
	}
	return b.History
}

// holding tells deliveries apart: a number may come twice after data was lost,
// but not to one process while it holds the first.
type holding struct {
	process string
	Key
	token dueq.Token
}

type builder struct {
	*History
	calls map[string]*Call
	held  map[holding]*Delivery
}

func (b *builder) take(e event) {
	switch {
	case e.Asked != nil:
		c := *e.Asked
		b.calls[c.ID] = &c
		b.place(&c)
	case e.Answered != nil:
		if c := b.calls[e.Answered.ID]; c != nil {
			a := e.Answered
			c.Answered, c.Answer, c.Status, c.Due, c.Err = a.Answered, a.Answer, a.Status, a.Due, a.Err
		}
	case e.Delivered != nil:
		d := *e.Delivered
		b.Deliveries = append(b.Deliveries, &d)
		b.held[holding{d.Process, d.Key, d.Token}] = &d
	case e.Started != nil:
		if d := b.held[e.Started.holding()]; d != nil {
			d.Started = e.Started.At
		}
	case e.Ended != nil:
		if d := b.held[e.Ended.holding()]; d != nil {
			d.Ended, d.Verdict = e.Ended.At, e.Ended.Verdict
		}
	case e.Fault != nil:
		b.Faults = append(b.Faults, *e.Fault)
	}
}

// place puts a call among the calls, or to the delivery that it is about.
func (b *builder) place(c *Call) {
	b.Calls = append(b.Calls, c)
	d := b.held[holding{c.Process, c.Key, c.Token}]
	switch {
	case d == nil:
	case c.Do == Settle:
		d.settles = append(d.settles, c)
	case c.Do == Extend:
		d.extends = append(d.extends, c)
	}
}

func (r *runInstant) holding() holding { return holding{r.Process, r.Key, r.Token} }

// Tasks returns the members of one queue that were ever asked for, sorted.
func (r *Recorder) Tasks(queue string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for _, e := range r.events {
		if e.Asked != nil && e.Asked.Queue == queue {
			seen[e.Asked.Task] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}
