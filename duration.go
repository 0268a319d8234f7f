package dueq

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseDuration reads a duration in Go's form, with d for days of 24 hours in
// front: 30m, 1.5s, 7d, 1d12h. A duration beyond 292 years is refused.
func ParseDuration(s string) (time.Duration, error) {
	days, rest, found := strings.Cut(s, "d")
	if !found {
		return parseGoDuration(s, s)
	}
	n, err := strconv.ParseFloat(days, 64)
	n = math.Abs(n) * float64(day)
	if err != nil || !(n < math.MaxInt64) || strings.ContainsAny(days, "eExXpPiIn_") {
		return 0, badDuration(s)
	}
	total := time.Duration(n)
	if rest != "" {
		d, err := parseGoDuration(rest, s)
		if err != nil || d < 0 || total > math.MaxInt64-d || strings.HasPrefix(rest, "+") {
			return 0, badDuration(s)
		}
		total += d
	}
	if strings.HasPrefix(s, "-") {
		total = -total
	}
	return total, nil
}

func parseGoDuration(part, whole string) (time.Duration, error) {
	d, err := time.ParseDuration(part)
	if err != nil {
		return 0, badDuration(whole)
	}
	return d, nil
}

func badDuration(s string) error {
	return &FieldError{"duration", fmt.Sprintf("%q is not a duration like 30m, 1.5s or 7d, at most 292 years", s)}
}

// FormatDuration writes a duration so that ParseDuration reads it back: whole
// days with d, trailing zero units left out.
func FormatDuration(d time.Duration) string {
	if d == math.MinInt64 {
		return d.String()
	}
	if d < 0 {
		return "-" + FormatDuration(-d)
	}
	days, rest := d/day, d%day
	text := rest.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	switch {
	case days == 0:
		return text
	case rest == 0:
		return fmt.Sprintf("%dd", days)
	}
	return fmt.Sprintf("%dd%s", days, text)
}
