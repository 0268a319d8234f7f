package dueq

import (
	"context"
	"time"
)

// sleeper wakes up at an instant more exactly than a timer. A timer of Go is up
// to a millisecond late, since an idle program waits in whole milliseconds; the
// system's own sleep is exact to some 50 us, but nothing can end it early. So
// the sleeper leaves the last moment to the system.
type sleeper struct {
	timer *time.Timer
	last  time.Duration // what is left to the system; zero where clocks are not real
}

func newSleeper() *sleeper {
	return &sleeper{timer: time.NewTimer(0), last: 1200 * time.Microsecond}
}

// sleep returns at an instant, or sooner when kicked or ctx ends.
func (s *sleeper) sleep(ctx context.Context, until time.Time, kick <-chan struct{}) {
	for _, left := range []time.Duration{s.last, 0} {
		s.timer.Reset(time.Until(until) - left)
		select {
		case <-s.timer.C:
		case <-kick:
			return
		case <-ctx.Done():
			return
		}
		s.finish(min(time.Until(until), left))
	}
}

func (s *sleeper) finish(d time.Duration) {
	if d <= 0 {
		return
	}
	before := time.Now()
	systemSleep(d)
	if time.Now().Equal(before) { // as in a testing/synctest bubble
		s.last = 0
	}
}
