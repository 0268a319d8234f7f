package contract

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const definition = `
openapi: 3.1.0
info: {title: test, version: "1"}
paths:
  /things/{name}:
    parameters: [{name: name, in: path, required: true, schema: {type: string}}]
    post:
      requestBody: {required: true, content: {application/json: {schema: {type: object, required: [n], properties: {n: {type: integer}}}}}}
      responses:
        "200": {description: OK, content: {application/json: {schema: {type: object, required: [ok], properties: {ok: {type: boolean}}}}}}
        "400": {description: refused, content: {application/problem+json: {schema: {type: object}}}}
  /events:
    get: {responses: {"200": {description: OK, content: {text/event-stream: {schema: {type: string}}}}}}
`

// failures is a test that only remembers whether it failed.
type failures struct {
	testing.TB
	texts []string
}

func (f *failures) Errorf(format string, args ...any) {
	f.texts = append(f.texts, fmt.Sprintf(format, args...))
}

// exchange sends a request through the contract's transport to a server that
// answers so, and returns what failed.
func exchange(t *testing.T, c *Contract, request, sent, media string, status int, body string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", media)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	if sent != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	fails := &failures{TB: t}
	client := http.Client{Transport: c.Transport(fails, server.Client().Transport)}
	defer client.CloseIdleConnections()
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got, err := io.ReadAll(response.Body); err != nil || string(got) != body {
		t.Errorf("the client got %q, %v, want %q", got, err, body)
	}
	return strings.Join(fails.texts, "\n")
}

func TestContract_tells_what_breaks_it(t *testing.T) {
	t.Parallel()
	const jsonMedia, problem = "application/json", "application/problem+json"
	for name, test := range map[string]struct {
		request, sent, media string
		status               int
		body, want           string
	}{
		"nothing":                           {"POST /things/a", `{"n":1}`, jsonMedia, 200, `{"ok":true}`, ""},
		"nothing, slash in a name":          {"POST /things/a%2Fb", `{"n":1}`, jsonMedia, 200, `{"ok":true}`, ""},
		"a wrong body":                      {"POST /things/a", `{"n":1}`, jsonMedia, 200, `{"ok":1}`, "want boolean"},
		"a missing field":                   {"POST /things/a", `{"n":1}`, jsonMedia, 200, `{}`, "ok"},
		"an unknown status":                 {"POST /things/a", `{"n":1}`, problem, 409, `{}`, "does not document 409"},
		"a wrong media type":                {"POST /things/a", `{"n":1}`, "text/html", 200, `{"ok":true}`, "text/html"},
		"no problem":                        {"POST /things/a", `{"n":1}`, jsonMedia, 400, `{}`, "not a problem"},
		"a request that it accepts":         {"POST /things/a", `{"n":"1"}`, jsonMedia, 200, `{"ok":true}`, "want integer"},
		"a request that it refuses in part": {"POST /things/a", `{"n":"1"}`, jsonMedia, 200, `{"ok":true,"results":[{"status":"refused"}]}`, ""},
		"a request that it refuses":         {"POST /things/a", `{"n":"1"}`, problem, 400, `{}`, ""},
		"no problem where nothing is":       {"GET /other", "", "text/plain", 404, "404", "not a problem"},
		"nothing where nothing is":          {"GET /other", "", problem, 404, "{}", ""},
		"nothing of a stream":               {"GET /events", "", "text/event-stream", 200, ": open\n\n", ""},
		"nothing of an answer to HEAD":      {"HEAD /events", "", "text/event-stream", 200, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := Parse([]byte(definition))
			if err != nil {
				t.Fatal(err)
			}
			got := exchange(t, c, test.request, test.sent, test.media, test.status, test.body)
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestContract_knows_what_has_not_occurred(t *testing.T) {
	t.Parallel()
	c, err := Parse([]byte(definition))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ValidateDefinition(); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(c.Missing()); got != "[GET /events 200 POST /things/{name} 200 POST /things/{name} 400]" || got != fmt.Sprint(c.Answers()) {
		t.Errorf("got %s", got)
	}
	exchange(t, c, "POST /things/a", "{}", "application/problem+json", 400, "{}")
	exchange(t, c, "GET /events", "", "text/event-stream", 200, "")
	if got := fmt.Sprint(c.Missing()); got != "[POST /things/{name} 200]" {
		t.Errorf("got %s", got)
	}
	if got := fmt.Sprint(c.Operations()); got != "[GET /events POST /things/{name}]" {
		t.Errorf("got %s", got)
	}
}
