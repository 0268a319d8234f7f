package httpapi

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/dueq/dueq"
)

// Problem is the answer to a request that was refused or failed, as RFC 9457
// writes it. As an error it is the sentinel of package dueq that it stands for,
// and its Errors are [*dueq.FieldError]s; a retryable one without a sentinel is
// [dueq.ErrUnavailable].
type Problem struct {
	Type            string         `json:"type" doc:"which kind of problem; programs go by it, it never changes"`
	Title           string         `json:"title" doc:"the kind in words"`
	Status          int            `json:"status" doc:"the HTTP status"`
	Detail          string         `json:"detail,omitempty" doc:"what was wrong this time, at most 1 KiB"`
	Retryable       bool           `json:"retryable" doc:"the same request may succeed later"`
	MayHaveHappened bool           `json:"may_have_happened,omitempty" doc:"the change may have been made although it failed"`
	RequestID       string         `json:"request_id,omitempty" doc:"names the request in the server's log"`
	Errors          []FieldProblem `json:"errors,omitempty" doc:"the values that were refused"`
	Results         []result       `json:"results,omitempty" doc:"what is known of each item of a call that broke off"`

	cause  error       // for the log; may say what is not for clients
	header http.Header // of the answer
}

// FieldProblem is a refused value.
type FieldProblem struct {
	Field  string `json:"field" doc:"the name of the value, as in the request"`
	Reason string `json:"reason" doc:"what is wrong, completes a sentence that begins with the field"`
}

// A kind is one sort of problem. The name is the end of its type.
type kind struct {
	name      string
	status    int
	title     string
	retryable bool
}

const typePrefix = "urn:dueq:problem:"

// The kinds that come from HTTP and stand for no error of package dueq.
var (
	kindUnauthorized = kind{"unauthorized", 401, "Token missing or not valid", false}
	kindForbidden    = kind{"forbidden", 403, "Token may not do this", false}
	kindCrossOrigin  = kind{"cross_origin", 403, "Request of a web page of another origin", false}
	kindNoRoute      = kind{"no_route", 404, "No such path", false}
	kindWrongMethod  = kind{"method_not_allowed", 405, "Path does not take this method", false}
	kindTooSlow      = kind{"too_slow", 408, "Request took too long to arrive", true}
	kindWrongType    = kind{"wrong_type", 415, "Body is not JSON", false}
	kindWrongHost    = kind{"wrong_host", 421, "Host is not this server's", false}
	kindTooMany      = kind{"too_many", 429, "Too many requests at once", true}
	kindInternal     = kind{"internal", 500, "Internal error", false}
	kindNotReady     = kind{"not_ready", 503, "Server is not ready", true}
)

// The kinds that come from HTTP, all of them.
var httpKinds = []kind{
	kindUnauthorized, kindForbidden, kindCrossOrigin, kindNoRoute, kindWrongMethod,
	kindTooSlow, kindWrongType, kindWrongHost, kindTooMany, kindInternal, kindNotReady,
}

// The kinds that stand for errors of package dueq, in the order in which
// dueq.HTTPStatus looks for them.
var sentinelKinds = []struct {
	err error
	kind
}{
	{dueq.ErrNotFound, sentinelKind(dueq.ErrNotFound, "not_found", "Task not found")},
	{dueq.ErrRunning, sentinelKind(dueq.ErrRunning, "running", "Task is running")},
	{dueq.ErrDead, sentinelKind(dueq.ErrDead, "dead", "Task is dead")},
	{dueq.ErrChanged, sentinelKind(dueq.ErrChanged, "changed", "Task has changed")},
	{dueq.ErrLeaseLost, sentinelKind(dueq.ErrLeaseLost, "lease_lost", "Lease lost")},
	{dueq.ErrTooLarge, kindTooLarge},
	{dueq.ErrInvalid, kindInvalid},
	{dueq.ErrUnavailable, sentinelKind(dueq.ErrUnavailable, "unavailable", "Store unavailable")},
	{dueq.ErrClosed, sentinelKind(dueq.ErrClosed, "closed", "Server is closing")},
}

var (
	kindTooLarge = sentinelKind(dueq.ErrTooLarge, "too_large", "Too large")
	kindInvalid  = sentinelKind(dueq.ErrInvalid, "invalid", "Value refused")
)

// sentinelKind returns a kind whose status is the one of the error. A store
// that is away may be back later, and another server may not be closing.
func sentinelKind(err error, name, title string) kind {
	status := dueq.HTTPStatus(err)
	return kind{name, status, title, status == http.StatusServiceUnavailable}
}

// problem returns a problem of the kind. The detail is for the client.
func (k kind) problem(detail string, fields ...FieldProblem) *Problem {
	p := &Problem{
		Type: typePrefix + k.name, Title: k.title, Status: k.status, Retryable: k.retryable,
		Detail: clip(detail), Errors: fields, header: http.Header{},
	}
	if k.retryable {
		p.header.Set("Retry-After", "1")
	}
	return p
}

// problemOf returns the problem that shows err to a client: err itself if it is
// a Problem, else what the table says, or an internal error. Of failures of the
// server the client learns the kind only; the log has the rest. err is not nil.
func problemOf(err error) *Problem {
	// Not errors.As: a problem that a store had with its own server is not ours.
	if p, ok := err.(*Problem); ok {
		return p
	}
	p := kindOf(err).problem("")
	if p.cause = err; p.Status < 500 {
		p.Detail, p.Errors = clip(detailOf(err)), fieldProblems(err)
	}
	var call *dueq.CallError
	p.MayHaveHappened = errors.As(err, &call) && call.MayHaveHappened
	return p
}

func kindOf(err error) kind {
	for _, row := range sentinelKinds {
		if errors.Is(err, row.err) {
			return row.kind
		}
	}
	var tooLong *http.MaxBytesError
	if errors.As(err, &tooLong) {
		return kindTooLarge
	}
	return kindInternal
}

// detailOf leaves operation and queue out: the client knows what it called.
func detailOf(err error) string {
	var call *dueq.CallError
	if errors.As(err, &call) {
		err = call.Err
	}
	return err.Error()
}

// fieldProblems finds all refused values in a tree of errors.
func fieldProblems(err error) []FieldProblem {
	switch e := err.(type) {
	case *dueq.FieldError:
		return []FieldProblem{{Field: clip(e.Field), Reason: clip(e.Reason)}}
	case interface{ Unwrap() error }:
		return fieldProblems(e.Unwrap())
	case interface{ Unwrap() []error }:
		var all []FieldProblem
		for _, inner := range e.Unwrap() {
			all = append(all, fieldProblems(inner)...)
		}
		return all
	}
	return nil
}

const detailMax = 1 << 10 // bytes; reasons quote what the client sent

func clip(s string) string {
	if len(s) <= detailMax {
		return s
	}
	n := detailMax - len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// sentinelOf returns the error of package dueq that a type of problem stands
// for, or nil.
func sentinelOf(problemType string) error {
	name, ok := strings.CutPrefix(problemType, typePrefix)
	for _, row := range sentinelKinds {
		if ok && row.name == name {
			return row.err
		}
	}
	return nil
}

// Error returns the detail, or the title if there is none.
func (p *Problem) Error() string {
	if p.Detail != "" {
		return p.Detail
	}
	return p.Title
}

// Unwrap makes errors.Is find the sentinel and errors.As the refused values.
func (p *Problem) Unwrap() []error {
	var errs []error
	for _, f := range p.Errors {
		errs = append(errs, &dueq.FieldError{Field: f.Field, Reason: f.Reason})
	}
	if err := sentinelOf(p.Type); err != nil {
		return append(errs, err)
	}
	if p.Retryable {
		errs = append(errs, dueq.ErrUnavailable)
	}
	return errs
}

const problemJSON = "application/problem+json"

// writeProblem answers r with p. Nothing may have been written before.
func writeProblem(w http.ResponseWriter, r *http.Request, p *Problem) {
	body, err := json.Marshal(p.in(r.Context()))
	if err != nil { // texts and numbers only
		panic(err)
	}
	h := w.Header()
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		h.Del(name) // of the answer that was meant to be given
	}
	h.Set("Content-Type", problemJSON)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	maps.Copy(h, p.header)
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // a client that left needs no answer
}
