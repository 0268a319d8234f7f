package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

// claim claims one task of q, which has to be there.
func (a *api) claim(queue string, request obj) deliveredTask {
	a.Helper()
	var got claimAnswer
	a.do("POST", "/v1/queues/"+queue+"/claim", request).is(200).into(&got)
	if len(got.Tasks) != 1 {
		a.Fatalf("claimed %d tasks, want 1", len(got.Tasks))
	}
	return got.Tasks[0]
}

// settle returns the status of the one result.
func (a *api) settle(queue string, result obj) string {
	a.Helper()
	var got results
	a.do("POST", "/v1/queues/"+queue+"/settle", obj{"results": []obj{result}}).is(200).into(&got)
	if p := got.Results[0].Problem; p != nil {
		return p.Detail
	}
	return got.Results[0].Status
}

func TestClaim_tells_all_of_a_delivery(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	a.do("POST", "/v1/queues/q/claim", obj{}).is(200).has(`"tasks":[]`, `"now":"2026-12-01T08:00:00.000Z"`, `"next_in_ms":null`, `"previous_at":null`, `"paused":false`)
	a.do("POST", "/v1/queues/q/tasks", obj{"id": "a", "kind": "k", "delay_ms": 1500, "body": obj{"n": 1}}).is(201)
	a.do("POST", "/v1/queues/q/claim", obj{"max": 10}).is(200).has(`"tasks":[]`, `"next_in_ms":1500`, `"previous_at":"2026-12-01T08:00:00.000Z"`)
	a.advance(2 * time.Second)
	a.do("POST", "/v1/queues/q/claim", obj{"max": 0}).is(200).has(`"tasks":[]`, `"next_in_ms":0`)
	r := a.do("POST", "/v1/queues/q/claim", obj{"max": 10, "lease_ms": 10_000}).is(200)
	r.has(`{"queue":"q","member":"a:k","id":"a","kind":"k","priority":null,"trace":"","attempt":1,"round":0,"due_at":"2026-12-01T08:00:01.500Z","age_ms":500,"lease":"`,
		`"lease_ends_at":"2026-12-01T08:00:12.000Z","body":{"n":1}}`)
}

func TestClaim_refuses_what_is_out_of_bounds(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	for _, test := range []struct {
		request       obj
		field, reason string
	}{
		{obj{"max": 1001}, "max", "is not 0 to 1000"},
		{obj{"max": -1}, "max", "is not 0 to 1000"},
		{obj{"wait_ms": 20_001}, "wait_ms", "is not 0 to 20000"},
		{obj{"lease_ms": 999}, "lease_ms", "lease_max"},
		{obj{"lease_ms": 25 * 3_600_000}, "lease_ms", "lease_max"},
		{obj{"lease": 1}, "body", "has the field"},
	} {
		a.do("POST", "/v1/queues/q/claim", test.request).refuses(400, "invalid", test.field, test.reason)
	}
}

func TestSettle_every_outcome(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	for i, test := range []struct{ result, want string }{
		{`"outcome":"ack"`, "none"},
		{`"outcome":"retry","delay_ms":7000,"error":"boom"`, `"due_at":"2026-12-01T08:00:07.000Z"|"failures":1|"last_error":"boom"`},
		{`"outcome":"retry"`, `"failures":1|"state":"scheduled"`},
		{`"outcome":"again","delay_ms":9000`, `"due_at":"2026-12-01T08:00:09.000Z"|"round":1|"failures":0`},
		{`"outcome":"release"`, `"due_at":"2026-12-01T08:00:00.000Z"|"failures":0|"round":0`},
		{`"outcome":"release","delay_ms":3000`, `"due_at":"2026-12-01T08:00:03.000Z"|"failures":0`},
		{`"outcome":"dead","error":"no use"`, `"state":"dead"|"last_error":"no use"`},
	} {
		queue := fmt.Sprint("q", i)
		a.do("POST", "/v1/queues/"+queue+"/tasks", obj{"id": "a", "delay_ms": 0, "body": "b"}).is(201)
		task := a.claim(queue, obj{})
		settle := fmt.Sprintf(`{"results":[{"member":"a","lease":%q,%s}]}`, task.Lease, test.result)
		a.do("POST", "/v1/queues/"+queue+"/settle", settle).is(200).has(`"status":"done"`)
		r := a.do("GET", "/v1/queues/"+queue+"/tasks/a", nil)
		if test.want == "none" {
			r.is(404)
			continue
		}
		r.is(200).has(strings.Split(test.want, "|")...).has(`"body":"b"`)
		a.do("POST", "/v1/queues/"+queue+"/settle", settle).is(200).has(`"status":"lease_lost"`)
	}
}

func TestSettle_refuses_one_and_settles_the_others(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	a.do("POST", "/v1/queues/q/tasks", obj{"id": "a", "delay_ms": 0}).is(201)
	a.do("POST", "/v1/queues/q/tasks", obj{"id": "b", "delay_ms": 0}).is(201)
	first, second := a.claim("q", obj{}), a.claim("q", obj{})
	r := a.do("POST", "/v1/queues/q/settle", obj{"results": []obj{
		{"member": "a", "lease": "nonsense", "outcome": "ack"},
		{"member": "a", "lease": first.Lease + ".0", "outcome": "ack"},
		{"member": "no member", "lease": first.Lease, "outcome": "ack"},
		{"member": "b", "lease": second.Lease, "outcome": "ack"},
	}}).is(200)
	var got results
	r.into(&got)
	for i, want := range []string{"lease is not one", "lease is not one", "id contains", ""} {
		problem := ""
		if p := got.Results[i].Problem; p != nil {
			problem = p.Detail
		}
		if !strings.HasPrefix(problem, want) || (want == "") != (got.Results[i].Status == "done") {
			t.Errorf("%d: got %s", i, r.body)
		}
	}
	a.do("POST", "/v1/queues/q/settle", obj{"results": []obj{{"member": "a", "lease": "x", "outcome": "done"}}}).
		refuses(400, "invalid", "results[0].outcome", "is not one of ack, retry, again, release, dead")
	a.do("POST", "/v1/queues/q/settle", obj{"results": []obj{{"member": "a", "outcome": "ack"}}}).
		refuses(400, "invalid", "results[0].lease", "is missing")
}

// A worker that lost its lease can neither settle nor extend the run of another.
func TestLease_is_lost_to_who_let_it_end(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	a.do("POST", "/v1/queues/q/tasks", obj{"id": "a", "delay_ms": 0}).is(201)
	late := a.claim("q", obj{"lease_ms": 2000})
	for range 10 { // claims go on, so leases end
		a.advance(time.Second)
		a.do("POST", "/v1/queues/q/claim", obj{"max": 0}).is(200)
	}
	holder := a.claim("q", obj{"lease_ms": 10_000})
	if holder.Attempt != 2 {
		t.Errorf("got attempt %d, want 2", holder.Attempt)
	}
	for _, outcome := range []string{"ack", "retry", "dead", "release", "again"} {
		if got := a.settle("q", obj{"member": "a", "lease": late.Lease, "outcome": outcome}); got != "lease_lost" {
			t.Errorf("%s with the lease of another: %s", outcome, got)
		}
	}
	extend := func(task deliveredTask) *reply {
		return a.do("POST", "/v1/queues/q/extend", obj{"lease_ms": 20_000, "leases": []obj{{"member": "a", "lease": task.Lease}}}).is(200)
	}
	extend(late).has(`{"results":[{"member":"a","status":"lease_lost","due_at":null}]}`)
	extend(holder).has(`"status":"done","due_at":null,"lease_ends_at":"2026-12-01T08:00:30.000Z"`)
	if got := a.settle("q", obj{"member": "a", "lease": holder.Lease, "outcome": "ack"}); got != "done" {
		t.Errorf("ack of the holder: %s", got)
	}
	a.do("POST", "/v1/queues/q/extend", obj{"lease_ms": 999, "leases": []obj{}}).refuses(400, "invalid", "lease_ms", "is not 1000 to")
	a.do("POST", "/v1/queues/q/extend", obj{"lease_ms": 90_000_000, "leases": []obj{{"member": "a", "lease": holder.Lease}}}).
		refuses(400, "invalid", "lease_ms", "lease_max")
}

func TestSettle_at_most_once_takes_the_body_back(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	a.do("PATCH", "/v1/queues/q/settings", obj{"delivery": "at_most_once"}).is(200)
	a.do("POST", "/v1/queues/q/tasks", obj{"id": "a", "delay_ms": 0, "body": obj{"n": 1}}).is(201)
	task := a.claim("q", obj{})
	if !time.Time(task.LeaseEndsAt).IsZero() {
		t.Errorf("a lease ends at %v", task.LeaseEndsAt)
	}
	a.do("GET", "/v1/queues/q/tasks/a", nil).is(404)
	if got := a.settle("q", obj{"member": "a", "lease": task.Lease, "outcome": "again", "delay_ms": 1000, "body": task.Body}); got != "done" {
		t.Errorf("got %s", got)
	}
	a.do("GET", "/v1/queues/q/tasks/a", nil).is(200).has(`"round":1`, `"body":{"n":1}`, `"due_at":"2026-12-01T08:00:01.000Z"`)
}

func TestLease_text_carries_what_settle_needs(t *testing.T) {
	t.Parallel()
	for _, token := range []dueq.Token{0, -1, 1, 1<<63 - 1, -1 << 63} {
		want := dueq.Task{Queue: "q", ID: "a", Kind: "k", Due: time.UnixMilli(dueq.MaxDueMilli), Round: 12, Lease: dueq.Lease{Member: "a:k", Token: token}}
		got, err := parseLease("q", "a:k", formatLease(&want))
		if err != nil || got.Lease != want.Lease || !got.Due.Equal(want.Due) || got.Round != 12 || got.Kind != "k" || got.Queue != "q" {
			t.Errorf("%d: got %+v, %v", token, got, err)
		}
	}
}

// What was claimed for an answer that cannot be sent goes back at once.
func TestClaim_whose_answer_does_not_arrive_goes_back(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	a.schedule("q", "a", 0)
	request := a.request("POST", "/v1/queues/q/claim", obj{"wait_ms": 1000})
	request.Host = "localhost"
	w := &brokenWriter{httptest.NewRecorder()}
	a.server.Handler().ServeHTTP(w, request)
	if w.Code != 200 {
		t.Fatalf("got %d, the task was not claimed", w.Code)
	}
	if task := a.claim("q", obj{"wait_ms": 20_000}); task.Attempt != 1 || task.Member != "a" {
		t.Errorf("got %+v", task)
	}
}

func TestClaim_of_a_client_that_leaves_with_its_answer_stays_claimed(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	a.schedule("q", "a", 0)
	ctx, leave := context.WithCancel(t.Context())
	request := a.request("POST", "/v1/queues/q/claim", obj{}).WithContext(ctx)
	request.Host = "localhost"
	w := &leavingWriter{httptest.NewRecorder(), leave}
	a.server.Handler().ServeHTTP(w, request)
	if !strings.Contains(w.Body.String(), `"member":"a"`) {
		t.Fatalf("got %s", w.Body)
	}
	a.do("POST", "/v1/queues/q/claim", obj{"wait_ms": 100}).is(200).has(`"tasks":[]`)
}

// leavingWriter is a connection whose client hangs up when it has its answer.
type leavingWriter struct {
	*httptest.ResponseRecorder
	leave func()
}

func (w *leavingWriter) Write(b []byte) (int, error) {
	defer w.leave()
	return w.ResponseRecorder.Write(b)
}

// brokenWriter is a connection that broke when the answer began.
type brokenWriter struct{ *httptest.ResponseRecorder }

func (*brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
