package dueq

import (
	"fmt"
	"time"
)

// When says when a task is due: after a delay by the store's clock, or at an
// instant. The zero value is now.
type When struct {
	delay time.Duration
	at    time.Time
}

// In is due after d by the store's clock, never sooner; fractions of a
// millisecond round up. Zero is now. A negative d is refused when used.
func In(d time.Duration) When { return When{delay: d} }

// At is due at t, rounded up to the millisecond. A past t is due at once; one
// before 1973 or after the year 9999 is refused when used.
func At(t time.Time) When {
	if t.IsZero() {
		t = time.Unix(0, 1) // not the zero When, and refused as before 1973
	}
	return When{at: t}
}

// Absolute returns the instant in Unix milliseconds, rounded up, and whether
// there is one; without one the task is due after Delay.
func (w When) Absolute() (dueMilli int64, ok bool) {
	if w.at.IsZero() {
		return 0, false
	}
	return ceilMilli(w.at), true
}

// Delay returns the delay of a When made with In.
func (w When) Delay() time.Duration { return w.delay }

// Validate reports why w cannot be used, as a [*FieldError], or nil. Whether a
// delay reaches beyond the year 9999 only the store's clock can tell.
func (w When) Validate() error {
	if w.delay < 0 {
		return &FieldError{"delay", fmt.Sprintf("%v is negative", w.delay)}
	}
	due, ok := w.Absolute()
	if !ok {
		return nil
	}
	return ValidDue(due)
}

// ValidDue reports why a due time in Unix milliseconds is out of bounds, as a
// [*FieldError], or nil.
func ValidDue(dueMilli int64) error {
	switch {
	case dueMilli < MinDueMilli:
		return &FieldError{"due", fmt.Sprintf("%d ms is before 1973, perhaps it is in seconds", dueMilli)}
	case dueMilli > MaxDueMilli:
		return &FieldError{"due", fmt.Sprintf("%d ms is after the year 9999", dueMilli)}
	}
	return nil
}

func ceilMilli(t time.Time) int64 {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return int64(y) * 1e12 // out of bounds either way, and UnixMilli may overflow
	}
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return ms
}

// ParseWhen reads a due time as typed by people: RFC 3339 with an offset, or
// Unix milliseconds. A time without an offset is refused.
func ParseWhen(s string) (When, error) {
	if ms, ok := parseDigits(s); ok {
		return When{at: time.UnixMilli(ms)}, ValidDue(ms)
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return When{}, &FieldError{"due", fmt.Sprintf("%q is neither RFC 3339 with an offset (2026-12-01T08:00:00Z) nor Unix milliseconds", s)}
	}
	w := At(t)
	return w, w.Validate()
}

func parseDigits(s string) (int64, bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}
