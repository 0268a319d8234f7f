package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dueq/dueq"
)

func wakeTests() []test {
	return []test{
		{"a hint comes when a task becomes the earliest, none when it does not", wakeEarliest},
		{"whatever brings a new earliest task is hinted at", wakeAll},
		{"a hint of the last due time there is is exact", wakeFar},
		{"a claim without room hints at what is due, at nothing else", wakeNoRoom},
		{"the hints end with the context", wakeEnds},
	}
}

// patience bounds the waiting for what must come; it is only spent by a store
// that fails.
const patience = 10 * time.Second

// hints subscribes and waits until hints come through.
func (q *queue) hints() <-chan dueq.Hint {
	q.Helper()
	hints, err := q.Store.Wake(q.Context())
	q.must("Wake", err)
	probe := q.other(":probe")
	for i := range 100 {
		probe.put(probeName(i), dueq.In(time.Hour-time.Duration(i)*time.Second))
		select {
		case <-hints:
			return hints
		case <-time.After(patience / 100):
		}
	}
	q.Fatal("no hint comes")
	return nil
}

func probeName(i int) string { return string(rune('a'+i/26)) + string(rune('a'+i%26)) }

// next returns the next hint of the queue or of mark, which is a queue that a
// hint is sure to come for.
func (q *queue) next(hints <-chan dueq.Hint, names ...string) dueq.Hint {
	q.Helper()
	deadline := time.After(patience)
	for {
		select {
		case hint, ok := <-hints:
			if !ok {
				q.Fatal("the channel is closed")
			}
			for _, name := range names {
				if hint.Queue == name {
					return hint
				}
			}
		case <-deadline:
			q.Fatal("no hint came")
		}
	}
}

// expect waits for the hint that the queue has a task due then; hints from
// before may still come.
func (q *queue) expect(what string, hints <-chan dueq.Hint, due time.Time) {
	q.Helper()
	for range 1000 {
		if hint := q.next(hints, q.name); hint.Due.Equal(due) {
			return
		}
	}
	q.Errorf("%s: no hint of %v", what, due)
}

func wakeEarliest(q *queue) {
	hints := q.hints()
	first := q.put("first", dueq.In(time.Hour))
	q.expect("the first task", hints, first.Due)
	earlier := q.put("earlier", dueq.In(time.Minute))
	q.expect("an earlier task", hints, earlier.Due)

	q.put("later", dueq.In(2*time.Hour))
	q.schedule(q.item("first", dueq.In(3*time.Hour)))
	q.changeOne(dueq.OpCancel, "later")
	mark := q.other(":mark")
	mark.put("x", dueq.In(0))
	if hint := q.next(hints, q.name, mark.name); hint.Queue == q.name {
		q.Errorf("a hint of %v came, the earliest task is due at %v as before", hint.Due, earlier.Due)
	}
}

func wakeAll(q *queue) {
	hints := q.hints()
	far := q.put("x", dueq.In(10*time.Hour))
	q.expect("schedule", hints, far.Due)
	o := q.change(dueq.OpReschedule, dueq.Target{Member: "x", When: dueq.In(time.Hour)})[0]
	q.expect("reschedule", hints, o.Due)
	o = q.schedule(q.item("x", dueq.In(0)))[0]
	q.expect("replace", hints, o.Due)
	o = q.end(q.one(0), dueq.VerdictRetry, time.Second, "e", dueq.StatusDone)
	q.expect("retry", hints, o.Due)
	q.Advance(time.Second)
	o = q.end(q.one(0), dueq.VerdictAgain, 2*time.Second, "", dueq.StatusDone)
	q.expect("again", hints, o.Due)
	q.Advance(2 * time.Second)
	q.end(q.one(0), dueq.VerdictDead, 0, "e", dueq.StatusDone)
	q.Advance(time.Second)
	o = q.changeOne(dueq.OpRequeue, "x")
	q.expect("requeue", hints, o.Due)
	task := q.one(0)
	due := q.put("x", dueq.In(0)).Due
	q.expect("schedule beside a run", hints, due)
	q.Advance(time.Second)
	q.none()
	q.end(task, dueq.VerdictAck, 0, "", dueq.StatusSuperseded)
	q.expect("the end of a run that is scheduled again", hints, due)
}

func wakeFar(q *queue) {
	hints := q.hints()
	last := time.UnixMilli(dueq.MaxDueMilli)
	q.put("x", dueq.At(last))
	q.expect("the only task", hints, last)
}

func wakeNoRoom(q *queue) {
	hints := q.hints()
	due := q.put("x", dueq.In(time.Second)).Due
	q.expect("schedule", hints, due)
	q.claim(0, time.Minute)
	mark := q.other(":mark")
	mark.put("x", dueq.In(0))
	if hint := q.next(hints, q.name, mark.name); hint.Queue == q.name {
		q.Errorf("a hint of %v came before that", hint.Due)
	}
	q.Advance(time.Second)
	q.claim(0, time.Minute)
	q.expect("a claim of none", hints, due)
}

func wakeEnds(q *queue) {
	ctx, cancel := context.WithCancel(q.Context())
	hints, err := q.Store.Wake(ctx)
	q.must("Wake", err)
	cancel()
	deadline := time.After(patience)
	for {
		select {
		case _, ok := <-hints:
			if !ok {
				return
			}
		case <-deadline:
			q.Fatal("the channel stays open")
		}
	}
}

func closeTests() []test {
	return []test{{"a closed store says so, and closing twice is harmless", closed}}
}

func closed(q *queue) {
	q.put("there", dueq.In(0))
	task := q.one(0)
	q.must("Close", q.Store.Close())
	q.must("Close again", q.Store.Close())
	q.closed = true
	for _, call := range q.calls(task.Lease) {
		q.fails(call.name, call.run(q.Context(), q.name), dueq.ErrClosed)
	}
	_, err := q.Store.Stats(q.Context())
	q.fails("Stats of all", err, dueq.ErrClosed)
	_, err = q.Store.Wake(q.Context())
	q.fails("Wake", err, dueq.ErrClosed)
	if p, ok := q.Store.(dueq.Prober); ok {
		q.fails("Probe", p.Probe(q.Context()), dueq.ErrClosed)
	}
}

func closingTests() []test {
	return []test{{"closing amid calls, from several sides, ends them all", closing}}
}

func closing(q *queue) {
	q.put("there", dueq.In(0))
	calls := q.calls(q.one(0).Lease)
	hints, err := q.Store.Wake(q.Context())
	q.must("Wake", err)
	q.closed = true
	var group sync.WaitGroup
	for _, call := range calls {
		group.Go(func() {
			var err error
			for !errors.Is(err, dueq.ErrClosed) {
				err = call.run(q.Context(), q.name)
				if err != nil && !errors.Is(err, dueq.ErrClosed) && !errors.Is(err, dueq.ErrUnavailable) {
					q.T.Errorf("%s while it closes: got %v", call.name, err)
					return
				}
			}
		})
	}
	for range 3 {
		group.Go(func() {
			if err := q.Store.Close(); err != nil {
				q.T.Errorf("Close: %v", err)
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		group.Wait()
		for range hints {
		}
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		q.Errorf("calls or hints have not ended within 20 s")
	}
}
