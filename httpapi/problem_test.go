package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dueq/dueq"
)

// sentinelsOfPackageDueq reads the names of the errors from the source, so that
// a new one cannot be forgotten here.
func sentinelsOfPackageDueq(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if file.Name.Name != "dueq" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		for object := range file.Scope.Objects {
			if strings.HasPrefix(object, "Err") && file.Scope.Objects[object].Kind == ast.Var {
				names = append(names, object)
			}
		}
	}
	slices.Sort(names)
	return names
}

func TestEveryErrorHasOneProblemAndBack(t *testing.T) {
	t.Parallel()
	want := map[string]struct {
		err       error
		typ       string
		status    int
		retryable bool
	}{
		"ErrNotFound":    {dueq.ErrNotFound, "urn:dueq:problem:not_found", 404, false},
		"ErrRunning":     {dueq.ErrRunning, "urn:dueq:problem:running", 409, false},
		"ErrDead":        {dueq.ErrDead, "urn:dueq:problem:dead", 409, false},
		"ErrChanged":     {dueq.ErrChanged, "urn:dueq:problem:changed", 409, false},
		"ErrLeaseLost":   {dueq.ErrLeaseLost, "urn:dueq:problem:lease_lost", 409, false},
		"ErrTooLarge":    {dueq.ErrTooLarge, "urn:dueq:problem:too_large", 413, false},
		"ErrInvalid":     {dueq.ErrInvalid, "urn:dueq:problem:invalid", 400, false},
		"ErrUnavailable": {dueq.ErrUnavailable, "urn:dueq:problem:unavailable", 503, true},
		"ErrClosed":      {dueq.ErrClosed, "urn:dueq:problem:closed", 503, true},
	}
	names := sentinelsOfPackageDueq(t)
	if len(names) != len(want) || len(sentinelKinds) != len(want) {
		t.Errorf("package dueq has %v, the table %d rows, this test %d", names, len(sentinelKinds), len(want))
	}
	for _, name := range names {
		tc := want[name]
		for _, err := range []error{tc.err, fmt.Errorf("store: %w", &dueq.CallError{Op: "settle", Queue: "q", Err: tc.err})} {
			p := problemOf(err)
			if p.Type != tc.typ || p.Status != tc.status || p.Retryable != tc.retryable || p.Status != dueq.HTTPStatus(err) {
				t.Errorf("%s: got %s, %d, retryable %t; want %+v", name, p.Type, p.Status, p.Retryable, tc)
			}
			if p.Title == "" || p.MayHaveHappened {
				t.Errorf("%s: %+v", name, p)
			}
		}
		if got := sentinelOf(tc.typ); got != tc.err {
			t.Errorf("back from %s: %v", tc.typ, got)
		}
	}
}

func TestProblemsOfHTTPStandForNoErrorAndNeverChange(t *testing.T) {
	t.Parallel()
	want := map[string]int{
		"unauthorized": 401, "forbidden": 403, "cross_origin": 403, "no_route": 404, "method_not_allowed": 405,
		"too_slow": 408, "wrong_type": 415, "wrong_host": 421, "too_many": 429, "internal": 500, "not_ready": 503,
	}
	got := map[string]int{}
	for _, k := range httpKinds {
		got[k.name] = k.status
		p := k.problem("")
		if sentinelOf(p.Type) != nil {
			t.Errorf("%s is %v", p.Type, sentinelOf(p.Type))
		}
		if errors.Is(p, dueq.ErrUnavailable) != p.Retryable || (p.header.Get("Retry-After") != "") != p.Retryable {
			t.Errorf("%s: retryable %t, Retry-After %q", p.Type, p.Retryable, p.header.Get("Retry-After"))
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, typ := range []string{"", "about:blank", "not_found", "urn:dueq:problem:", "urn:dueq:problem:NOT_FOUND", "http://x/urn:dueq:problem:not_found"} {
		if err := sentinelOf(typ); err != nil {
			t.Errorf("%q is %v", typ, err)
		}
	}
}

func TestOfTwoErrorsThoseWhoAskGetTheSameOne(t *testing.T) {
	t.Parallel()
	for _, a := range sentinelKinds {
		for _, b := range sentinelKinds {
			err := errors.Join(a.err, b.err)
			if got, want := problemOf(err).Status, dueq.HTTPStatus(err); got != want {
				t.Errorf("%v: problem has %d, HTTPStatus %d", err, got, want)
			}
		}
	}
}

// answered returns what a client gets for err, and what the log gets.
func problemAnswer(t *testing.T, err error) (p Problem, body string, cause error) {
	t.Helper()
	info := &requestInfo{id: "r-1"}
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/queues/q/claim", nil)
	writeProblem(w, r.WithContext(context.WithValue(r.Context(), requestInfoKey{}, info)), problemOf(err))
	if e := json.Unmarshal(w.Body.Bytes(), &p); e != nil {
		t.Fatalf("%q: %v", w.Body, e)
	}
	if p.Status != w.Code || p.RequestID != "r-1" || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("status %d, header %v, body %s", w.Code, w.Header(), w.Body)
	}
	return p, w.Body.String(), info.cause
}

func TestFailuresOfTheServerAreForTheLog(t *testing.T) {
	t.Parallel()
	cause := errors.New("dial tcp 10.1.2.3:6379: WRONGPASS hunter2")
	for name, tc := range map[string]struct {
		err             error
		typ             string
		mayHaveHappened bool
	}{
		"unknown":     {cause, "internal", false},
		"unavailable": {&dueq.CallError{Op: "claim", Queue: "q", MayHaveHappened: true, Err: dueq.Unavailable(cause)}, "unavailable", true},
		"not sent":    {&dueq.CallError{Op: "claim", Queue: "q", Err: dueq.Unavailable(cause)}, "unavailable", false},
		"closed":      {fmt.Errorf("%w: %w", dueq.ErrClosed, cause), "closed", false},
		"upstream":    {&dueq.CallError{Op: "claim", Err: unauthorized(invalidToken, "hunter2")}, "internal", false},
	} {
		p, body, logged := problemAnswer(t, tc.err)
		if p.Type != typePrefix+tc.typ || p.MayHaveHappened != tc.mayHaveHappened {
			t.Errorf("%s: %s", name, body)
		}
		for _, secret := range []string{"hunter2", "10.1.2.3", "WRONGPASS"} {
			if strings.Contains(body, secret) {
				t.Errorf("%s: the client learns %s: %s", name, secret, body)
			}
		}
		if logged != tc.err {
			t.Errorf("%s: the log gets %v", name, logged)
		}
	}
}

func TestMistakesOfTheClientAreNamed(t *testing.T) {
	t.Parallel()
	delay, most := &dueq.FieldError{Field: "delay_ms", Reason: "is negative"}, &dueq.FieldError{Field: "max", Reason: "is 5000"}
	err := fmt.Errorf("request: %w", errors.Join(delay, fmt.Errorf("claim: %w", most), errors.New("other")))
	p, body, logged := problemAnswer(t, err)
	want := []FieldProblem{{"delay_ms", "is negative"}, {"max", "is 5000"}}
	if p.Status != 400 || !reflect.DeepEqual(p.Errors, want) || !strings.Contains(p.Detail, "delay_ms is negative") {
		t.Errorf("got %s, want fields %v", body, want)
	}
	if logged != nil {
		t.Errorf("the log gets %v, which may quote a body", logged)
	}
	p, body, _ = problemAnswer(t, &dueq.CallError{Op: "cancel", Queue: "q", Err: dueq.ErrRunning})
	if p.Detail != "task is running" || strings.Contains(body, "errors") || strings.Contains(body, "may_have_happened") {
		t.Error(body)
	}
	if p, body, _ = problemAnswer(t, fmt.Errorf("body: %w", &http.MaxBytesError{Limit: 5})); p.Status != 413 || p.Type != typePrefix+"too_large" {
		t.Error(body)
	}
}

func TestProblemsAreShortWhateverIsSent(t *testing.T) {
	t.Parallel()
	for _, long := range []string{strings.Repeat("x", 5000), strings.Repeat("é", 2500), strings.Repeat("€", 2000), "a" + strings.Repeat("😀", 1000), strings.Repeat("\xff", 5000), strings.Repeat("\x80", 5000)} {
		p := problemOf(errors.Join(&dueq.FieldError{Field: long, Reason: long}))
		for _, got := range []string{p.Detail, p.Errors[0].Field, p.Errors[0].Reason} {
			if len(got) > 1024 || utf8.ValidString(long) && (!utf8.ValidString(got) || len(got) < 1000) {
				t.Errorf("%d bytes: %.20q…", len(got), got)
			}
		}
	}
	if s := strings.Repeat("x", 1024); clip(s) != s {
		t.Error("what fits is cut")
	}
}

func TestProblemReadByTheOtherEndIsTheErrorItWas(t *testing.T) {
	t.Parallel()
	for _, row := range sentinelKinds {
		p, body, _ := problemAnswer(t, row.err)
		if !errors.Is(&p, row.err) {
			t.Errorf("%s is not %v", body, row.err)
		}
		for _, other := range sentinelKinds {
			if other.err != row.err && errors.Is(&p, other.err) {
				t.Errorf("%s is also %v", body, other.err)
			}
		}
	}
	p, _, _ := problemAnswer(t, &dueq.FieldError{Field: "max", Reason: "is 5000"})
	var field *dueq.FieldError
	if !errors.As(&p, &field) || *field != (dueq.FieldError{Field: "max", Reason: "is 5000"}) {
		t.Errorf("the field is lost: %v", field)
	}
	if again := problemOf(&dueq.CallError{Op: "claim", Err: &p}); again.Status != 400 || len(again.Errors) != 1 || again.Detail != "max is 5000" {
		t.Errorf("passed on it is %+v", again)
	}
}

func TestProblemReplacesTheAnswerThatWasMeant(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	for _, name := range []string{"Content-Length", "Content-Encoding", "ETag", "Last-Modified", "Cache-Control", "Content-Type"} {
		w.Header().Set(name, "5")
	}
	p := unauthorized(invalidToken, "x")
	writeProblem(w, httptest.NewRequest("GET", "/", nil), p)
	want := http.Header{
		"Content-Type": {"application/problem+json"}, "X-Content-Type-Options": {"nosniff"}, "Cache-Control": {"no-store"},
		"Www-Authenticate": {`Bearer realm="dueq", error="invalid_token"`},
	}
	if !reflect.DeepEqual(w.Header(), want) {
		t.Errorf("headers %v, want %v", w.Header(), want)
	}
}

func TestEveryProblemIsInTheDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := slices.Clone(httpKinds)
	for _, row := range sentinelKinds {
		kinds = append(kinds, row.kind)
	}
	for _, k := range kinds {
		retryable := map[bool]string{true: "yes", false: "no"}[k.retryable]
		if row := fmt.Sprintf("\n| `%s` | %d | %s |\n", k.name, k.status, retryable); !strings.Contains(string(text), row) {
			t.Errorf("docs/access.md lacks%s", row)
		}
	}
	_, table, _ := strings.Cut(string(text), "## Problems")
	if rows := strings.Count(table, "\n| `"); rows != len(kinds) {
		t.Errorf("docs/access.md has %d problems, there are %d", rows, len(kinds))
	}
}
