package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dueq/dueq/httpapi"
	"github.com/dueq/dueq/internal/contract"
)

// access is who may do what: a request, and the status for each of columns.
type access struct{ operation, body, statuses string }

// columns are those who send requests: somebody without a token, with a wrong
// one, with a token of one scope for all queues, and with all scopes for the
// queue b, while the requests are about a1.
var columns = []string{"none", "wrong", "publish", "consume", "read", "admin", "other"}

const (
	onePlease = `{"id": "new", "delay_ms": 1000}`
	oneMember = `{"members": ["d"]}`
)

var accesses = []access{
	{"GET /livez", ``, "200 200 200 200 200 200 200"},
	{"GET /readyz", ``, "200 200 200 200 200 200 200"},
	{"GET /openapi.json", ``, "401 401 200 200 200 200 200"},
	{"GET /metrics", ``, "401 401 403 403 200 200 403"},

	{"POST /v1/queues/{queue}/tasks", onePlease, "401 401 201 403 403 201 403"},
	{"POST /v1/queues/{queue}/tasks/batch", `{"items": [` + onePlease + `]}`, "401 401 200 403 403 200 403"},
	{"PATCH /v1/queues/{queue}/tasks/{member}", `{"delay_ms": 5000}`, "401 401 200 403 403 200 403"},
	{"DELETE /v1/queues/{queue}/tasks/{member}", ``, "401 401 200 403 403 200 403"},
	{"DELETE /v1/queues/{queue}/tasks/r?running=true", ``, "401 401 200 403 403 200 403"},
	{"POST /v1/queues/{queue}/tasks/change", `{"op": "cancel", "targets": [{"member": "t"}]}`, "401 401 200 403 403 200 403"},
	{"POST /v1/queues/{queue}/tasks/change", `{"op": "stop", "targets": [{"member": "r"}]}`, "401 401 200 403 403 200 403"},
	{"POST /v1/queues/{queue}/tasks/change", `{"op": "reschedule", "targets": [{"member": "t", "delay_ms": 5000}]}`, "401 401 200 403 403 200 403"},
	{"POST /v1/queues/{queue}/tasks/change", `{"op": "requeue", "targets": [{"member": "d"}]}`, "401 401 403 403 403 200 403"},
	{"POST /v1/queues/{queue}/tasks/change", `{"op": "delete", "targets": [{"member": "d"}]}`, "401 401 403 403 403 200 403"},

	{"POST /v1/queues/{queue}/claim", `{"max": 10}`, "401 401 403 200 403 200 403"},
	{"POST /v1/queues/{queue}/settle", `{"results": [{"member": "r", "lease": "LEASE", "outcome": "ack"}]}`, "401 401 403 200 403 200 403"},
	{"POST /v1/queues/{queue}/extend", `{"leases": [{"member": "r", "lease": "LEASE"}], "lease_ms": 90000}`, "401 401 403 200 403 200 403"},

	{"GET /v1/queues/{queue}/tasks", ``, "401 401 403 403 200 200 403"},
	{"GET /v1/queues/{queue}/tasks?state=dead&limit=1", ``, "401 401 403 403 200 200 403"},
	{"GET /v1/queues/{queue}/tasks/{member}", ``, "401 401 403 403 200 200 403"},
	{"POST /v1/queues/{queue}/tasks/get", `{"members": ["t", "r", "d", "nobody"]}`, "401 401 403 403 200 200 403"},
	{"GET /v1/queues/{queue}/dead", ``, "401 401 403 403 200 200 403"},
	{"GET /v1/queues/{queue}/stats", ``, "401 401 403 403 200 200 403"},
	{"GET /v1/queues/{queue}/settings", ``, "401 401 403 403 200 200 403"},
	{"GET /v1/queues", ``, "401 401 403 403 200 200 200"}, // other sees its own
	{"GET /v1/queues?queue={queue}", ``, "401 401 403 403 200 200 403"},
	{"GET /v1/wake", ``, "401 401 403 403 200 200 200"},
	{"GET /v1/wake?queue={queue}", ``, "401 401 403 403 200 200 403"},

	{"PATCH /v1/queues/{queue}/settings", `{"retries": 5}`, "401 401 403 403 403 200 403"},
	{"POST /v1/queues/{queue}/pause", ``, "401 401 403 403 403 200 403"},
	{"POST /v1/queues/{queue}/resume", ``, "401 401 403 403 403 200 403"},
	{"POST /v1/queues/{queue}/dead/requeue", oneMember, "401 401 403 403 403 200 403"},
	{"POST /v1/queues/{queue}/dead/delete", oneMember, "401 401 403 403 403 200 403"},
}

// name is the operation's in the definition.
func (a access) name() string {
	method, rest, _ := strings.Cut(a.operation, " ")
	path, _, _ := strings.Cut(rest, "?")
	return method + " " + strings.Replace(path, "/tasks/r", "/tasks/{member}", 1)
}

func TestAccess_is_as_the_table_says(t *testing.T) {
	t.Parallel()
	c, _ := servedContract(t)
	rows := map[string]bool{}
	for _, a := range accesses {
		rows[a.name()] = true
		t.Run(a.operation+" "+a.body, func(t *testing.T) {
			t.Parallel()
			a.try(t, c)
		})
	}
	for _, operation := range c.Operations() {
		if !rows[operation] {
			t.Errorf("%s has no row in the table", operation)
		}
		delete(rows, operation)
	}
	for operation := range rows {
		t.Errorf("%s is no operation", operation)
	}
}

// try sends the request as each of columns. Refusals and GET change nothing;
// what does gets a site of its own.
func (a access) try(t *testing.T, c *contract.Contract, headers ...string) {
	t.Helper()
	reads := strings.HasPrefix(a.operation, "GET ") || strings.HasSuffix(a.operation, "/get")
	var s *site
	for i, want := range strings.Fields(a.statuses) {
		if s == nil {
			s = newSite(t, c, httpapi.Options{Tokens: callers}, nil)
		}
		before := s.contents()
		response, body := s.send(s.request(a.operation, a.body, append(headers, as(columns[i]))...))
		if got := fmt.Sprint(response.StatusCode); got != want {
			t.Errorf("%s: got %s, want %s: %s", columns[i], got, want, body)
		}
		if columns[i] == "other" && strings.Contains(body, `"queue":"a1"`) {
			t.Errorf("other sees a queue that it is not for: %s", body)
		}
		if reads || response.StatusCode >= 400 {
			s.unchanged(columns[i], before)
		} else {
			s = nil
		}
	}
}

// paths are those of the definition, with the methods that each takes when it is
// read as the server reads it: tasks/batch is a member to GET.
func paths(t *testing.T, c *contract.Contract) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, operation := range c.Operations() {
		_, path, _ := strings.Cut(operation, " ")
		if all[path] != nil {
			continue
		}
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			r, err := http.NewRequest(method, path, nil)
			must(t, err)
			if c.Operation(r) == "" {
				continue
			}
			if all[path] = append(all[path], method); method == "GET" {
				all[path] = append(all[path], "HEAD")
			}
		}
	}
	return all
}

func TestAccess_by_methods_that_a_path_does_not_have(t *testing.T) {
	t.Parallel()
	c, _ := servedContract(t)
	s := newSite(t, c, httpapi.Options{Tokens: callers}, nil)
	before, tried := s.contents(), 0
	for path, has := range paths(t, c) {
		allow := strings.Join(append(has, "OPTIONS"), ", ")
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PURGE", "get"} {
			if slices.Contains(has, method) {
				continue
			}
			for _, caller := range columns {
				tried++
				response, body := s.send(s.request(method+" "+path, "", as(caller), "X-HTTP-Method-Override: "+has[0]))
				if response.StatusCode != 405 || response.Header.Get("Allow") != allow {
					t.Errorf("%s %s of %s: got %d, Allow %s, want 405, %s: %s", method, path, caller, response.StatusCode, response.Header.Get("Allow"), allow, body)
				}
			}
		}
	}
	s.unchanged("a method that is none", before)
	if tried < 500 {
		t.Errorf("only %d were tried", tried)
	}
}

// tricks make another text of a path that a proxy or a router could read as it.
func tricks(path string) []string {
	end := strings.LastIndexByte(path, '/')
	front, last := path[:end], path[end+1:]
	all := []string{
		"/" + path, front + "//" + last, path + "/", path + "//", path + "/.", path + "/x/..",
		front + "/./" + last, front + "/%2e/" + last, front + "/x/../" + last, front + "/x/%2e%2e/" + last, front + "/x%2f..%2f" + last,
		path + "%2F", path + "%00", path + "%0a", path + ";x", path + "%3Bx", path + "%20", path + "/;x", strings.ToUpper(path),
		"/v1/queues/b/.." + path, "/v1/queues/b/%2e%2e" + path, "/v1/queues/b%2F.." + path, "/livez/.." + path, "/livez;" + path, "/livez%2F.." + path,
	}
	if end > 0 {
		all = append(all, front+"%2F"+last, front+"%5c"+last)
	}
	if strings.Contains(path, "a1") {
		all = append(all, strings.Replace(path, "a1", "b/../a1", 1), strings.Replace(path, "a1", "b%2F..%2Fa1", 1), strings.Replace(path, "a1", "b;/a1", 1),
			strings.Replace(path, "a1", "a1;x", 1), strings.Replace(path, "a1", "a1%00", 1), strings.Replace(path, "a1", "%2a", 1), strings.Replace(path, "a1", "", 1))
	}
	return all
}

// No such path leads anywhere, whoever asks; so it is never more than the plain
// one gives.
func TestAccess_by_tricks_with_paths(t *testing.T) {
	t.Parallel()
	for _, a := range accesses {
		t.Run(a.operation+" "+a.body, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil, httpapi.Options{Tokens: callers}, nil)
			before := s.contents()
			method, plain, _ := strings.Cut(s.plain(a), " ")
			path, query, _ := strings.Cut(plain, "?")
			for _, trick := range tricks(path) {
				for _, caller := range columns {
					response, body := s.send(s.request(method+" "+trick+"?"+query, a.body, as(caller)))
					if response.StatusCode < 400 {
						t.Errorf("%s %s of %s: got %d %s", method, trick, caller, response.StatusCode, body)
					}
				}
			}
			s.unchanged("a trick", before)
		})
	}
}

// plain is the request line of a row.
func (s *site) plain(a access) string {
	return strings.NewReplacer("{queue}", "a1", "{member}", "t").Replace(a.operation)
}

// What proxies and frameworks take for another method, path or caller means
// nothing.
func TestAccess_by_headers_that_override(t *testing.T) {
	t.Parallel()
	c, _ := servedContract(t)
	for _, a := range accesses {
		t.Run(a.operation+" "+a.body, func(t *testing.T) {
			t.Parallel()
			a.try(t, c, "X-HTTP-Method-Override: GET", "X-HTTP-Method: GET", "X-Method-Override: GET",
				"X-Original-URL: /livez", "X-Rewrite-URL: /livez", "X-Forwarded-Prefix: /livez", "X-Forwarded-For: 127.0.0.1",
				"X-Forwarded-User: admin", "Proxy-Authorization: Bearer admin", "Cookie: token=admin")
		})
	}
}
