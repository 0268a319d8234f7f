package dueq_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dueq/dueq"
)

func TestDuration(t *testing.T) {
	const day = 24 * time.Hour
	t.Run("reads back as it was written", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			unit := rapid.SampledFrom([]int64{1, 1000, 1e6, 1e9, 6e10, 36e11, 864e11}).Draw(t, "unit")
			d := time.Duration(rapid.Int64Range(math.MinInt64/unit, math.MaxInt64/unit).Draw(t, "n") * unit)
			text := dueq.FormatDuration(d)
			if got, err := dueq.ParseDuration(text); err != nil || got != d {
				t.Errorf("%d is written %q, read as %d, %v", d, text, got, err)
			}
		})
		for _, d := range []time.Duration{math.MinInt64, math.MinInt64 + 1, math.MaxInt64} {
			if got, err := dueq.ParseDuration(dueq.FormatDuration(d)); err != nil || got != d {
				t.Errorf("%d is written %q, read as %d, %v", d, dueq.FormatDuration(d), got, err)
			}
		}
	})
	t.Run("is written like this", func(t *testing.T) {
		t.Parallel()
		for want, d := range map[string]time.Duration{
			"0s": 0, "3s": 3 * time.Second, "1.5s": 1500 * time.Millisecond, "30m": 30 * time.Minute, "1h": time.Hour, "1h0m1s": time.Hour + time.Second,
			"7d": 7 * day, "1d12h": 36 * time.Hour, "1d500ms": day + 500*time.Millisecond, "-2d": -2 * day, "10s": 10 * time.Second, "10m": 10 * time.Minute,
		} {
			if got := dueq.FormatDuration(d); got != want {
				t.Errorf("%v is written %q, want %q", d, got, want)
			}
		}
	})
	t.Run("is read like this", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]time.Duration{
			"7d": 7 * day, "1.5d": 36 * time.Hour, "1d12h": 36 * time.Hour, "-1d1h": -25 * time.Hour, "+2d": 2 * day, "0": 0, "250ms": 250 * time.Millisecond, "106751d": 106751 * day,
		} {
			if got, err := dueq.ParseDuration(text); err != nil || got != want {
				t.Errorf("%q: %v, %v; want %v", text, got, err, want)
			}
		}
	})
	t.Run("is refused", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{
			"", "d", "5", "1h1d", "1d1d", "1dd", "1d-1h", "1d+1h", "--1d", "+-1d", "-+1d", "1e3d", "0x1d", "infd", "nand", "NaN", "Inf", "1_0d",
			"106752d", "106751.99116730064d", "106751.9911673006456d", "106751d24h", "1000000000d", "300000000h", "1 d", "7days", "1d 2h", "١d",
		} {
			_, err := dueq.ParseDuration(text)
			wantField(t, err, "duration")
		}
	})
}

// FuzzDuration checks that text is refused, or read as what it looks like and
// as what it is written again.
func FuzzDuration(f *testing.F) {
	for _, seed := range []string{"1d12h", "-1.5d", "106751.99116730064d", "+0d", "1d-0s", "2562047h47m16.854775807s", ".5d", "1µs", "d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := dueq.ParseDuration(text)
		if err != nil {
			wantField(t, err, "duration")
			return
		}
		if minus := strings.HasPrefix(text, "-"); d != 0 && minus != (d < 0) {
			t.Errorf("%q is read as %d", text, d)
		}
		if got, err := dueq.ParseDuration(dueq.FormatDuration(d)); err != nil || got != d {
			t.Errorf("%q is %d, written %q, read as %d, %v", text, d, dueq.FormatDuration(d), got, err)
		}
	})
}
