package dueq_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

func TestPolicy(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for name, tc := range map[string]struct {
		policy dueq.Policy
		want   []time.Duration // until it ends
	}{
		"fixed":                {dueq.Fixed(5*s, 3), []time.Duration{5 * s, 5 * s, 5 * s}},
		"fixed, none":          {dueq.Fixed(5*s, 0), nil},
		"fixed, negative":      {dueq.Fixed(-5*s, 1), []time.Duration{0}},
		"linear":               {dueq.Linear(1*s, 2*s, 4), []time.Duration{1 * s, 3 * s, 5 * s, 7 * s}},
		"linear, down to zero": {dueq.Linear(5*s, -2*s, 5), []time.Duration{5 * s, 3 * s, 1 * s, 0, 0}},
		"geometric, growing":   {dueq.Geometric(1*s, 2, 0, 5*s, 5), []time.Duration{1 * s, 2 * s, 4 * s, 5 * s, 5 * s}},
		"geometric, shrinking": {dueq.Geometric(8*s, 0.5, 3*s, 10*s, 4), []time.Duration{8 * s, 4 * s, 3 * s, 3 * s}},
		"geometric, too low":   {dueq.Geometric(1*s, 1, 2*s, 3*s, 1), []time.Duration{2 * s}},
		"list":                 {dueq.Delays(3*s, 0, 1*s), []time.Duration{3 * s, 0, 1 * s}},
		"list, empty":          {dueq.Delays(), nil},
		"linear, overflow":     {dueq.Linear(math.MaxInt64, math.MaxInt64, 2), []time.Duration{math.MaxInt64, math.MaxInt64}},
		"geometric, overflow":  {dueq.Geometric(math.MaxInt64/2, 1e300, 0, math.MaxInt64, 3), []time.Duration{math.MaxInt64 / 2, math.MaxInt64, math.MaxInt64}},
	} {
		var got []time.Duration
		for n := 1; n < 100; n++ {
			d, ok := tc.policy(n)
			if !ok {
				break
			}
			got = append(got, d)
		}
		near := slices.EqualFunc(got, tc.want, func(a, b time.Duration) bool {
			return (a-b).Abs() <= time.Microsecond || float64(a)/float64(b) > 0.999 && float64(a)/float64(b) < 1.001
		})
		if !near {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		for _, n := range []int{0, -1, len(tc.want) + 1, math.MaxInt} {
			if d, ok := tc.policy(n); ok || d != 0 {
				t.Errorf("%s: run %d after %v", name, n, d)
			}
		}
	}
	if d, ok := dueq.Geometric(s, 2, 0, math.MaxInt64, math.MaxInt)(math.MaxInt); !ok || d != math.MaxInt64 {
		t.Errorf("run 2⁶³−1: %v, %v", d, ok)
	}
	for _, factor := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if !panics(func() { dueq.Geometric(s, factor, 0, s, 1) }) {
			t.Errorf("factor %v: no panic", factor)
		}
	}
	if !panics(func() { dueq.Geometric(s, 2, 2*s, s, 1) }) {
		t.Error("low over high: no panic")
	}
	list := []time.Duration{s}
	policy := dueq.Delays(list...)
	list[0] = 0
	if d, _ := policy(1); d != s {
		t.Error("Delays keeps the caller's slice")
	}
}

func TestRepeat(t *testing.T) {
	bubble(t, "runs a task again by the policy, then acknowledges it", func(t *testing.T) {
		store, _ := newTap()
		var j journal
		start(t, store, dueq.WorkerOptions{}, func(w *dueq.Worker) {
			w.Use(dueq.Repeat(dueq.Linear(time.Second, time.Second, 3)))
			w.Handle("q", "", j.takes(0, ""))
			w.Handle("q", "stops", dueq.HandlerFunc(func(_ context.Context, t *dueq.Task) error {
				if t.Round == 1 {
					return dueq.Stop()
				}
				return nil
			}))
		})
		began := time.Now()
		schedule(t, store, "q", "a", dueq.In(0))
		scheduleKind(t, store, "b", "stops", dueq.In(0))
		pass(time.Hour)
		var at []time.Duration
		for i, r := range j.all() {
			at = append(at, r.at.Sub(began))
			if r.round != i || r.attempt != 1 {
				t.Errorf("run %d has round %d, attempt %d", i, r.round, r.attempt)
			}
		}
		if want := []time.Duration{0, time.Second, 3 * time.Second, 6 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("runs at %v, want %v", at, want)
		}
		if st := stats(t, store, "q"); st.Totals.Acked != 2 || st.Totals.Again != 4 || st.Scheduled != 0 {
			t.Errorf("%+v", st.Totals)
		}
	})
	t.Run("leaves other errors alone", func(t *testing.T) {
		t.Parallel()
		no := errors.New("no")
		h := dueq.Repeat(dueq.Fixed(time.Second, 9))(dueq.HandlerFunc(func(context.Context, *dueq.Task) error { return no }))
		if err := h.Handle(t.Context(), &dueq.Task{}); err != no {
			t.Error(err)
		}
	})
}

func TestRetryWith(t *testing.T) {
	bubble(t, "retries by the policy, then makes a dead letter", func(t *testing.T) {
		store, _ := newTap()
		var j journal
		start(t, store, dueq.WorkerOptions{}, func(w *dueq.Worker) {
			w.Use(dueq.RetryWith(dueq.Delays(10*time.Second, time.Second)))
			w.Handle("q", "", dueq.HandlerFunc(func(_ context.Context, t *dueq.Task) error {
				defer j.begin(t, "")()
				return errors.New("no")
			}))
		})
		began := time.Now()
		schedule(t, store, "q", "a", dueq.In(0))
		pass(time.Hour)
		var at []time.Duration
		for _, r := range j.all() {
			at = append(at, r.at.Sub(began))
		}
		if want := []time.Duration{0, 10 * time.Second, 11 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("runs at %v, want %v", at, want)
		}
		if got := get(t, store, "q", "a"); got.State != dueq.StateDead || got.LastError != "no" || got.Failures != 3 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("leaves verdicts alone", func(t *testing.T) {
		t.Parallel()
		for _, want := range []error{nil, dueq.Again(time.Second), dueq.Dead(nil), dueq.RetryIn(time.Minute, nil)} {
			h := dueq.RetryWith(dueq.Fixed(time.Second, 9))(dueq.HandlerFunc(func(context.Context, *dueq.Task) error { return want }))
			if err := h.Handle(t.Context(), &dueq.Task{Attempt: 1}); err != want {
				t.Errorf("%v became %v", want, err)
			}
		}
	})
}
