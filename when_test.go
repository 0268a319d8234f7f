package dueq_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dueq/dueq"
)

func TestWhen(t *testing.T) {
	t.Run("rounds instants up to the millisecond, never down", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			at := time.Unix(rapid.Int64Range(100_000_000, 253_402_300_798).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
			got, ok := dueq.At(at).Absolute()
			if early := at.Sub(time.UnixMilli(got)); !ok || early > 0 || early <= -time.Millisecond {
				t.Errorf("%v is due at %d ms, %v", at, got, ok)
			}
			if err := dueq.At(at).Validate(); err != nil {
				t.Errorf("%v: %v", at, err)
			}
		})
	})
	t.Run("refuses what is out of bounds", func(t *testing.T) {
		t.Parallel()
		for field, refused := range map[string][]dueq.When{
			"delay": {dueq.In(-1), dueq.In(math.MinInt64)},
			"due": {
				dueq.At(time.Time{}), dueq.At(time.Unix(0, 0)), dueq.At(time.Unix(0, 1)), dueq.At(time.Unix(1_700_000_000/1000, 0)),
				dueq.At(time.UnixMilli(dueq.MinDueMilli - 1)), dueq.At(time.UnixMilli(dueq.MaxDueMilli + 1)), dueq.At(time.UnixMilli(dueq.MaxDueMilli).Add(1)),
				dueq.At(time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)), dueq.At(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)), dueq.At(time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC)),
				dueq.At(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)), dueq.At(time.Unix(math.MaxInt64, 0)), dueq.At(time.Unix(math.MinInt64, 0)), dueq.At(time.Unix(1<<62, 0)),
			},
		} {
			for _, when := range refused {
				wantField(t, when.Validate(), field)
			}
		}
		for _, when := range []dueq.When{{}, dueq.In(0), dueq.In(math.MaxInt64), dueq.At(time.UnixMilli(dueq.MinDueMilli)), dueq.At(time.UnixMilli(dueq.MaxDueMilli))} {
			if err := when.Validate(); err != nil {
				t.Errorf("%+v: %v", when, err)
			}
		}
	})
	t.Run("keeps a delay as it is", func(t *testing.T) {
		t.Parallel()
		if _, ok := dueq.In(time.Second).Absolute(); ok || dueq.In(time.Second).Delay() != time.Second {
			t.Error("In(1s) is not a delay of 1 s")
		}
	})
}

func TestParseWhen(t *testing.T) {
	t.Run("reads what is written", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			ms := rapid.Int64Range(dueq.MinDueMilli, dueq.MaxDueMilli).Draw(t, "ms")
			at := time.UnixMilli(ms)
			zone := time.FixedZone("", rapid.IntRange(-14*60, 14*60).Draw(t, "minutes")*60)
			texts := []string{fmt.Sprint(ms), at.UTC().Format(time.RFC3339Nano)}
			if y := at.In(zone).Year(); y <= 9999 {
				texts = append(texts, at.In(zone).Format(time.RFC3339Nano))
			}
			for _, text := range texts {
				when, err := dueq.ParseWhen(text)
				if got, ok := when.Absolute(); err != nil || !ok || got != ms {
					t.Errorf("%q reads as %d, %v; want %d", text, got, err, ms)
				}
			}
		})
	})
	t.Run("refuses the rest", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{
			"", " ", "now", "30m", "2026-12-01", "2026-12-01T08:00:00", "2026-12-01 08:00:00Z", "08:00", "1700000000", "-1", "+1700000000000",
			"1700000000000.5", "1e12", "NaN", "Infinity", "9999999999999999999", "0", "1969-12-31T00:00:00Z", "0001-01-01T00:00:00Z",
			"10000-01-01T00:00:00Z", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "１７００００００００００００",
		} {
			_, err := dueq.ParseWhen(text)
			wantField(t, err, "due")
		}
	})
	t.Run("rounds up", func(t *testing.T) {
		t.Parallel()
		when, err := dueq.ParseWhen("2026-12-01T08:00:00.0001+08:00")
		want := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC).UnixMilli() + 1
		if got, _ := when.Absolute(); err != nil || got != want {
			t.Errorf("%d, %v; want %d", got, err, want)
		}
	})
}
