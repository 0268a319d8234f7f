package dueq

import (
	"context"
	"errors"
	"time"
)

// verdict is a result on its way to the store.
type verdict struct {
	held   *held
	result Result
}

// settleLater queues a verdict. What gathers while a call is under way shares
// the next one; nothing waits for more. Called with mu held.
func (l *lane) settleLater(v verdict) {
	l.results = append(l.results, v)
	if !l.settling {
		l.settling = true
		l.w.settlers.Go(l.settle)
	}
}

// settle stores verdicts until there are none. While the store is away it
// tries again until the leases have ended or Run returns.
func (l *lane) settle() {
	failures := 0
	for {
		batch := l.takeResults()
		if len(batch) == 0 {
			return
		}
		left, err := l.settleBatch(batch)
		l.mu.Lock()
		l.results, l.sending = append(left, l.results...), 0
		l.mu.Unlock()
		if err == nil {
			if failures > 0 {
				l.w.recovered()
			}
			failures = 0
			continue
		}
		l.w.failed(l.queue, "settle", err)
		if !l.awaitTurn(failures) {
			return
		}
		failures++
	}
}

// awaitTurn waits before a call is repeated. It reports false when Run has
// returned.
func (l *lane) awaitTurn(failures int) bool {
	over := l.w.over
	pause(over, jitter(min(minPause<<min(failures, 10), maxPause)))
	for failures > 0 && over.Err() == nil && !l.w.turn() {
		pause(over, jitter(probeGap))
	}
	return over.Err() == nil
}

// takeResults takes what one call carries.
func (l *lane) takeResults() []verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.results), MaxItems)
	if n == 0 {
		l.settling = false
		return nil
	}
	batch := l.results[:n:n]
	l.results, l.sending = l.results[n:], n
	return batch
}

// settleBatch makes one call and returns the verdicts that are worth another.
func (l *lane) settleBatch(batch []verdict) ([]verdict, error) {
	results := make([]Result, len(batch))
	for i, v := range batch {
		results[i] = v.result
	}
	began := time.Now()
	outcomes, err := l.w.store.Settle(context.WithoutCancel(l.w.base), l.queue, results)
	l.w.opts.Observer.call("settle", l.queue, len(batch), time.Since(began), err)
	var left []verdict
	for i, v := range batch {
		if i < len(outcomes) && outcomes[i].Status != StatusUnknown {
			l.settled(v, outcomes[i])
		} else if l.worthAnother(v, err) {
			left = append(left, v)
		} else {
			l.w.log.Error("verdict not stored", "queue", l.queue, "task", v.result.Task.Lease.Member, "verdict", v.result.Verdict, "err", err)
		}
	}
	return left, err
}

func (l *lane) settled(v verdict, o Outcome) {
	l.w.opts.Observer.settled(v.result.Task, o)
	if o.Status == StatusLeaseLost {
		l.w.quiet.warn("lost "+l.queue, "lease was lost before the task was settled", "queue", l.queue, "task", v.result.Task.Lease.Member)
	}
}

// worthAnother: a verdict may be sent again while its lease may hold. What was
// claimed at most once is sent once, since nothing tells a repetition apart.
func (l *lane) worthAnother(v verdict, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var call *CallError
	if v.held.once && errors.As(err, &call) && call.MayHaveHappened {
		return false
	}
	return errors.Is(err, ErrUnavailable) && (v.held.once || time.Since(v.held.until) < settleOvertime)
}

// settleOvertime is how long after its lease's end a verdict is still sent: a
// lease that nobody took back still counts.
const settleOvertime = time.Minute
