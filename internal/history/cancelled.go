package history

import "github.com/dueq/dueq"

// checkCancelled finds deliveries claimed after the answer that their schedule
// is gone: cancelled, replaced, or in no place.
func (c *checker) checkCancelled(t *task, s *schedule) {
	for _, o := range t.calls {
		if o == s.Call || !o.confirmsGone() || o.Asked <= c.latest(s.Call) {
			continue
		}
		for _, d := range s.deliveries {
			if d.Asked > o.Answered {
				c.ranAfter(t, d, o)
			}
		}
	}
}

func (c *checker) ranAfter(t *task, d *Delivery, o *Call) {
	what, by := Cancelled, ""
	if f := c.forgotten(o.Answered); f != nil && (!o.protected() || f.Deposes && d.Asked <= f.Until) {
		what, by = NotReplicated, ", lost by "+f.Kind
	}
	c.find(what, t.Key, "body %q was claimed at %v, %s was answered %s at %v%s", d.Mark, d.Asked, o.Do, o.Status, o.Answered, by)
}

// confirmsGone: by the answer no schedule made before the call is left, or runs
// another time.
func (c *Call) confirmsGone() bool {
	switch c.Do {
	case Cancel, Stop, Delete:
		return c.done(dueq.StatusDone, dueq.StatusNotFound) || c.Do == Cancel && c.done(dueq.StatusRunning)
	case Schedule:
		return c.applied()
	}
	return false
}
