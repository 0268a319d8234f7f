package dueq

import (
	"context"
	"errors"
	"fmt"
)

// The errors that callers can tell apart with errors.Is.
var (
	// ErrNotFound: no such task in this queue, in any state.
	ErrNotFound = errors.New("task not found")
	// ErrRunning: the task is active, so it cannot be cancelled, rescheduled or
	// deleted. A cancel has made the run in progress its last.
	ErrRunning = errors.New("task is running")
	// ErrDead: the task is a dead letter; requeue or delete it.
	ErrDead = errors.New("task is dead")
	// ErrChanged: the task no longer has the due time or body that was asked for.
	ErrChanged = errors.New("task has changed")
	// ErrLeaseLost: the lease ended and somebody took the task back, or it was
	// stopped. To a repeated settle it means that the first may have worked.
	ErrLeaseLost = errors.New("lease lost")
	// ErrInvalid: a value was refused; a *FieldError names it. Nothing changed.
	ErrInvalid = errors.New("invalid")
	// ErrTooLarge: a body is over the queue's body_max. Nothing changed.
	ErrTooLarge = errors.New("too large")
	// ErrUnavailable: the store did not answer in time or cannot write now.
	// Trying again later can help. See CallError.MayHaveHappened.
	ErrUnavailable = errors.New("store unavailable")
	// ErrClosed: the client, worker or store was closed before the call.
	ErrClosed = errors.New("closed")
)

// errorTable is the one place that says how an error is shown outside Go.
var errorTable = []struct {
	err    error
	status int // HTTP
	exit   int // command line
}{
	{ErrNotFound, 404, 3},
	{ErrRunning, 409, 4},
	{ErrDead, 409, 4},
	{ErrChanged, 409, 4},
	{ErrLeaseLost, 409, 4},
	{ErrTooLarge, 413, 2},
	{ErrInvalid, 400, 2},
	{ErrUnavailable, 503, 5},
	{ErrClosed, 503, 5},
}

// ExitCode returns the exit code of the command line for err: 0 nil, 2 invalid
// input, 3 not found, 4 conflict, 5 unavailable, 1 anything else.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	for _, row := range errorTable {
		if errors.Is(err, row.err) {
			return row.exit
		}
	}
	return 1
}

// HTTPStatus returns the HTTP status for err: 200 for nil, 500 for an error
// that is none of the sentinels.
func HTTPStatus(err error) int {
	if err == nil {
		return 200
	}
	for _, row := range errorTable {
		if errors.Is(err, row.err) {
			return row.status
		}
	}
	return 500
}

// FieldError is a refused value. It is ErrInvalid.
type FieldError struct {
	Field  string // as it is spelled in JSON and on the command line
	Reason string // completes the sentence "<field> …"
}

func (e *FieldError) Error() string        { return e.Field + " " + e.Reason }
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

// CallError is a failed call to a store.
type CallError struct {
	Op              string // the store's method
	Queue           string // empty when the call is not about one queue
	MayHaveHappened bool   // the request was sent and no answer came
	Err             error
}

func (e *CallError) Error() string {
	text := e.Op
	if e.Queue != "" {
		text += " " + e.Queue
	}
	text += ": " + e.Err.Error()
	if e.MayHaveHappened {
		text += " (it may have happened)"
	}
	return text
}

func (e *CallError) Unwrap() error { return e.Err }

// Unavailable wraps the cause of a call that did not get through, so that
// errors.Is finds ErrUnavailable and the cause. It is for implementations of
// Store.
func Unavailable(cause error) error {
	return fmt.Errorf("%w: %w", ErrUnavailable, cause)
}

// mayHaveHappened is the answer to a caller who leaves a shared call early.
func mayHaveHappened(op, queue string, ctx context.Context) error {
	return &CallError{Op: op, Queue: queue, MayHaveHappened: true, Err: Unavailable(context.Cause(ctx))}
}
