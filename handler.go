package dueq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Handler handles one delivery of a task. What it returns decides what happens
// next: nil acknowledges; Again, RetryIn and Dead say what they are called;
// any other error is a failure, retried by the queue's settings. A panic and
// runtime.Goexit are failures too.
//
// ctx ends at the queue's timeout, when the lease is lost, and when a stopping
// worker has waited long enough. A handler may run again for a task that it
// has handled: check business state first.
type Handler interface {
	Handle(ctx context.Context, t *Task) error
}

// HandlerFunc makes a function a Handler.
type HandlerFunc func(ctx context.Context, t *Task) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, t *Task) error { return f(ctx, t) }

// BatchFunc handles several deliveries of one kind at once. It returns one
// verdict per task, in their order, or nil to acknowledge all. A result of
// another length is a failure of every task.
type BatchFunc func(ctx context.Context, tasks []*Task) []error

// verdictError carries a verdict through a handler's error.
type verdictError struct {
	verdict Verdict
	delay   time.Duration
	err     error
}

func (e *verdictError) Error() string {
	if e.err != nil {
		return e.err.Error()
	}
	return fmt.Sprintf("%s in %v", e.verdict, e.delay)
}

func (e *verdictError) Unwrap() error { return e.err }

// Again runs the task once more after d, which is not a failure: failures
// start anew and Task.Round grows by one. A negative d counts as zero.
func Again(d time.Duration) error {
	return &verdictError{verdict: VerdictAgain, delay: max(d, 0)}
}

// RetryIn fails the attempt because of err and tries again after d instead of
// the queue's own delay. The queue's retries still count. A negative d counts
// as zero.
func RetryIn(d time.Duration, err error) error {
	return &verdictError{verdict: VerdictRetry, delay: max(d, 0), err: orFailed(err)}
}

// Dead makes the task a dead letter because of err, without further retries.
func Dead(err error) error {
	return &verdictError{verdict: VerdictDead, err: orFailed(err)}
}

func orFailed(err error) error {
	if err == nil {
		return errors.New("failed without an error")
	}
	return err
}

// VerdictOf returns what a handler's error means: the verdict, the delay it
// asks for (ByPolicy if none) and the error text to keep.
func VerdictOf(err error) (v Verdict, delay time.Duration, text string) {
	if err == nil {
		return VerdictAck, 0, ""
	}
	var ve *verdictError
	if !errors.As(err, &ve) {
		return VerdictRetry, ByPolicy, err.Error()
	}
	if ve.verdict != VerdictAgain {
		text = err.Error()
	}
	return ve.verdict, ve.delay, text
}

// JSON makes a Handler of a function that takes the body as a T. A body that
// is not a T makes the task a dead letter: trying again cannot help.
func JSON[T any](f func(ctx context.Context, t *Task, v T) error) Handler {
	return HandlerFunc(func(ctx context.Context, t *Task) error {
		var v T
		if err := json.Unmarshal(t.Body, &v); err != nil {
			return Dead(fmt.Errorf("body is not the JSON expected: %w", err))
		}
		return f(ctx, t, v)
	})
}

// NewJSON returns a task whose body is v as JSON.
func NewJSON(id, kind string, v any) (Task, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return Task{}, &FieldError{"body", err.Error()}
	}
	return Task{ID: id, Kind: kind, Body: body}, nil
}

// CutError cuts the text of an error to the 1 KiB that stores keep, between
// characters.
func CutError(text string) string {
	const limit = 1024
	if len(text) <= limit {
		return text
	}
	text = text[:limit]
	for n := 0; n < utf8.UTFMax && len(text) > 0; n++ {
		if r, size := utf8.DecodeLastRuneInString(text); r != utf8.RuneError || size != 1 {
			break
		}
		text = text[:len(text)-1]
	}
	return text
}
