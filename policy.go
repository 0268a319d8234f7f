package dueq

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// Policy gives the delay before the nth run more, n from 1, and false when
// there is no further one. Policies are safe for concurrent use.
type Policy func(n int) (delay time.Duration, ok bool)

// Fixed waits d each time, count times in all.
func Fixed(d time.Duration, count int) Policy {
	return limited(count, func(int) float64 { return float64(d) })
}

// Linear waits first, then step longer (or shorter) each time, never less than
// zero, count times in all.
func Linear(first, step time.Duration, count int) Policy {
	return limited(count, func(n int) float64 { return float64(first) + float64(step)*float64(n-1) })
}

// Geometric waits first, then factor times as long each time, within low and
// high, count times in all. A factor over 1 grows towards high, one under 1
// shrinks towards low. It panics if factor is not positive or low > high.
func Geometric(first time.Duration, factor float64, low, high time.Duration, count int) Policy {
	if !(factor > 0) || math.IsInf(factor, 0) || low > high {
		panic(fmt.Sprintf("dueq: geometric policy with factor %v, low %v, high %v", factor, low, high))
	}
	return limited(count, func(n int) float64 {
		d := float64(first) * math.Pow(factor, float64(n-1))
		return min(max(d, float64(low)), float64(high))
	})
}

// Delays waits each of the delays in turn.
func Delays(delays ...time.Duration) Policy {
	delays = slices.Clone(delays)
	return limited(len(delays), func(n int) float64 { return float64(delays[n-1]) })
}

func limited(count int, delay func(n int) float64) Policy {
	return func(n int) (time.Duration, bool) {
		if n < 1 || n > count {
			return 0, false
		}
		d := min(max(delay(n), 0), math.MaxInt64)
		if d >= math.MaxInt64 {
			return math.MaxInt64, true
		}
		return time.Duration(d), true
	}
}

// Repeat wraps handlers so that a task handled without error is run again by
// the policy, until the handler returns Stop or the policy ends. Task.Round
// counts the runs before. Errors other than Stop keep their meaning.
func Repeat(p Policy) func(Handler) Handler {
	return func(h Handler) Handler {
		return HandlerFunc(func(ctx context.Context, t *Task) error {
			switch err := h.Handle(ctx, t); {
			case err == errStop:
				return nil
			case err != nil:
				return err
			}
			if d, ok := p(t.Round + 1); ok {
				return Again(d)
			}
			return nil
		})
	}
}

var errStop = fmt.Errorf("stop repeating")

// Stop, returned by a handler under Repeat, ends the repetition and
// acknowledges the task.
func Stop() error { return errStop }

// RetryWith wraps handlers so that failures are retried with the policy's
// delays; after its last one the task is a dead letter. The queue's retries
// bound it as well, whichever ends first.
func RetryWith(p Policy) func(Handler) Handler {
	return func(h Handler) Handler {
		return HandlerFunc(func(ctx context.Context, t *Task) error {
			err := h.Handle(ctx, t)
			if v, delay, _ := VerdictOf(err); v != VerdictRetry || delay != ByPolicy {
				return err
			}
			if d, ok := p(t.Attempt); ok {
				return RetryIn(d, err)
			}
			return Dead(err)
		})
	}
}
