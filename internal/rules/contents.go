package rules

import "fmt"

// Contents is what lies in a queue, place by place: for tests.
type Contents struct {
	Scheduled, Next, Dead map[string]float64 // Unix ms by member
	Active                map[string]int64   // end of lease in seconds × 1,000,000 + delivery number
	Body, Tries, Error    map[string]string  // tries as failures[/rounds], - for a cancelled run
}

// NewContents returns what lies in an empty queue.
func NewContents() Contents {
	return Contents{
		Scheduled: map[string]float64{}, Next: map[string]float64{}, Dead: map[string]float64{}, Active: map[string]int64{},
		Body: map[string]string{}, Tries: map[string]string{}, Error: map[string]string{},
	}
}

// Add adds an entry, whose body must be there.
func (c *Contents) Add(e *Entry) {
	for p, set := range map[Place]map[string]float64{Scheduled: c.Scheduled, Next: c.Next, Dead: c.Dead} {
		if e.In[p] {
			set[e.Member] = e.Score[p]
		}
	}
	if e.In[Active] {
		c.Active[e.Member] = e.Lease
	}
	if e.HasBody {
		c.Body[e.Member] = string(e.Body)
	}
	if e.LastErr != "" {
		c.Error[e.Member] = e.LastErr
	}
	switch {
	case e.Cancelled:
		c.Tries[e.Member] = "-"
	case e.Rounds > 0:
		c.Tries[e.Member] = fmt.Sprintf("%d/%d", e.Failures, e.Rounds)
	case e.Failures > 0:
		c.Tries[e.Member] = fmt.Sprint(e.Failures)
	}
}
