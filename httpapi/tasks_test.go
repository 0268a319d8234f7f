package httpapi

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
)

type obj map[string]any

func TestSchedule_says_what_became_of_the_task(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	const q = "/v1/queues/order:close/tasks"
	r := a.do("POST", q, obj{"id": "order_1", "kind": "pay", "delay_ms": 60_000, "body": obj{"n": 1}}).is(201)
	r.has(`{"queue":"order:close","member":"order_1:pay","status":"scheduled","due_at":"2026-12-01T08:01:00.000Z"}`)
	location := r.header.Get("Location")
	if location != q+"/order_1:pay" {
		t.Errorf("got Location %s", location)
	}
	a.do("GET", location, nil).is(200).has(`"state":"scheduled"`, `"body":{"n":1}`, `"due_at":"2026-12-01T08:01:00.000Z"`)

	a.do("POST", q, obj{"id": "order_1", "kind": "pay", "due_at": "2026-12-01T10:00:00.0001+01:00"}).is(200).
		has(`"status":"replaced"`, `"due_at":"2026-12-01T09:00:00.001Z"`)
	a.do("GET", location, nil).is(200).has(`"has_body":false`)
	a.do("POST", q, obj{"id": "order_1", "kind": "pay", "delay_ms": 1, "if_exists": "later"}).is(200).
		has(`"status":"kept"`, `"due_at":"2026-12-01T09:00:00.001Z"`)
	a.advance(2 * time.Hour)
	a.do("POST", "/v1/queues/order:close/claim", obj{}).is(200).has(`"order_1:pay"`)
	a.do("POST", q, obj{"id": "order_1", "kind": "pay", "delay_ms": 0}).is(200).has(`"status":"running"`)
}

func TestSchedule_refuses_and_names_the_field(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	const q = "/v1/queues/q/tasks"
	for _, test := range []struct {
		body          any
		field, reason string
	}{
		{`{"id":"a","delay_ms":1e400}`, "delay_ms", "is not a whole number"},
		{`{"id":"a","delay_ms":1e30}`, "delay_ms", "is not a whole number"},
		{`{"id":"a","delay_ms":"5"}`, "delay_ms", "is not a whole number"},
		{`{"id":"a","delay_ms":1.5}`, "delay_ms", "is not a whole number"},
		{`{"id":"a","delay_ms":-1}`, "delay_ms", "is not 0 to"},
		{`{"id":"a","delay_ms":null}`, "delay_ms", "is null"},
		{`{"id":"a","delay_ms":true}`, "delay_ms", "is not a whole number"},
		{`{"id":"a","delay_ms":[]}`, "delay_ms", "is not a whole number"},
		{`{"id":"a","delay_ms":9223372036854}`, "", ""},
		{`{"id":"a","delay_ms":1,"delay_ms":2}`, "delay_ms", "is there twice"},
		{`{"id":"a","delay_ms":1,"Delay_ms":2}`, "body", "has the field"},
		{`{"id":"a"}`, "delay_ms", "or due_at is missing"},
		{`{"delay_ms":1}`, "id", "is missing"},
		{`{"id":"a","delay_ms":1,"due_at":"2026-12-01T08:00:00Z"}`, "delay_ms", "and due_at are both there"},
		{`{"id":"a","due_at":"2026-12-01T08:00:00"}`, "due_at", "is not RFC 3339"},
		{`{"id":"a","due_at":"soon"}`, "due_at", "is not RFC 3339"},
		{`{"id":"a","due_at":"1969-12-31T00:00:00Z"}`, "due_at", "before 1973"},
		{`{"id":"a","due_at":"0001-01-01T00:00:00Z"}`, "due_at", "before 1973"},
		{`{"id":"a","due_at":1796112000000}`, "due_at", "is not a string"},
		{`{"id":"","delay_ms":1}`, "id", "is empty"},
		{`{"id":"a b","delay_ms":1}`, "id", "contains white space"},
		{`{"id":"a:b","delay_ms":1}`, "kind", "is needed"},
		{obj{"id": strings.Repeat("x", 65), "delay_ms": 1}, "member", "is 65 bytes, the limit is 64"},
		{`{"id":"a","delay_ms":1,"priority":3}`, "priority", ""},
		{`{"id":"a","delay_ms":1,"if_exists":"new"}`, "if_exists", "is not one of replace, keep, earlier, later"},
		{`{"id":"a","delay_ms":1,"body":1,"body_base64":""}`, "body", "and body_base64 are both there"},
		{`{"id":"a","delay_ms":1,"body_base64":"!"}`, "body_base64", "is not base64"},
		{`{"id":"a","delay_ms":1} {}`, "body", "has more after the object"},
		{`{"id":"a",`, "body", "ends within"},
		{`[]`, "body", "is not a JSON object"},
		{``, "body", "is missing"},
	} {
		if test.field == "" {
			a.do("POST", q, test.body).is(201)
			continue
		}
		a.do("POST", q, test.body).refuses(400, "invalid", test.field, test.reason)
	}
	a.do("POST", "/v1/queues/-q/tasks", obj{"id": "a", "delay_ms": 1}).refuses(400, "invalid", "queue", "may have letters")
	a.do("GET", "/v1/queues/q/stats", nil).is(200).has(`"scheduled":1`)
}

func TestSchedule_keeps_bodies_to_the_byte(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	for i, test := range []struct {
		field, value string // as the request has them
		want         string // bytes
		answer       string
	}{
		{"body", `{"a": [1, 2]}`, `{"a": [1, 2]}`, `"body":{"a":[1,2]},"body_base64":"` + base64.StdEncoding.EncodeToString([]byte(`{"a": [1, 2]}`))},
		{"body", `[1e400]`, `[1e400]`, `"body_base64":"WzFlNDAwXQ=="}`},
		{"body", `"<é>"`, `"<é>"`, `"body":"<é>"}`},
		{"body_base64", `"AAE="`, "\x00\x01", `"body_base64":"AAE="}`},
		{"body_base64", `""`, "", `"body_base64":""}`},
		{"body_base64", `"bnVsbA=="`, "null", `"body_base64":"bnVsbA=="}`},
	} {
		id := fmt.Sprint("t", i)
		a.undocumented("POST", "/v1/queues/q/tasks", fmt.Sprintf(`{"id":%q,"delay_ms":0,%q:%s}`, id, test.field, test.value)).is(201) // 1e400 is JSON that validators cannot read
		infos, err := a.store.Get(t.Context(), "q", []string{id})
		if err != nil || infos[0].Body == nil || string(infos[0].Body) != test.want {
			t.Errorf("%s: got %q, %v", test.value, infos[0].Body, err)
		}
		r := a.do("GET", "/v1/queues/q/tasks/"+id, nil).is(200).has(test.answer)
		var got foundTask
		r.into(&got)
		if string(got.Bytes()) != test.want {
			t.Errorf("%s: got %q of the answer", test.value, got.Bytes())
		}
	}
	a.do("PATCH", "/v1/queues/q/settings", obj{"body_max": 10}).is(200)
	a.do("POST", "/v1/queues/q/tasks", obj{"id": "l", "delay_ms": 0, "body": 1234567890}).is(201)
	a.do("POST", "/v1/queues/q/tasks", obj{"id": "l+1", "delay_ms": 0, "body": 12345678901}).refuses(413, "too_large", "", "")
	a.do("GET", "/v1/queues/q/tasks/l+1", nil).refuses(404, "not_found", "", "")
}

func TestBatch_a_bad_item_fails_alone(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	r := a.do("POST", "/v1/queues/q/tasks/batch", `{"items":[
		{"id":"a","delay_ms":1}, {"id":"b","delay_ms":"1"}, 7, null, {"id":"a","delay_ms":2},
		{"id":"c","delay_ms":1,"body":"`+strings.Repeat("x", 65<<10)+`"}, {"id":"x y","delay_ms":1}, {"id":"d","kind":"k","delay_ms":3}]}`).is(200)
	var got results
	r.into(&got)
	var text []string
	for _, one := range got.Results {
		s := one.Member + " " + one.Status
		if one.Problem != nil {
			s += " " + one.Problem.Type + " " + one.Problem.Detail
		}
		text = append(text, s)
	}
	want := []string{
		"a scheduled", ` refused urn:dueq:problem:invalid delay_ms "\"1\"" is not a whole number`,
		" refused urn:dueq:problem:invalid item is not a JSON object", " refused urn:dueq:problem:invalid item is not a JSON object", "a replaced",
		"c refused urn:dueq:problem:too_large", "x y refused urn:dueq:problem:invalid id contains white space", "d:k scheduled",
	}
	for i := range want {
		if i >= len(text) || !strings.HasPrefix(text[i], want[i]) {
			t.Errorf("got  %q\nwant %q", text, want)
			break
		}
	}
	a.do("POST", "/v1/queues/q/tasks/batch", `{"items":[]}`).is(200).has(`{"results":[]}`)
	many := strings.Repeat(`{"id":"a","delay_ms":1},`, 1000)
	a.do("POST", "/v1/queues/q/tasks/batch", `{"items":[`+many+`1]}`).refuses(400, "invalid", "items", "has more than 1000 entries")
	a.do("POST", "/v1/queues/q/tasks/batch", `{}`).refuses(400, "invalid", "items", "is missing")
}

func TestTask_members_are_percent_encoded(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	for _, item := range []obj{
		{"id": "a/b", "kind": "k"}, {"id": "50%", "kind": "ü"}, {"id": "a?b&c=d+e", "kind": "k;"}, {"id": "a", "trace": "t/1"}, {"id": "batches"},
	} {
		item["delay_ms"] = 1000
		r := a.do("POST", "/v1/queues/q/tasks", item).is(201)
		path := r.header.Get("Location")
		var made view.Outcome
		r.into(&made)
		if want := "/v1/queues/q/tasks/" + url.PathEscape(made.Member); path != want {
			t.Errorf("got %s, want %s", path, want)
		}
		a.do("GET", path, nil).is(200).has(`"state":"scheduled"`)
		a.do("PATCH", path, obj{"delay_ms": 5000}).is(200).has(`"status":"done"`, `"due_at":"2026-12-01T08:00:05.000Z"`)
		a.do("DELETE", path, nil).is(200).has(`"status":"done"`)
		a.do("GET", path, nil).refuses(404, "not_found", "", "")
	}
}

// OpenAPI sees only POST on these paths.
func TestTask_members_may_be_called_as_routes_are(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	for _, id := range []string{"batch", "get", "change"} {
		path := a.do("POST", "/v1/queues/q/tasks", obj{"id": id, "delay_ms": 1000}).is(201).header.Get("Location")
		a.undocumented("GET", path, nil).is(200).has(`"state":"scheduled"`)
		a.undocumented("DELETE", path, nil).is(200).has(`"status":"done"`)
	}
}

func TestReschedule_and_cancel_tell_the_truth(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	const path = "/v1/queues/q/tasks/a"
	a.do("PATCH", path, obj{"delay_ms": 1}).refuses(404, "not_found", "", "")
	a.do("DELETE", path, nil).refuses(404, "not_found", "", "")
	a.do("POST", "/v1/queues/q/tasks", obj{"id": "a", "delay_ms": 0}).is(201)
	a.do("PATCH", path, obj{}).refuses(400, "invalid", "delay_ms", "or due_at is missing")
	a.do("PATCH", path, obj{"delay_ms": 1, "id": "b"}).refuses(400, "invalid", "body", "has the field")
	a.do("DELETE", path+"?running=yes", nil).refuses(400, "invalid", "running", `"yes" is not one of false true`)
	a.do("DELETE", path+"?force=true", nil).refuses(400, "invalid", "force", "is no parameter")
	a.do("DELETE", path+"?running=true&running=true", nil).refuses(400, "invalid", "running", "is there twice")
	a.do("DELETE", path, `{"running":true}`).refuses(400, "invalid", "body", "has the field")

	var claimed claimAnswer
	a.do("POST", "/v1/queues/q/claim", obj{}).is(200).into(&claimed)
	a.do("PATCH", path, obj{"delay_ms": 1}).refuses(409, "running", "", "")
	a.do("DELETE", path, nil).refuses(409, "running", "", "")
	a.do("GET", path, nil).is(200).has(`"cancelled":true`, `"state":"active"`)
	a.do("DELETE", path+"?running=true", nil).is(200).has(`"status":"done"`)
	a.do("POST", "/v1/queues/q/extend", obj{"lease_ms": 5000, "leases": []obj{{"member": "a", "lease": claimed.Tasks[0].Lease}}}).
		is(200).has(`"status":"lease_lost"`)

	a.die("q", "d")
	a.do("PATCH", "/v1/queues/q/tasks/d", obj{"delay_ms": 1}).refuses(409, "dead", "", "")
	a.do("DELETE", "/v1/queues/q/tasks/d", nil).refuses(409, "dead", "", "")
}

// die makes a dead letter of a new task.
func (a *api) die(queue, id string) {
	a.Helper()
	q := "/v1/queues/" + queue
	a.do("POST", q+"/tasks", obj{"id": id, "delay_ms": 0})
	var claimed claimAnswer
	a.do("POST", q+"/claim", obj{"max": 1}).is(200).into(&claimed)
	for _, t := range claimed.Tasks {
		a.do("POST", q+"/settle", obj{"results": []obj{{"member": t.Member, "lease": t.Lease, "outcome": "dead", "error": "boom " + id}}}).
			is(200).has(`"status":"done"`)
	}
}

func TestGet_many_keeps_the_order_and_says_none(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	a.do("POST", "/v1/queues/q/tasks", obj{"id": "a", "delay_ms": 0, "body": 1}).is(201)
	a.do("POST", "/v1/queues/q/tasks", obj{"id": "b", "delay_ms": 0}).is(201)
	var got foundTasks
	a.do("POST", "/v1/queues/q/tasks/get", obj{"members": []string{"b", "no", "a"}}).is(200).into(&got)
	var text []string
	for _, f := range got.Tasks {
		text = append(text, f.Member+" "+f.State+" "+string(f.Bytes()))
	}
	if strings.Join(text, ",") != "b scheduled ,no none ,a scheduled 1" {
		t.Errorf("got %q", text)
	}
	a.do("POST", "/v1/queues/q/tasks/get", obj{"members": make([]string, 1001)}).refuses(400, "invalid", "members", "has more than 1000 entries")
}

func TestGet_many_is_bounded_in_bytes(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	a.do("PATCH", "/v1/queues/q/settings", obj{"body_max": 1 << 20}).is(200)
	var members []string
	for i := range 12 {
		members = append(members, fmt.Sprint("t", i))
		_, err := a.store.Schedule(t.Context(), []dueq.Item{{Queue: "q", Task: dueq.Task{ID: members[i], Body: make([]byte, 1<<20)}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	rounds := 0
	for len(members) > 0 {
		r := a.do("POST", "/v1/queues/q/tasks/get", obj{"members": members}).is(200)
		var got foundTasks
		r.into(&got)
		if len(got.Tasks) == 0 || len(r.body) > 3*getMost {
			t.Fatalf("got %d tasks in %d bytes", len(got.Tasks), len(r.body))
		}
		for i, f := range got.Tasks {
			if f.Member != members[i] || len(f.Bytes()) != 1<<20 {
				t.Errorf("got %s with %d bytes, want %s", f.Member, len(f.Bytes()), members[i])
			}
		}
		members, rounds = members[len(got.Tasks):], rounds+1
	}
	if rounds < 3 {
		t.Errorf("12 MiB of bodies came in %d answers", rounds)
	}
}

func TestList_pages_through_a_state(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	for i := range 5 {
		a.do("POST", "/v1/queues/q/tasks", obj{"id": fmt.Sprint("t", i), "delay_ms": 1000 * i, "body": strings.Repeat("x", 1000)}).is(201)
	}
	a.advance(2 * time.Second)
	pages := func(path string) (all []string) {
		for cursor := ""; ; {
			var got taskList
			r := a.do("GET", path+"&cursor="+url.QueryEscape(cursor), nil).is(200)
			r.into(&got)
			for _, task := range got.Tasks {
				all = append(all, task.Member)
			}
			if strings.Contains(string(r.body), "xxx") {
				t.Error("a list has bodies")
			}
			if cursor = got.Cursor; cursor == "" {
				return all
			}
		}
	}
	for path, want := range map[string]string{
		"?limit=2":                  "t0 t1 t2 t3 t4",
		"?state=overdue&limit=1000": "t0 t1 t2",
		"?state=active":             "",
	} {
		if got := strings.Join(pages("/v1/queues/q/tasks"+path), " "); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	for path, field := range map[string]string{
		"?limit=0": "limit", "?limit=1001": "limit", "?limit=x": "limit", "?limit=": "limit", "?state=": "state", "?state=Dead": "state",
		"?cursor=x": "cursor", "?limit=1&limit=2": "limit", "?x=1": "x", "?limit=%zz": "query", "?a;b": "query",
	} {
		a.do("GET", "/v1/queues/q/tasks"+path, nil).refuses(400, "invalid", field, "")
	}
}

func TestChange_answers_per_target(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	for _, id := range []string{"a", "b", "c"} {
		a.do("POST", "/v1/queues/q/tasks", obj{"id": id, "delay_ms": 1000, "body": id}).is(201)
	}
	a.die("q2", "d")
	change := func(queue, op string, targets ...obj) string {
		t.Helper()
		var got results
		a.do("POST", "/v1/queues/"+queue+"/tasks/change", obj{"op": op, "targets": targets}).is(200).into(&got)
		var text []string
		for _, r := range got.Results {
			s := r.Status
			if r.Problem != nil {
				s += " " + r.Problem.Detail
			}
			text = append(text, s)
		}
		return strings.Join(text, ", ")
	}
	for i, test := range []struct{ got, want string }{
		{change("q", "reschedule", obj{"member": "a", "delay_ms": 5000}, obj{"member": "no", "delay_ms": 1}, obj{"member": "b"}),
			"done, not_found, refused delay_ms or due_at is missing"},
		{change("q", "cancel", obj{"member": "a", "if_due_at": "2026-12-01T08:00:01Z"}, obj{"member": "b", "if_body": "x"}, obj{"member": "c", "if_body_base64": "ImMi"}),
			"changed, changed, done"},
		{change("q", "cancel", obj{"member_base64": "YQ==", "if_state": "scheduled"}, obj{"member": "a", "member_base64": "YQ=="}, obj{}),
			"done, refused member and member_base64 are both there, refused member is missing"},
		{change("q", "cancel", obj{"member": "b", "delay_ms": 1}), "refused due_at and delay_ms mean nothing to cancel"},
		{change("q", "stop", obj{"member": "b"}), "done"},
		{change("q2", "requeue", obj{"member": "d"}, obj{"member": "no"}), "done, not_found"},
		{change("q2", "delete", obj{"member": "d", "if_state": "dead"}, obj{"member": "d"}), "changed, done"},
	} {
		if test.got != test.want {
			t.Errorf("%d: got %s, want %s", i, test.got, test.want)
		}
	}
	a.do("POST", "/v1/queues/q/tasks/change", obj{"op": "ack", "targets": []obj{}}).refuses(400, "invalid", "op", "is not one of cancel, stop")
}
