package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/dueq/dueq"
)

// checkEarly finds deliveries before the earliest time at which their schedule
// could be due, by the store's clock.
func (c *checker) checkEarly(t *task, s *schedule) {
	for i, d := range s.deliveries {
		due := c.earliest(t, s, d)
		if again := i > 0 || d.Attempt > 1; again && c.stepped(s.Asked, d.Answered) {
			due = time.Time{} // a retry is due by the clock as it was set
		}
		if i > 0 {
			due = later(due, c.retryDue(t, s.deliveries[i-1], d))
		}
		if due = later(due, d.Due); d.Now.Before(due) {
			c.find(Early, t.Key, "body %q was claimed at %s by the store's clock, due %s at the earliest", s.Mark, milli(d.Now), milli(due))
		}
	}
}

// earliest is the first due time that s had or may have had when d was claimed;
// zero if nothing is known.
func (c *checker) earliest(t *task, s *schedule, d *Delivery) time.Time {
	first := c.dueOf(s.Call)
	for _, o := range t.calls {
		if o.mayMove() && o.Asked <= d.Answered && c.latest(o) >= s.Asked {
			if due := c.dueOf(o); due.Before(first) {
				first = due
			}
		}
	}
	return first
}

// mayMove: the call gave an existing schedule another due time, or may have.
func (c *Call) mayMove() bool {
	return (c.Do == Reschedule || c.Do == Requeue) && c.perhaps(dueq.StatusDone)
}

// retryDue is the due time that the delivery before d left; zero if nobody
// knows it or it may have been changed since.
func (c *checker) retryDue(t *task, before, d *Delivery) time.Time {
	for _, o := range t.calls {
		if o.mayMove() && c.between(o, before, d) {
			return time.Time{}
		}
	}
	for _, o := range before.settles {
		if o.done(dueq.StatusDone) && o.Verdict != dueq.VerdictAck && c.forgotten(o.Answered) == nil {
			return o.Due
		}
	}
	return time.Time{}
}

// dueOf is the earliest due time that a call can have set: the one it was
// answered, unless what it asked for was later.
func (c *checker) dueOf(o *Call) time.Time {
	asked := o.At
	if now := c.clockAt(o); asked.IsZero() && !now.IsZero() {
		asked = now.Add(o.Delay)
	}
	if o.known() {
		return later(asked, o.Due)
	}
	return asked
}

// drift is how much faster or slower than the monotonic clock a clock may go.
const drift = 0.001

// clockAt is the earliest time that the store's clock can have shown when o took
// effect: by the last claim before it or, without one, by the first after it.
func (c *checker) clockAt(o *Call) time.Time {
	d := c.reading(o)
	if d == nil {
		return time.Time{}
	}
	since := time.Duration(o.Asked - d.Answered)
	now := d.Now.Add(since - time.Duration(drift*float64(since.Abs())))
	from, until := min(d.Asked, o.Asked), max(d.Answered, c.latest(o))
	for _, f := range c.Faults {
		if f.Step != 0 && f.Until >= from && f.From <= until {
			now = now.Add(-f.Step.Abs())
		}
	}
	return now
}

// reading is a claim close to o that tells the store's clock: the last one
// answered before it or, without one, the first.
func (c *checker) reading(o *Call) *Delivery {
	all := c.readings[o.Queue]
	if len(all) == 0 {
		return nil
	}
	i, _ := slices.BinarySearchFunc(all, o.Asked, func(d *Delivery, at Instant) int { return cmp.Compare(d.Answered, at) })
	return all[max(i-1, 0)]
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
