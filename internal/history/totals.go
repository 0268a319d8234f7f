package history

import "github.com/dueq/dueq"

// checkTotals compares the counters of each queue with each other and, unless
// writes were lost, with the history.
func (c *checker) checkTotals() {
	for _, st := range c.Final.Queues {
		t, k := st.Totals, Key{Queue: st.Queue}
		over := t.Acked + t.Retried + t.Again + t.Released + t.Died + t.Ended + t.Stopped + t.Superseded
		if over+st.Active != t.Claimed {
			c.find(Wrong, k, "%d were claimed, %d ended and %d are active: %+v", t.Claimed, over, st.Active, t)
		}
		c.checkPlaces(st)
		if !c.losesWrites() {
			c.checkCounts(st)
		}
	}
}

// checkPlaces compares how many tasks are where with the tasks that are there.
func (c *checker) checkPlaces(st dueq.QueueStats) {
	var scheduled, dead int64
	for k, place := range c.Final.Tasks {
		switch {
		case k.Queue != st.Queue:
		case place.State == dueq.StateScheduled:
			scheduled++
		case place.State == dueq.StateDead:
			dead++
		}
	}
	if scheduled != st.Scheduled || dead != st.Dead {
		c.find(Wrong, Key{Queue: st.Queue}, "%d are scheduled and %d dead, counted %d and %d", scheduled, dead, st.Scheduled, st.Dead)
	}
}

// checkCounts compares counters with what was acknowledged: at least so many,
// and at most those that nobody knows of on top.
func (c *checker) checkCounts(st dueq.QueueStats) {
	k := Key{Queue: st.Queue}
	var scheduled, acked, claimed bounds
	for _, call := range c.Calls {
		if call.Queue == st.Queue && call.Do == Schedule {
			scheduled.add(call.applied(), !call.known())
		}
	}
	for _, d := range c.Deliveries {
		if d.Queue != st.Queue {
			continue
		}
		claimed.add(true, false)
		acked.add(d.ackKnown())
	}
	scheduled.check(c, k, "scheduled", st.Totals.Scheduled)
	acked.check(c, k, "acked", st.Totals.Acked)
	claimed.most = max(claimed.most, st.Totals.Claimed) // answers that got lost
	claimed.check(c, k, "claimed", st.Totals.Claimed)
}

// ackKnown tells whether a delivery was acknowledged, or may have been.
func (d *Delivery) ackKnown() (yes, perhaps bool) {
	for _, o := range d.settles {
		if o.Verdict != dueq.VerdictAck {
			continue
		}
		yes = yes || o.done(dueq.StatusDone)
		perhaps = perhaps || !o.known()
	}
	return yes, perhaps
}

// bounds are how often something happened.
type bounds struct{ least, most int64 }

func (b *bounds) add(yes, perhaps bool) {
	if yes {
		b.least++
	}
	if yes || perhaps {
		b.most++
	}
}

func (b *bounds) check(c *checker, k Key, name string, got int64) {
	if got < b.least || got > b.most {
		c.find(Wrong, k, "%s is %d, the history has %d to %d", name, got, b.least, b.most)
	}
}
