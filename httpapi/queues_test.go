package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
)

func TestQueues_counts_all_or_the_named_ones(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	a.do("GET", "/v1/queues", nil).is(200).has(`{"queues":[]}`)
	for _, q := range []string{"b", "a", "a"} {
		a.do("POST", "/v1/queues/"+q+"/tasks", obj{"id": fmt.Sprint("t", len(q)), "delay_ms": 1000})
	}
	var got queueList
	a.do("GET", "/v1/queues", nil).is(200).into(&got)
	if len(got.Queues) != 2 || got.Queues[0].Queue != "a" || got.Queues[1].Queue != "b" || got.Queues[1].Scheduled != 1 {
		t.Errorf("got %+v", got)
	}
	a.do("GET", "/v1/queues?queue=b&queue=new", nil).is(200).into(&got)
	if len(got.Queues) != 2 || got.Queues[0].Queue != "b" || got.Queues[1].Queue != "new" {
		t.Errorf("got %+v", got)
	}
	a.do("GET", "/v1/queues?queue=b&queue=", nil).refuses(400, "invalid", "queue", "is empty")
	a.do("GET", "/v1/queues?"+strings.Repeat("queue=a&", 201), nil).refuses(400, "invalid", "queue", "more than 200")
	a.do("GET", "/v1/queues/b/stats", nil).is(200).has(`"queue":"b","now":"2026-12-01T08:00:00.000Z","scheduled":1,"overdue":0`, `"next_due_at":"2026-12-01T08:00:01.000Z"`, `"totals":{"scheduled":1,`)
}

func TestSettings_are_numbers_and_words(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	const path = "/v1/queues/q/settings"
	a.do("GET", path, nil).is(200).has(`"version":0`, `"timeout_ms":3000`, `"changed":[]`)
	a.do("PATCH", path, `{"timeout_ms":10000,"retries":5,"retry_factor":1.5,"retry_jitter_percent":20,"delivery":"at_most_once",
		"priority":true,"max_late_ms":60000,"forward":"list:x","push":"https://example.com/"}`).is(200).
		has(`"version":1`, `"timeout_ms":10000`, `"retries":5`, `"retry_factor":1.5`, `"retry_jitter_percent":20`, `"delivery":"at_most_once"`,
			`"priority":true`, `"max_late_ms":60000`, `"forward":"list:x"`, `"push":"https://example.com/"`,
			`"changed":["timeout","retries","retry_factor","retry_jitter","delivery","max_late","priority","forward","push"]`)
	a.do("PATCH", path, `{"timeout_ms":null,"retries":null,"retry_factor":null,"retry_jitter_percent":null,"delivery":null,
		"priority":false,"max_late_ms":0,"forward":"","push":null}`).is(200).has(`"version":2`, `"changed":[]`)
	a.do("PATCH", path, `{}`).is(200).has(`"version":2`)
	for body, want := range map[string][2]string{
		`{"timeout_ms":0}`:                 {"timeout_ms", "is not a duration"},
		`{"timeout_ms":"10s"}`:             {"timeout_ms", "is not a whole number"},
		`{"timeout_ms":1.5}`:               {"timeout_ms", "is not a whole number"},
		`{"timeout_ms":1e4}`:               {"timeout_ms", "is not a whole number"},
		`{"timeout_ms":true}`:              {"timeout_ms", "is not a whole number"},
		`{"timeout":10000}`:                {"body", `has the field "timeout", which is not one of`},
		`{"retries":-1}`:                   {"retries", "is not a whole number from 0"},
		`{"retries":99999999999999999999}`: {"retries", "is not a whole number from 0"},
		`{"retry_jitter_percent":101}`:     {"retry_jitter_percent", "is not a share"},
		`{"retry_factor":"2"}`:             {"retry_factor", "is not a number"},
		`{"paused":"on"}`:                  {"paused", "is not true or false"},
		`{"paused":1}`:                     {"paused", "is not true or false"},
		`{"delivery":"never"}`:             {"delivery", "is not one of"},
		`{"delivery":true}`:                {"delivery", "is not a string"},
		`{"retries":1,"retries":2}`:        {"retries", "is there twice"},
		`{"lease_ms":90000000}`:            {"lease_ms", "is over lease_max"},
		`{"retries":9,"wait_replicas":1}`:  {"wait_replicas", "must be 0"},
		`{"retries":9,"push":"ftp://x"}`:   {"push", "is not an http"},
		`{"retries":9,"forward":"\u0000"}`: {"forward", "is not list"},
		`[]`:                               {"body", "is not a JSON object"},
		``:                                 {"body", "is missing"},
	} {
		a.do("PATCH", path, body).refuses(400, "invalid", want[0], want[1])
	}
	a.do("GET", path, nil).is(200).has(`"version":2`, `"retries":3`)
}

func TestPause_keeps_tasks_until_resume(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	a.do("POST", "/v1/queues/q/tasks", obj{"id": "a", "delay_ms": 0}).is(201)
	a.do("POST", "/v1/queues/q/pause", nil).is(200).has(`{"queue":"q","paused":true}`)
	a.do("POST", "/v1/queues/q/claim", obj{}).is(200).has(`"tasks":[]`, `"paused":true`)
	a.do("POST", "/v1/queues/q/resume", "{}").is(200).has(`{"queue":"q","paused":false}`)
	a.claim("q", obj{})
}

func TestDead_letters(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	for _, id := range []string{"a", "b", "c"} {
		a.die("q", id)
	}
	var got taskList
	a.do("GET", "/v1/queues/q/dead?error=boom+b", nil).is(200).has(`"state":"dead"`).into(&got)
	if len(got.Tasks) != 1 || got.Tasks[0].Member != "b" || got.Tasks[0].LastError != "boom b" {
		t.Errorf("got %+v", got)
	}
	a.do("GET", "/v1/queues/q/dead?limit=2", nil).is(200).into(&got)
	if len(got.Tasks) != 2 || got.Cursor == "" {
		t.Errorf("got %+v", got)
	}
	a.do("POST", "/v1/queues/q/dead/requeue", obj{"members": []string{"a", "no"}}).is(200).
		has(`{"member":"a","status":"done","due_at":"2026-12-01T08:00:00.000Z"},{"member":"no","status":"not_found","due_at":null}`)
	a.do("POST", "/v1/queues/q/dead/requeue", obj{"members": []string{"b"}, "delay_ms": 5000}).is(200).has(`"due_at":"2026-12-01T08:00:05.000Z"`)
	a.do("POST", "/v1/queues/q/dead/delete", obj{"members": []string{"a", "c"}}).is(200).has(`"status":"changed"`, `"member":"c","status":"done"`)
	a.do("GET", "/v1/queues/q/stats", nil).is(200).has(`"scheduled":2`, `"dead":0`)
	a.do("POST", "/v1/queues/q/dead/delete", obj{"members": []string{}, "delay_ms": 1}).refuses(400, "invalid", "body", "has the field")
}

// One queue that is broken does not keep the others.
func TestQueues_that_cannot_be_read_say_so(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a := onRedis(t, redis.URL())
	a.do("POST", "/v1/queues/good/tasks", obj{"id": "a", "delay_ms": 1000}).is(201)
	a.do("POST", "/v1/queues/bad/tasks", obj{"id": "a", "delay_ms": 1000}).is(201)
	raw := redis.Client(t)
	if err := raw.Set(t.Context(), "delay:bad", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := raw.HSet(t.Context(), "{delay:odd}:settings", "timeout_ms", "soon").Err(); err != nil {
		t.Fatal(err)
	}
	var got queueList
	a.do("GET", "/v1/queues", nil).is(200).into(&got)
	if len(got.Queues) != 2 || got.Queues[0].Problem == nil || got.Queues[0].Error == "" || got.Queues[1].Problem != nil || got.Queues[1].Scheduled != 1 {
		t.Errorf("got %+v", got)
	}
	a.do("GET", "/v1/queues/bad/stats", nil).refuses(500, "internal", "", "")
	a.do("GET", "/v1/queues/bad/tasks", nil).refuses(500, "internal", "", "")
	a.do("GET", "/v1/queues/odd/settings", nil).is(200).has(`"timeout_ms":3000`, `"problem":{"type":"urn:dueq:problem:invalid"`, `"field":"timeout_ms"`)
	a.do("PATCH", "/v1/queues/odd/settings", obj{"retries": 9}).is(200).has(`"retries":9`, `"problem":{"type":"urn:dueq:problem:invalid"`)
	a.do("PATCH", "/v1/queues/odd/settings", obj{"retries": -9}).refuses(400, "invalid", "retries", "is not a whole number")
	if r := a.do("PATCH", "/v1/queues/odd/settings", obj{"timeout_ms": 5000}).is(200); strings.Contains(string(r.body), "problem") {
		t.Errorf("got %s", r.body)
	}
}

// tokens are one for each scope, for the queues a*, and one to read all; the
// secret is the scope, or all.
func tokens(o *Options) {
	for _, s := range scopes {
		o.Tokens = append(o.Tokens, Token{Name: string(s), Hash: HashToken(string(s)), Scopes: []Scope{s}, Queues: []string{"a*"}})
	}
	o.Tokens = append(o.Tokens, Token{Name: "all", Hash: HashToken("all"), Scopes: []Scope{ScopeRead}})
}

func TestTokens_see_their_queues_only(t *testing.T) {
	t.Parallel()
	a := newAPITest(t, tokens)
	for _, q := range []string{"a1", "b", "a2"} {
		_, err := a.store.SetSettings(t.Context(), q, dueq.SettingsPatch{"retries": "1"})
		if err != nil {
			t.Fatal(err)
		}
	}
	var got queueList
	a.do("GET", "/v1/queues", nil, "Authorization: Bearer read").is(200).into(&got)
	if len(got.Queues) != 2 || got.Queues[0].Queue != "a1" || got.Queues[1].Queue != "a2" {
		t.Errorf("got %+v", got)
	}
	a.do("GET", "/v1/queues?queue=a1&queue=b", nil, "Authorization: Bearer read").refuses(403, "forbidden", "", "")
	a.do("GET", "/v1/queues/b/stats", nil, "Authorization: Bearer read").refuses(403, "forbidden", "", "")
	a.do("GET", "/v1/queues/a1/stats", nil, "Authorization: Bearer publish").refuses(403, "forbidden", "", "")
	a.do("GET", "/v1/queues/a1/stats", nil, "Authorization: Bearer admin").is(200)
	a.do("GET", "/v1/queues/a1/stats", nil).refuses(401, "unauthorized", "", "")
	a.do("GET", "/openapi.json", nil, "Authorization: Bearer consume").is(200)
	a.do("GET", "/openapi.json", nil).refuses(401, "unauthorized", "", "")
	a.do("GET", "/metrics", nil, "Authorization: Bearer read").refuses(403, "forbidden", "", "") // it shows all queues
	a.do("GET", "/metrics", nil, "Authorization: Bearer all").is(200)
	a.do("GET", "/metrics", nil, "Authorization: Bearer consume").refuses(403, "forbidden", "", "")
	a.do("GET", "/livez", nil).is(200)
	a.do("GET", "/readyz", nil).is(200)
	change := func(op, token string) *reply {
		return a.do("POST", "/v1/queues/a1/tasks/change", obj{"op": op, "targets": []obj{}}, "Authorization: Bearer "+token)
	}
	for _, op := range []string{"cancel", "stop", "reschedule"} {
		change(op, "publish").is(200)
	}
	for _, op := range []string{"requeue", "delete"} {
		change(op, "publish").refuses(403, "forbidden", "", "")
		change(op, "admin").is(200)
	}
}

// Whoever shows a store over HTTP has to show all that it knows.
func TestSettings_of_the_wire_know_each_setting(t *testing.T) {
	t.Parallel()
	for name := range settingKinds {
		setting, _ := settingUnit(name)
		found := false
		for _, known := range dueq.SettingNames() {
			found = found || known == setting
		}
		if !found {
			t.Errorf("%s is no setting", name)
		}
	}
}
