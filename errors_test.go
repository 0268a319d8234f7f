package dueq_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dueq/dueq"
)

func TestErrorsHaveOneMeaningEverywhere(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err          error
		exit, status int
	}{
		"nil":         {nil, 0, 200},
		"other":       {errors.New("x"), 1, 500},
		"context":     {context.Canceled, 1, 500},
		"not found":   {dueq.ErrNotFound, 3, 404},
		"running":     {dueq.ErrRunning, 4, 409},
		"dead":        {dueq.ErrDead, 4, 409},
		"changed":     {dueq.ErrChanged, 4, 409},
		"lease lost":  {dueq.ErrLeaseLost, 4, 409},
		"invalid":     {dueq.ErrInvalid, 2, 400},
		"field":       {&dueq.FieldError{Field: "due", Reason: "is late"}, 2, 400},
		"too large":   {dueq.ErrTooLarge, 2, 413},
		"unavailable": {dueq.Unavailable(context.DeadlineExceeded), 5, 503},
		"closed":      {dueq.ErrClosed, 5, 503},
	} {
		for _, err := range []error{tc.err, wrapped(tc.err)} {
			if exit, status := dueq.ExitCode(err), dueq.HTTPStatus(err); exit != tc.exit || status != tc.status {
				t.Errorf("%s: exit code %d, status %d; want %d, %d", name, exit, status, tc.exit, tc.status)
			}
		}
	}
}

// wrapped wraps an error as it comes to a caller.
func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cli: %w", &dueq.CallError{Op: "settle", Queue: "q", Err: err})
}

func TestErrorsSayWhatHappened(t *testing.T) {
	t.Parallel()
	cause := errors.New("connection refused")
	err := error(&dueq.CallError{Op: "claim", Queue: "order:close", MayHaveHappened: true, Err: dueq.Unavailable(cause)})
	if want := "claim order:close: store unavailable: connection refused (it may have happened)"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	if !errors.Is(err, dueq.ErrUnavailable) || !errors.Is(err, cause) {
		t.Error("the cause is lost")
	}
	if got := (&dueq.CallError{Op: "stats", Err: cause}).Error(); got != "stats: connection refused" {
		t.Errorf("%q", got)
	}
	if got := (&dueq.FieldError{Field: "due", Reason: "is late"}).Error(); got != "due is late" {
		t.Errorf("%q", got)
	}
}

func TestWordsReadBack(t *testing.T) {
	t.Parallel()
	for _, v := range []dueq.Verdict{dueq.VerdictAck, dueq.VerdictRetry, dueq.VerdictAgain, dueq.VerdictRelease, dueq.VerdictDead} {
		if got, err := dueq.ParseVerdict(v.String()); err != nil || got != v {
			t.Errorf("%v: %v, %v", v, got, err)
		}
	}
	for _, v := range []dueq.IfExists{dueq.Replace, dueq.Keep, dueq.Earlier, dueq.Later} {
		if got, err := dueq.ParseIfExists(v.String()); err != nil || got != v {
			t.Errorf("%v: %v, %v", v, got, err)
		}
	}
	if got, err := dueq.ParseIfExists(""); err != nil || got != dueq.Replace {
		t.Errorf("empty: %v, %v", got, err)
	}
	_, err := dueq.ParseVerdict("nack")
	wantField(t, err, "outcome")
	_, err = dueq.ParseIfExists("never")
	wantField(t, err, "if_exists")
	for got, want := range map[string]string{
		dueq.Verdict(99).String(): "invalid", dueq.Status(99).String(): "invalid", dueq.State(99).String(): "invalid", dueq.Op(99).String(): "invalid",
		dueq.StatusRefused.String(): "refused", dueq.StateDead.String(): "dead", dueq.OpDelete.String(): "delete", dueq.AtMostOnce.String(): "at_most_once",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestResultIsRefused(t *testing.T) {
	t.Parallel()
	task := &dueq.Task{}
	for field, result := range map[string]dueq.Result{
		"task":    {},
		"outcome": {Task: task, Verdict: 9},
		"delay":   {Task: task, Verdict: dueq.VerdictAgain, Delay: -1},
	} {
		wantField(t, result.Validate(), field)
	}
	wantField(t, dueq.Result{Task: task, Verdict: dueq.VerdictRetry, Delay: -2}.Validate(), "delay")
	if err := (dueq.Result{Task: task, Verdict: dueq.VerdictRetry, Delay: dueq.ByPolicy}).Validate(); err != nil {
		t.Error(err)
	}
}
