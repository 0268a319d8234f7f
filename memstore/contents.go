package memstore

import "fmt"

// Contents is what lies in a queue, place by place: for tests.
type Contents struct {
	Scheduled, Next, Dead map[string]float64 // Unix ms by member
	Active                map[string]int64   // end of lease in seconds × 1,000,000 + delivery number
	Body, Tries, Error    map[string]string  // tries as failures[/rounds], - for a cancelled run
}

// Contents returns a copy of all that lies in a queue.
func (s *Store) Contents(queue string) Contents {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Contents{
		Scheduled: map[string]float64{}, Next: map[string]float64{}, Dead: map[string]float64{}, Active: map[string]int64{},
		Body: map[string]string{}, Tries: map[string]string{}, Error: map[string]string{},
	}
	for member, e := range s.peek(queue).entries {
		c.add(member, e)
	}
	return c
}

func (c *Contents) add(member string, e *entry) {
	for p, set := range map[place]map[string]float64{scheduled: c.Scheduled, next: c.Next, dead: c.Dead} {
		if e.in[p] {
			set[member] = e.score[p]
		}
	}
	if e.in[active] {
		c.Active[member] = e.lease
	}
	if e.body != nil {
		c.Body[member] = string(e.body)
	}
	if e.lastErr != "" {
		c.Error[member] = e.lastErr
	}
	switch {
	case e.cancelled:
		c.Tries[member] = "-"
	case e.rounds > 0:
		c.Tries[member] = fmt.Sprintf("%d/%d", e.failures, e.rounds)
	case e.failures > 0:
		c.Tries[member] = fmt.Sprint(e.failures)
	}
}
