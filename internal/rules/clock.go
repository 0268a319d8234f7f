package rules

import (
	"math"
	"time"

	"github.com/dueq/dueq"
)

// Instant is a reading of the clock, rounded down to the microsecond.
type Instant struct {
	ms int64 // Unix, rounded down
	us int64 // beyond ms, 0 to 999
}

// Clock returns the reading of a clock that shows t.
func Clock(t time.Time) Instant {
	ms := t.UnixMilli()
	return Instant{ms, t.UnixMicro() - ms*1000}
}

func (i Instant) micro() int64    { return i.ms*1000 + i.us }
func (i Instant) time() time.Time { return time.UnixMicro(i.micro()).UTC() }

// after returns the due time, in Unix ms, of what is due us microseconds from
// now: never early, so a fraction of a millisecond rounds up.
func (i Instant) after(us int64) int64 {
	return i.ms + us/1000 + (i.us+us%1000+999)/1000
}

// leaseEnd returns the Unix second in which a lease of d ends.
func (i Instant) leaseEnd(d time.Duration) int64 {
	return (i.micro() + ceilMicro(d) + 999_999) / 1_000_000
}

// until returns the time from now to a due time, zero if that is past.
func (i Instant) until(ms int64) time.Duration {
	switch {
	case ms <= i.ms:
		return 0
	case ms-i.ms > math.MaxInt64/int64(time.Millisecond):
		return math.MaxInt64
	}
	return time.Duration(ms-i.ms)*time.Millisecond - time.Duration(i.us)*time.Microsecond
}

func ceilMicro(d time.Duration) int64 {
	us := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		us++
	}
	return us
}

// dueMilli returns when something is due, or why it cannot be.
func dueMilli(w dueq.When, now Instant) (int64, error) {
	if err := w.Validate(); err != nil {
		return 0, err
	}
	if ms, ok := w.Absolute(); ok {
		return ms, nil
	}
	return dueAfter(w.Delay(), now)
}

func dueAfter(delay time.Duration, now Instant) (int64, error) {
	if delay < 0 {
		return 0, &dueq.FieldError{Field: "delay", Reason: delay.String() + " is negative"}
	}
	ms := now.after(ceilMicro(delay))
	if ms > dueq.MaxDueMilli {
		return 0, &dueq.FieldError{Field: "delay", Reason: delay.String() + " reaches beyond the year 9999"}
	}
	return ms, nil
}

// scoreMilli rounds a score up to the millisecond. Scores beyond those that a
// Time can show as a year of four digits since 1970 are cut to that.
func scoreMilli(score float64) int64 {
	return int64(min(max(math.Ceil(score), 0), dueq.MaxDueMilli))
}

func validScore(score float64) bool {
	ms := math.Ceil(score)
	return ms >= dueq.MinDueMilli && ms <= dueq.MaxDueMilli
}

func milliTime(ms int64) time.Time  { return time.UnixMilli(ms).UTC() }
func secondTime(s int64) time.Time  { return time.Unix(s, 0).UTC() }
func ScoreTime(f float64) time.Time { return milliTime(scoreMilli(f)) }
