package history

import (
	"slices"
	"time"

	"github.com/dueq/dueq"
)

// Second is a second run that a fault explains.
type Second struct {
	Key
	Mark          string
	Before, After *Delivery // the run it repeats, and itself
	Fault         Fault
}

// checkRepeats finds runs after a run that decided for good or never ended, and
// the fault that explains each.
func (c *checker) checkRepeats(t *task, s *schedule) {
	var before *Delivery
	for _, d := range s.deliveries {
		if d.Started == 0 {
			continue
		}
		if before != nil && (before.Ended == 0 || before.final()) && !c.requeued(t, before, d) {
			c.checkRepeat(s, before, d)
		}
		before = d
	}
}

// requeued: the first run made the task a dead letter, which may have been
// scheduled again.
func (c *checker) requeued(t *task, before, d *Delivery) bool {
	return before.Verdict == dueq.VerdictDead && slices.ContainsFunc(t.calls, func(o *Call) bool {
		return o.Do == Requeue && o.perhaps(dueq.StatusDone) && c.between(o, before, d)
	})
}

// between: the call may have taken effect between the claims of two deliveries.
func (c *checker) between(o *Call, before, d *Delivery) bool {
	return o.Asked <= d.Answered && c.latest(o) >= before.Asked
}

func (c *checker) checkRepeat(s *schedule, before, d *Delivery) {
	if f := c.forgottenRun(before); f != nil {
		c.report.Second = append(c.report.Second, Second{s.Key, s.Mark, before, d, *f})
		return
	}
	if settled := before.settled(); settled != nil {
		c.find(Unexplained, s.Key, "body %q ran again at %v, its end was acknowledged at %v", s.Mark, d.Started, settled.Answered)
		return
	}
	f := c.explains(before, d)
	if f == nil {
		c.find(Unexplained, s.Key, "body %q ran at %v and again at %v, no fault between", s.Mark, before.Started, d.Started)
		return
	}
	c.second[s.Queue] = append(c.second[s.Queue], Second{s.Key, s.Mark, before, d, *f})
}

// forgottenRun returns a fault that may have lost a claim or its end, or nil.
func (c *checker) forgottenRun(d *Delivery) *Fault {
	if settled := d.settled(); settled != nil {
		if f := c.forgotten(settled.Answered); f != nil {
			return f
		}
	}
	return c.forgotten(d.Answered)
}

// settled is the acknowledged end of a delivery, or nil.
func (d *Delivery) settled() *Call {
	for _, o := range d.settles {
		if o.done(dueq.StatusDone, dueq.StatusSuperseded) {
			return o
		}
	}
	return nil
}

// explains returns a fault during which the lease of the first delivery may
// have ended: one of its own process rather than one of the store, the last of
// those.
func (c *checker) explains(before, d *Delivery) *Fault {
	var best *Fault
	for i := range c.Faults {
		f := &c.Faults[i]
		if f.Spares || f.Process != "" && f.Process != before.Process || f.From > d.Answered || f.Until < before.Asked {
			continue
		}
		if best == nil || best.Process == "" && f.Process != "" || best.Process == f.Process && f.From > best.From {
			best = f
		}
	}
	return best
}

// countExplained lets each lease that ended explain one second run, no more. A
// store that lost writes has lost counts as well.
func (c *checker) countExplained() {
	for queue, seconds := range c.second {
		left := c.leasesEnded(queue, len(seconds))
		for i, s := range seconds {
			if i >= left {
				c.find(Unexplained, s.Key, "body %q ran again, but only %d leases of the queue ended", s.Mark, left)
				continue
			}
			c.report.Second = append(c.report.Second, s)
		}
	}
}

// leasesEnded is how many leases of a queue ended without a verdict.
func (c *checker) leasesEnded(queue string, unknown int) int {
	if c.losesWrites() {
		return unknown
	}
	for _, st := range c.Final.Queues {
		if st.Queue == queue {
			return int(st.Totals.Ended)
		}
	}
	return 0
}

// checkBeside finds a task that was claimed while an earlier delivery of it,
// under whatever schedule, held its lease by the store's clock.
func (c *checker) checkBeside(t *task) {
	for i := 1; i < len(t.deliveries); i++ {
		before, d := t.deliveries[i-1], t.deliveries[i]
		ends := c.leaseEnd(before, d)
		if !c.reached(before, d).Before(ends) || before.mayBeOver(d) || c.stopped(t, before, d) || c.forgotten(before.Answered) != nil {
			continue
		}
		c.find(Beside, t.Key, "claimed at %s by the store's clock, while %s held it until %s", milli(d.Now), before.Process, milli(ends))
	}
}

// reached is the latest time that the store's clock can have shown from one
// delivery to the next: one that was set back has shown later ones before.
func (c *checker) reached(before, d *Delivery) time.Time {
	if !c.stepped(before.Asked, d.Answered) {
		return d.Now
	}
	elapsed := time.Duration(d.Answered - before.Asked)
	latest := before.Now.Add(elapsed + time.Duration(drift*float64(elapsed)))
	for _, f := range c.Faults {
		if f.Until >= before.Asked && f.From <= d.Answered {
			latest = latest.Add(f.Step.Abs())
		}
	}
	return latest
}

// leaseEnd is when the lease of a delivery ended as far as its holder knew when
// the next one was claimed; zero if nobody knows, since the store's clock was
// set and the lease may have been made shorter.
func (c *checker) leaseEnd(d, next *Delivery) time.Time {
	ends := d.LeaseEnds
	for _, o := range d.extends {
		switch {
		case o.done(dueq.StatusDone) && o.Answered <= next.Asked && c.forgotten(o.Answered) == nil:
			ends = o.Due
		case o.perhaps(dueq.StatusDone) && o.Asked <= next.Answered && c.stepped(d.Asked, next.Answered):
			return time.Time{}
		}
	}
	return ends
}

// mayBeOver: a verdict may have ended the delivery before next was claimed.
func (d *Delivery) mayBeOver(next *Delivery) bool {
	for _, o := range d.settles {
		if o.Asked <= next.Answered && o.perhaps(dueq.StatusDone, dueq.StatusSuperseded) {
			return true
		}
	}
	return false
}

// stopped: the lease may have been taken away between two deliveries.
func (c *checker) stopped(t *task, before, d *Delivery) bool {
	return slices.ContainsFunc(t.calls, func(o *Call) bool {
		return o.Do == Stop && o.perhaps(dueq.StatusDone) && c.between(o, before, d)
	})
}
