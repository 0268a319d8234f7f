package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/httpapi"
	"github.com/dueq/dueq/memstore"
)

func TestOpenRefusesWhatIsNoAddress(t *testing.T) {
	t.Parallel()
	for address, field := range map[string]string{
		"":                                  "store",
		"localhost:8080":                    "store",
		"http:localhost":                    "store",
		"http://":                           "store",
		"http://:8080":                      "store",
		"ftp://host":                        "store",
		"http://host:port":                  "store",
		"http://ho st":                      "store",
		"http://[::1":                       "store",
		"http://host/#x":                    "store",
		"http://host#":                      "store",
		"http://host?":                      "store",
		"http://host?token=" + secret:       "store",
		"http://host?" + secret:             "store",
		"http://" + secret + "@host":        "store",
		"http://u:" + secret + "@host":      "store",
		"http://:" + secret + "@host:x":     "store",
		"http://:" + secret + "%@host":      "store",
		"http://:" + secret + "%0a@host":    "token",
		"http://:" + secret + " @host":      "store",
		"http://:%c3%a9" + secret + "@host": "token",
	} {
		_, err := httpapi.Open(address, httpapi.ClientOptions{})
		var refused *dueq.FieldError
		if !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%s: got %v, want a FieldError of %s", address, err, field)
		}
		wantNoSecret(t, err)
	}
	_, err := httpapi.Open("http://host?batch=3", httpapi.ClientOptions{})
	if err == nil || !strings.Contains(err.Error(), `"batch"`) {
		t.Errorf("got %v, want an error that names the parameter", err)
	}
	for field, opts := range map[string]httpapi.ClientOptions{
		"timeout": {Timeout: time.Millisecond}, "token": {Token: secret + "\r\nX: y"},
	} {
		_, err := httpapi.Open("http://host", opts)
		var refused *dueq.FieldError
		if !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("got %v, want a FieldError of %s", err, field)
		}
		wantNoSecret(t, err)
	}
}

func TestOpenFindsTheServerAndItsToken(t *testing.T) {
	t.Parallel()
	type seen struct{ path, auth, query string }
	var got seen
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = seen{r.URL.Path, r.Header.Get("Authorization"), r.URL.RawQuery}
	}))
	t.Cleanup(s.Close)
	host := strings.TrimPrefix(s.URL, "http://")
	for _, c := range []struct{ address, token, path, auth string }{
		{"http://" + host, "", "/v1/queues", ""},
		{"HTTP://" + host + "/", "", "/v1/queues", ""},
		{"http://" + host + "/sub/path", "a", "/sub/path/v1/queues", "Bearer a"},
		{"http://" + host + "/sub%20path//", "a", "/sub path/v1/queues", "Bearer a"},
		{"http://:tok%2Fen%3D@" + host, "", "/v1/queues", "Bearer tok/en="},
		{"http://:url@" + host, "option", "/v1/queues", "Bearer url"},
		{"http://@" + host, "option", "/v1/queues", "Bearer option"},
	} {
		store := open(t, c.address, httpapi.ClientOptions{Token: c.token})
		if _, err := store.Stats(t.Context()); err == nil {
			t.Error("an empty answer was taken")
		}
		if want := (seen{c.path, c.auth, ""}); got != want {
			t.Errorf("%s: the server got %+v, want %+v", c.address, got, want)
		}
	}
}

// recorder is a server that notes what it is asked to schedule, and answers it
// as a test says.
type recorder struct {
	mu    sync.Mutex            // guards asked
	asked map[string][][]string // by queue: ids of each request
}

func (rec *recorder) serve(t *testing.T, answer func(w http.ResponseWriter, queue string, request int, ids []string)) string {
	t.Helper()
	rec.asked = map[string][][]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		queue := strings.Split(r.URL.Path, "/")[3]
		var in struct{ Items []struct{ ID string } }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		var ids []string
		for _, item := range in.Items {
			ids = append(ids, item.ID)
		}
		rec.mu.Lock()
		rec.asked[queue] = append(rec.asked[queue], ids)
		n := len(rec.asked[queue])
		rec.mu.Unlock()
		answer(w, queue, n, ids)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func scheduled(w http.ResponseWriter, ids []string) {
	results := []map[string]any{}
	for _, id := range ids {
		results = append(results, map[string]any{"member": id, "status": "scheduled", "due_at": "2026-12-01T08:00:00.000Z"})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"results": results})
}

func TestScheduleAsksEachQueueInOrder(t *testing.T) {
	t.Parallel()
	var rec recorder
	address := rec.serve(t, func(w http.ResponseWriter, _ string, _ int, ids []string) { scheduled(w, ids) })
	var items []dueq.Item
	big := make([]byte, 300<<10)
	for i := range 30 {
		item := dueq.Item{Queue: fmt.Sprint("q", i%3), Task: dueq.Task{ID: fmt.Sprint("t", i)}}
		if i%3 == 1 {
			item.Task.Body = big // three of them are less than 1 MiB
		}
		items = append(items, item)
	}
	items[4].Task.ID = "a b" // refused here, and not sent
	outcomes, err := open(t, address, patient).Schedule(t.Context(), items)
	must(t, err)
	for i, o := range outcomes {
		if want := map[bool]dueq.Status{true: dueq.StatusRefused, false: dueq.StatusScheduled}[i == 4]; o.Status != want {
			t.Errorf("item %d: got %v, %v; want %v", i, o.Status, o.Err, want)
		}
	}
	want := map[string][][]string{
		"q0": {{"t0", "t3", "t6", "t9", "t12", "t15", "t18", "t21", "t24", "t27"}},
		"q1": {{"t1", "t7", "t10"}, {"t13", "t16", "t19"}, {"t22", "t25", "t28"}},
		"q2": {{"t2", "t5", "t8", "t11", "t14", "t17", "t20", "t23", "t26", "t29"}},
	}
	for queue, requests := range want {
		if !slices.EqualFunc(rec.asked[queue], requests, slices.Equal) {
			t.Errorf("%s: asked %v, want %v", queue, rec.asked[queue], requests)
		}
	}
}

func TestScheduleReturnsWhatIsKnownWhenAQueueFails(t *testing.T) {
	t.Parallel()
	var rec recorder
	address := rec.serve(t, func(w http.ResponseWriter, queue string, request int, ids []string) {
		switch {
		case queue == "partly":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(503)
			_, _ = io.WriteString(w, `{"type":"urn:dueq:problem:unavailable","title":"Store unavailable","status":503,"retryable":true,"request_id":"r",
				"results":[{"member":"p1","status":"replaced","due_at":"2026-12-01T08:00:00.000Z"},{"member":"p2","status":"unknown","due_at":null}]}`)
		case queue == "denied":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(403)
			_, _ = io.WriteString(w, `{"type":"urn:dueq:problem:forbidden","title":"Token may not do this","status":403,"retryable":false}`)
		default:
			scheduled(w, ids)
		}
	})
	c := open(t, address, httpapi.ClientOptions{})
	item := func(queue, id string) dueq.Item { return dueq.Item{Queue: queue, Task: dueq.Task{ID: id}} }

	outcomes, err := c.Schedule(t.Context(), []dueq.Item{item("partly", "p1"), item("good", "g"), item("partly", "p2")})
	if !errors.Is(err, dueq.ErrUnavailable) || !mayHaveHappened(err) || len(outcomes) != 3 ||
		outcomes[0].Status != dueq.StatusReplaced || outcomes[1].Status != dueq.StatusScheduled || outcomes[2].Status != dueq.StatusUnknown {
		t.Errorf("got %v, %v", outcomes, err)
	}
	outcomes, err = c.Schedule(t.Context(), []dueq.Item{item("denied", "d"), item("good", "g")})
	if err == nil || errors.Is(err, dueq.ErrUnavailable) || !mayHaveHappened(err) || len(outcomes) != 2 || outcomes[1].Status != dueq.StatusScheduled {
		t.Errorf("got %v, %v; want what is known and that a part may have happened", outcomes, err)
	}
	outcomes, err = c.Schedule(t.Context(), []dueq.Item{item("denied", "d")})
	if err == nil || mayHaveHappened(err) || outcomes != nil {
		t.Errorf("got %v, %v; want that nothing happened", outcomes, err)
	}
}

func TestAnswersOfTheWrongLengthAreNotTaken(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"results":[],"tasks":[],"queues":[]}`)
	}))
	t.Cleanup(s.Close)
	for _, call := range calls(open(t, s.URL, httpapi.ClientOptions{})) {
		if call.name == "list" || call.name == "settings" || call.name == "wake" {
			continue // of any length, or not a list
		}
		err := call.run(t.Context())
		if !errors.Is(err, dueq.ErrUnavailable) || mayHaveHappened(err) != call.writes {
			t.Errorf("%s: got %v", call.name, err)
		}
	}
}

func TestStatsOfManyQueuesTakeFewAndShortRequests(t *testing.T) {
	t.Parallel()
	var asked []string
	transport := &counting{RoundTripper: http.DefaultTransport, seen: func(r *http.Request) { asked = append(asked, r.URL.RawQuery) }}
	opts := httpapi.ClientOptions{HTTP: &http.Client{Transport: transport}, Timeout: time.Minute}
	c := open(t, serve(t, memstore.New(memstore.Options{}), httpapi.Options{}), opts)
	for _, tc := range []struct{ queues, long, requests int }{
		{1, 4, 1}, {200, 4, 1}, {201, 4, 2}, {450, 4, 3}, {200, dueq.QueueMax, 5},
	} {
		var names []string
		for i := range tc.queues {
			names = append(names, fmt.Sprintf("q%s%03d", strings.Repeat(":", tc.long-4), i))
		}
		asked = nil
		stats, err := c.Stats(t.Context(), names...)
		must(t, err)
		if len(stats) != tc.queues || len(asked) != tc.requests {
			t.Fatalf("%+v: got %d queues in %d requests", tc, len(stats), len(asked))
		}
		for i, s := range stats {
			if s.Queue != names[i] || s.Now.IsZero() || s.Err != nil {
				t.Fatalf("%+v: %d is %+v", tc, i, s)
			}
		}
		for _, query := range asked {
			if len(query) > 6<<10 {
				t.Errorf("%+v: a query is %d bytes", tc, len(query))
			}
		}
	}
}

func TestStatsOfQueuesThatCannotBeReadDoNotKeepTheOthers(t *testing.T) {
	t.Parallel()
	address := serveWith(t, memstore.New(memstore.Options{}), httpapi.Options{}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if slices.Contains(r.URL.Query()["queue"], "bad") {
				http.Error(w, "no backend", http.StatusBadGateway)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	c := open(t, address, patient)
	good, bad := slices.Repeat([]string{"good"}, 200), slices.Repeat([]string{"bad"}, 200)
	for _, queues := range [][]string{slices.Concat(good, bad), slices.Concat(bad, good)} {
		stats, err := c.Stats(t.Context(), queues...)
		must(t, err)
		for i, s := range stats {
			if s.Queue != queues[i] || errors.Is(s.Err, dueq.ErrUnavailable) != (s.Queue == "bad") {
				t.Fatalf("%d, %s: got %+v", i, queues[i], s)
			}
		}
		if len(stats) != len(queues) {
			t.Errorf("got %d queues, want %d", len(stats), len(queues))
		}
	}
	for _, queues := range [][]string{bad[:1], slices.Concat(bad, bad)} {
		if stats, err := c.Stats(t.Context(), queues...); !errors.Is(err, dueq.ErrUnavailable) || stats != nil {
			t.Errorf("%d queues: got %v, %v; want ErrUnavailable", len(queues), stats, err)
		}
	}
}

func TestGetTakesSeveralAnswersWhereBodiesAreLong(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	_, err := store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"body_max": "16777216"})
	must(t, err)
	c := open(t, serve(t, store, httpapi.Options{}), httpapi.ClientOptions{Timeout: time.Minute})
	sizes := []int{3 << 20, 0, 2 << 20, 1, 5}
	var items []dueq.Item
	members := []string{"missing", "\xff"}
	store.Add("q", "\xff", float64(time.Now().Add(time.Hour).UnixMilli()))
	for i, size := range sizes {
		task := dueq.Task{ID: fmt.Sprint(i), Body: slices.Repeat([]byte{byte(i)}, size)}
		items, members = append(items, dueq.Item{Queue: "q", Task: task, When: dueq.In(time.Hour)}), append(members, task.ID)
	}
	outcomes, err := c.Schedule(t.Context(), items)
	must(t, err)
	for _, o := range outcomes {
		must(t, o.Error())
	}
	infos, err := c.Get(t.Context(), "q", members)
	must(t, err)
	for i, info := range infos {
		if info.Member != members[i] {
			t.Fatalf("%d: got %q, want %q", i, info.Member, members[i])
		}
		if i > 1 && string(info.Body) != string(items[i-2].Task.Body) {
			t.Errorf("%d: %d bytes of body, want %d", i, len(info.Body), sizes[i-2])
		}
	}
	if infos[0].State != dueq.StateNone || infos[1].State != dueq.StateScheduled || infos[1].Malformed == nil {
		t.Errorf("got %+v", infos[:2])
	}
}

func TestBodiesAreExact(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	c := open(t, serve(t, store, httpapi.Options{}), httpapi.ClientOptions{})
	for i, body := range []string{
		"", "null", "{}", ` { "a" : 1 } `, `{"a":"<&>` + "\u2028" + `"}`, `"\ud800"`, `{"a":1,"a":2}`, "1e400", "[1,\n2]", "\xff\x00", "text",
		`"\u003c"`, "\ufeff{}", strings.Repeat("[", 20_000), strings.Repeat(" ", 1000) + "0",
	} {
		task := dueq.Task{ID: fmt.Sprint("b", i), Body: []byte(body)}
		_, err := c.Schedule(t.Context(), []dueq.Item{{Queue: "q", Task: task, When: dueq.At(time.Now().Add(-time.Hour))}})
		must(t, err)
		infos, err := c.Get(t.Context(), "q", []string{task.ID})
		must(t, err)
		claim, err := c.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 1})
		must(t, err)
		if len(claim.Tasks) != 1 || claim.Tasks[0].Body == nil || infos[0].Body == nil {
			t.Fatalf("%.20q: claimed %v, got %+v", body, claim.Tasks, infos[0])
		}
		if got := string(claim.Tasks[0].Body); got != body || string(infos[0].Body) != body {
			t.Errorf("%.40q was claimed as %.40q and looked up as %.40q", body, got, infos[0].Body)
		}
	}
}

// JSON would make of it the member of another task, which is leased with the
// same token here.
func TestMembersThatAreNotUTF8AreNotSettled(t *testing.T) {
	t.Parallel()
	c := open(t, serve(t, memstore.New(memstore.Options{}), httpapi.Options{}), patient)
	past := dueq.At(time.Now().Add(-time.Hour))
	_, err := c.Schedule(t.Context(), []dueq.Item{{Queue: "q", Task: dueq.Task{ID: "\uFFFD"}, When: past}})
	must(t, err)
	claim, err := c.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 1})
	must(t, err)
	task := *claim.Tasks[0]
	task.Lease.Member = "\xff"
	settled, err := c.Settle(t.Context(), "q", []dueq.Result{{Task: &task}})
	must(t, err)
	extended, err := c.Extend(t.Context(), "q", []dueq.Lease{task.Lease}, time.Minute)
	must(t, err)
	for _, o := range []dueq.Outcome{settled[0], extended[0]} {
		if o.Status != dueq.StatusRefused || !errors.Is(o.Err, dueq.ErrInvalid) {
			t.Errorf("got %v, %v; want refused", o.Status, o.Err)
		}
	}
	infos, err := c.Get(t.Context(), "q", []string{"\uFFFD"})
	must(t, err)
	if info := infos[0]; info.State != dueq.StateActive || !info.LeaseEnds.Equal(claim.LeaseEnds) {
		t.Errorf("the task that was claimed: got %+v, want it leased until %v", info, claim.LeaseEnds)
	}
}

func TestDelaysAtTheEdge(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	c := open(t, serve(t, store, httpapi.Options{}), httpapi.ClientOptions{})
	for _, d := range []time.Duration{0, 1, 290 * 365 * 24 * time.Hour} {
		before := time.Now()
		outcomes, err := c.Schedule(t.Context(), []dueq.Item{{Queue: "q", Task: dueq.Task{ID: "x"}, When: dueq.In(d)}})
		must(t, err)
		if o := outcomes[0]; o.Error() != nil || o.Due.Before(before.Add(d).Truncate(time.Millisecond)) {
			t.Errorf("in %v: got %v %v, %v", d, o.Status, o.Due, o.Err)
		}
	}
	for _, when := range []dueq.When{dueq.In(-1), dueq.In(math.MaxInt64), dueq.At(time.Time{}), dueq.At(time.Unix(1<<60, 0))} {
		outcomes, err := c.Schedule(t.Context(), []dueq.Item{{Queue: "q", Task: dueq.Task{ID: "y"}, When: when}})
		must(t, err)
		if o := outcomes[0]; o.Status != dueq.StatusRefused || !errors.Is(o.Err, dueq.ErrInvalid) {
			t.Errorf("%+v: got %v, %v; want refused", when, o.Status, o.Err)
		}
	}
}

func TestScopesAreThoseOfTheToken(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	token := func(name string, scopes ...httpapi.Scope) httpapi.Token {
		return httpapi.Token{Name: name, Hash: httpapi.HashToken(name + secret), Scopes: scopes, Queues: []string{"q"}}
	}
	address := serve(t, store, httpapi.Options{Tokens: []httpapi.Token{
		token("producer", httpapi.ScopePublish), token("worker", httpapi.ScopeConsume, httpapi.ScopeRead), token("admin", httpapi.ScopeAdmin),
	}})
	may := map[string][]string{
		"":         nil,
		"wrong":    nil,
		"producer": {"schedule"},
		"worker":   {"settle", "extend", "get", "list", "stats", "settings", "wake", "claim"},
		"admin":    {"schedule", "change", "settle", "extend", "get", "list", "stats", "settings", "wake", "claim"},
	}
	for name, allowed := range may {
		opts := httpapi.ClientOptions{}
		if name != "" {
			opts.Token = name + secret
		}
		for _, call := range calls(open(t, address, opts)) {
			err := call.run(t.Context())
			if slices.Contains(allowed, call.name) {
				must(t, err)
				continue
			}
			if err == nil || mayHaveHappened(err) || errors.Is(err, dueq.ErrUnavailable) || errors.Is(err, dueq.ErrInvalid) {
				t.Errorf("%s, %s: got %v, want that it is refused", name, call.name, err)
			}
			wantNoSecret(t, err)
		}
	}
}

func TestCheckTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	token := httpapi.Token{Name: "reader", Hash: httpapi.HashToken(secret), Scopes: []httpapi.Scope{httpapi.ScopeRead}, Queues: []string{"other"}}
	address := serve(t, memstore.New(memstore.Options{}), httpapi.Options{Tokens: []httpapi.Token{token}})
	another := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"info":{"title":"pets"}}`)
	}))
	t.Cleanup(another.Close)
	for _, c := range []struct{ address, token, want string }{
		{address, secret, ""},
		{address, "another", "Token missing or not valid"},
		{address, "", "Token missing or not valid"},
		{another.URL, secret, "pets"},
		{address + "/sub", secret, "No such path"},
	} {
		err := open(t, c.address, httpapi.ClientOptions{Token: c.token}).Check(t.Context())
		if c.want == "" && err != nil || c.want != "" && (err == nil || errors.Is(err, dueq.ErrUnavailable)) {
			t.Errorf("%+v: got %v", c, err)
		}
		t.Log(err)
		wantNoSecret(t, err)
	}
}

func TestCloseWaitsForCallsAndRefusesLaterOnes(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-answer
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, emptyClaim)
	}))
	t.Cleanup(s.Close)
	c, err := httpapi.Open(s.URL, httpapi.ClientOptions{Timeout: time.Minute})
	must(t, err)
	claimed := make(chan error, 1)
	go func() {
		_, err := c.Claim(context.Background(), dueq.ClaimRequest{Queue: "q"})
		claimed <- err
	}()
	<-asked
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	eventually(t, "refusing calls", func() bool {
		_, err := c.Settings(t.Context(), "no queue") // asks the server nothing
		return errors.Is(err, dueq.ErrClosed)
	})
	select {
	case err := <-closed:
		t.Errorf("Close returned %v with a call under way", err)
	default:
	}
	close(answer)
	if err := <-claimed; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	must(t, <-closed)
	must(t, c.Close())
	for _, call := range calls(c) {
		if err := call.run(t.Context()); !errors.Is(err, dueq.ErrClosed) || mayHaveHappened(err) {
			t.Errorf("%s after Close: got %v, want ErrClosed", call.name, err)
		}
	}
}
