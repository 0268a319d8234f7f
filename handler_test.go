package dueq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/dueq/dueq"
)

func TestVerdictOf(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	for name, tc := range map[string]struct {
		err   error
		v     dueq.Verdict
		delay time.Duration
		text  string
	}{
		"nil":                {nil, dueq.VerdictAck, 0, ""},
		"error":              {no, dueq.VerdictRetry, dueq.ByPolicy, "no"},
		"again":              {dueq.Again(time.Second), dueq.VerdictAgain, time.Second, ""},
		"again, negative":    {dueq.Again(-time.Second), dueq.VerdictAgain, 0, ""},
		"retry":              {dueq.RetryIn(time.Second, no), dueq.VerdictRetry, time.Second, "no"},
		"retry, negative":    {dueq.RetryIn(-1, no), dueq.VerdictRetry, 0, "no"},
		"retry, no error":    {dueq.RetryIn(0, nil), dueq.VerdictRetry, 0, "failed without an error"},
		"dead":               {dueq.Dead(no), dueq.VerdictDead, 0, "no"},
		"dead, no error":     {dueq.Dead(nil), dueq.VerdictDead, 0, "failed without an error"},
		"wrapped":            {fmt.Errorf("while paying: %w", dueq.Dead(no)), dueq.VerdictDead, 0, "while paying: no"},
		"joined":             {errors.Join(no, dueq.RetryIn(time.Second, errors.New("b"))), dueq.VerdictRetry, time.Second, "no\nb"},
		"verdict in verdict": {dueq.Dead(dueq.RetryIn(time.Second, no)), dueq.VerdictDead, 0, "no"},
	} {
		v, delay, text := dueq.VerdictOf(tc.err)
		if v != tc.v || delay != tc.delay || text != tc.text {
			t.Errorf("%s: %v %v %q, want %v %v %q", name, v, delay, text, tc.v, tc.delay, tc.text)
		}
	}
	if !errors.Is(dueq.Dead(no), no) || !errors.Is(dueq.RetryIn(0, no), no) {
		t.Error("verdicts hide their errors from errors.Is")
	}
}

func TestCutError(t *testing.T) {
	t.Run("cuts between characters", func(t *testing.T) {
		t.Parallel()
		for size, r := range map[int]string{1: "x", 2: "é", 3: "世", 4: "🙂"} {
			for shift := range 4 {
				text := strings.Repeat("-", shift) + strings.Repeat(r, 1024)
				got := dueq.CutError(text)
				if want := 1024 - (1024-shift)%size; len(got) != want || !utf8.ValidString(got) || !strings.HasPrefix(text, got) {
					t.Errorf("%d-byte characters after %d: %d bytes, want %d", size, shift, len(got), want)
				}
			}
		}
	})
	t.Run("leaves short ones alone", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{"", "x", "\xff", strings.Repeat("x", 1024)} {
			if got := dueq.CutError(text); got != text {
				t.Errorf("%q became %q", text, got)
			}
		}
	})
	t.Run("keeps all it can, of any text", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			text := strings.Repeat("x", rapid.IntRange(1000, 1024).Draw(t, "n")) + rapid.String().Draw(t, "tail") + string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
			got := dueq.CutError(text)
			if len(got) > 1024 || !strings.HasPrefix(text, got) || len(text) > 1024 && len(got) < 1020 || len(text) <= 1024 && got != text || utf8.ValidString(text) && !utf8.ValidString(got) {
				t.Errorf("%d bytes became %d", len(text), len(got))
			}
		})
	})
}

func TestJSON(t *testing.T) {
	type order struct{ Number int }
	bubble(t, "carries a value to the handler; what is none is dead at once", func(t *testing.T) {
		store, _ := newTap()
		got := make(chan int, 10)
		start(t, store, dueq.WorkerOptions{}, func(w *dueq.Worker) {
			w.Handle("q", "pay", dueq.JSON(func(_ context.Context, t *dueq.Task, o order) error {
				got <- o.Number
				return nil
			}))
		})
		c := dueq.NewClient(store, dueq.ClientOptions{})
		task, err := dueq.NewJSON("a", "pay", order{7})
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range []dueq.Task{task, {ID: "bad", Kind: "pay", Body: []byte("{")}, {ID: "none", Kind: "pay"}} {
			if _, err := c.Schedule(t.Context(), "q", task, dueq.In(0)); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Second)
		if n := <-got; n != 7 || len(got) != 0 {
			t.Errorf("got %d and %d more", n, len(got))
		}
		for _, member := range []string{"bad:pay", "none:pay"} {
			if info := get(t, store, "q", member); info.State != dueq.StateDead || !strings.Contains(info.LastError, "JSON") {
				t.Errorf("%s: %+v", member, info)
			}
		}
	})
	t.Run("refuses what cannot be written", func(t *testing.T) {
		t.Parallel()
		_, err := dueq.NewJSON("a", "pay", func() {})
		wantField(t, err, "body")
	})
}
