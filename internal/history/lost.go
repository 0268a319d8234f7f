package history

import "github.com/dueq/dueq"

// checkLost finds schedules that were acknowledged, never ended for good, and
// lie nowhere.
func (c *checker) checkLost(t *task, s *schedule) {
	if !s.applied() || c.ended(t, s) || c.excused(t, s, map[string]bool{}) {
		return
	}
	if f := c.forgotten(s.Answered); f != nil && !s.Safe {
		c.find(NotReplicated, t.Key, "body %q, acknowledged at %v, lost by %s", s.Mark, s.Answered, f.Kind)
		return
	}
	c.find(Lost, t.Key, "body %q was acknowledged at %v, due %s, delivered %d times, never handled to its end", s.Mark, s.Answered, milli(s.Due), len(s.deliveries))
}

// ended: s was handled or lies somewhere.
func (c *checker) ended(t *task, s *schedule) bool {
	place := c.Final.Tasks[t.Key]
	return s.handled() || place.State != dueq.StateNone && place.Mark == s.Mark
}

// excused: something took s away, or may have: a cancel, or a schedule that
// itself ended well. That one schedule replaced the other is no excuse for both.
func (c *checker) excused(t *task, s *schedule, seen map[string]bool) bool {
	seen[s.Mark] = true
	for _, o := range t.calls {
		if o == s.Call || c.latest(o) < s.Asked {
			continue
		}
		if o.takesAway() {
			return true
		}
		if !o.replaces(s) || seen[o.Mark] {
			continue
		}
		if by := t.schedules[o.Mark]; c.ended(t, by) || c.excused(t, by, seen) {
			return true
		}
	}
	return false
}

// takesAway: the call cancelled what was scheduled, or may have.
func (c *Call) takesAway() bool {
	switch c.Do {
	case Cancel, Stop, Delete:
		return c.perhaps(dueq.StatusDone, dueq.StatusRunning)
	}
	return false
}

// replaces: the call is a schedule that may have come in the place of s. One
// that found nothing replaced nothing, but a dead letter.
func (c *Call) replaces(s *schedule) bool {
	if c.Do != Schedule {
		return false
	}
	return c.perhaps(dueq.StatusReplaced, dueq.StatusRunning) || c.applied() && len(s.deliveries) > 0
}
