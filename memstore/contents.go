package memstore

import "github.com/dueq/dueq/internal/rules"

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
	c := rules.NewContents()
	for _, e := range s.peek(queue).storage.entries {
		c.Add(e)
	}
	return Contents(c)
}
