package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq/internal/contract"
)

// httpDoc are the blocks of docs/http.md, each "language\ntext".
func httpDoc(t *testing.T) (text string, blocks []string) {
	t.Helper()
	data, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]*\n.*?)^```$").FindAllStringSubmatch(string(data), -1) {
		blocks = append(blocks, m[1])
	}
	return string(data), blocks
}

// walk is somebody who follows the page in a shell, from its first block on.
type walk struct {
	*testing.T
	dir    string
	setUp  string // what every shell begins with
	server *served
	url    string // of what passes requests on and holds them against the contract
	held   map[string]string
}

const documentedURL = "http://127.0.0.1:8080"

// walkFrom runs the page's first block, whose last line serves.
func walkFrom(t *testing.T, first string) *walk {
	t.Helper()
	w := &walk{T: t, dir: t.TempDir(), held: map[string]string{}}
	prepares, serves, ok := strings.Cut(strings.TrimPrefix(first, "sh\n"), "dueq serve ")
	if !ok || strings.TrimSpace(serves) != "--config dueq.yaml" {
		t.Fatalf("the page does not begin with a server: %s", first)
	}
	w.shell(prepares)
	for line := range strings.Lines(prepares) {
		if strings.HasPrefix(line, "export ") || strings.HasPrefix(line, "auth=") {
			w.setUp += line
		}
	}
	w.setUp += "curl() { command curl -sS --max-time 60 -w '\\n%{http_code}\\n' \"$@\"; }\n"
	c := onRedis(t)
	w.server = c.ready(t, "--config", filepath.Join(w.dir, "dueq.yaml"))
	w.url = w.server.urls[0]
	return w
}

// shell runs commands and returns what they print.
func (w *walk) shell(commands string) string {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", w.setUp+strings.ReplaceAll(commands, documentedURL, w.url))
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary(w.T))+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.Fatalf("%s: %v: %s", commands, err, out)
	}
	return string(out)
}

// curl runs the commands of a block one by one, and returns status and body of
// the last. Leases and cursors are remembered for those that come after.
func (w *walk) curl(block string) (status, body string) {
	w.Helper()
	for _, command := range regexp.MustCompile(`\n(curl )`).Split(block, -1) {
		if !strings.Contains(command, "curl ") {
			command = "curl " + command
		}
		for name, value := range w.held {
			command = strings.ReplaceAll(command, name, value)
		}
		lines := strings.Split(strings.TrimSpace(w.shell(command)), "\n")
		status, body = lines[len(lines)-1], strings.Join(lines[:len(lines)-1], "\n")
		for name, field := range map[string]string{"LEASE": "lease", "CURSOR": "cursor"} {
			if m := regexp.MustCompile(`"` + field + `":"([^"]+)"`).FindStringSubmatch(body); m != nil {
				w.held[name] = m[1]
			}
		}
	}
	return status, body
}

// anyValue stands for a value, or as a name for more fields.
const anyValue = "…"

// differs says where got is not as the page has it, or nothing.
func differs(want, got any, at string) string {
	switch want := want.(type) {
	case string:
		if want == anyValue && got != nil {
			return ""
		}
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return fmt.Sprintf("%s is %v, want %v", at, got, want)
		}
		for i := range want {
			if text := differs(want[i], list[i], fmt.Sprintf("%s[%d]", at, i)); text != "" {
				return text
			}
		}
		return ""
	case map[string]any:
		fields, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s is %v, want %v", at, got, want)
		}
		return differsIn(want, fields, at)
	}
	if !reflect.DeepEqual(want, got) {
		return fmt.Sprintf("%s is %v, want %v", at, got, want)
	}
	return ""
}

func differsIn(want, got map[string]any, at string) string {
	for name, value := range want {
		if name == anyValue {
			continue
		}
		field, ok := got[name]
		if !ok {
			return fmt.Sprintf("%s has no %s", at, name)
		}
		if text := differs(value, field, at+"."+name); text != "" {
			return text
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok && want[anyValue] == nil {
			return fmt.Sprintf("%s has %s, which the page does not show", at, name)
		}
	}
	return ""
}

// TestHTTPDocWalkThrough does what docs/http.md says, in its order, with a real
// server on a real Redis, and holds every answer against what the page shows and
// against the definition.
func TestHTTPDocWalkThrough(t *testing.T) {
	t.Parallel()
	_, blocks := httpDoc(t)
	w := walkFrom(t, blocks[0])
	w.checked()
	shown := 0
	for i, block := range blocks[1:] {
		if !strings.HasPrefix(block, "sh\n") {
			continue
		}
		status, body := w.curl(strings.TrimPrefix(block, "sh\n"))
		wantStatus, wantBody, _ := strings.Cut(strings.TrimPrefix(blocks[i+2], "http\n"), "\n")
		var want, got any
		if err := json.Unmarshal([]byte(wantBody), &want); err != nil {
			t.Fatalf("the page is not JSON: %s", blocks[i+2])
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatalf("%s: %s: %v", block, body, err)
		}
		if text := differs(want, got, "the answer"); text != "" || status != wantStatus {
			t.Fatalf("%s: got %s %s\nwant %s: %s", block, status, body, wantStatus, text)
		}
		shown++
	}
	if shown < 20 {
		t.Errorf("only %d examples were found", shown)
	}
	w.server.stop(t)
}

// checked puts a proxy between curl and the server that holds answers against
// the definition.
func (w *walk) checked() {
	w.Helper()
	token := strings.TrimSpace(w.shell("head -n 1 token.txt"))
	text := w.server.call(w.T, "GET /openapi.json", "", "Authorization: Bearer "+token).must(w.T, 200).body
	c, err := contract.Parse([]byte(text))
	if err != nil {
		w.Fatal(err)
	}
	w.proxy(c.Transport(w.T, http.DefaultTransport), nil)
}

// proxy puts one in front of the server; before is called first, and reports
// that it has answered.
func (w *walk) proxy(transport http.RoundTripper, before func(http.ResponseWriter, *http.Request) bool) {
	target, err := url.Parse(w.server.urls[0])
	if err != nil {
		w.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	proxy.ErrorLog = log.New(io.Discard, "", 0) // a worker that is killed leaves while it waits
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // of one that left it is nobody's
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		r.Body, _ = r.GetBody()
		if before == nil || !before(rw, r) {
			proxy.ServeHTTP(rw, r)
		}
	}))
	w.Cleanup(server.Close)
	w.url = server.URL
}

// TestHTTPDocWorkers runs the workers of the page against a server that is away
// for the first calls, with a task that takes longer than its lease.
func TestHTTPDocWorkers(t *testing.T) {
	t.Parallel()
	_, blocks := httpDoc(t)
	for _, worker := range []struct{ language, file, handles, slow, lease, short string }{
		{"python", "worker.py", `print("closing", task["id"], flush=True)`, `; time.sleep(4 if task["id"] == "slow" else 0)`, "LEASE_MS = 30_000", "LEASE_MS = 1_000"},
		{"java", "Worker.java", `System.out.println("closing " + id);`, ` Thread.sleep(id.equals("\"slow\"") ? 4000 : 0);`, "LEASE_MS = 30_000", "LEASE_MS = 1_000"},
	} {
		t.Run(worker.language, func(t *testing.T) {
			t.Parallel()
			program := map[string]string{"python": "python3", "java": "java"}[worker.language]
			if _, err := exec.LookPath(program); err != nil {
				t.Fatalf("%v: scripts/test installs it", err)
			}
			i := slices.IndexFunc(blocks, func(b string) bool { return strings.HasPrefix(b, worker.language+"\n") })
			code := strings.TrimPrefix(blocks[i], worker.language+"\n")
			for _, part := range []string{worker.handles, worker.lease} {
				if strings.Count(code, part) != 1 {
					t.Fatalf("the page has not one %s", part)
				}
			}
			code = strings.Replace(code, worker.handles, worker.handles+worker.slow, 1)
			code = strings.Replace(code, worker.lease, worker.short, 1)
			workThrough(t, blocks[0], program, worker.file, code)
		})
	}
}

func workThrough(t *testing.T, first, program, file, code string) {
	t.Helper()
	w := walkFrom(t, first)
	var refused atomic.Int64
	w.proxy(http.DefaultTransport, func(rw http.ResponseWriter, _ *http.Request) bool {
		if refused.Add(1) > 2 {
			return false
		}
		rw.Header().Set("Retry-After", "1")
		http.Error(rw, "no backend", http.StatusServiceUnavailable)
		return true
	})
	if err := os.WriteFile(filepath.Join(w.dir, file), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(w.shell("head -n 1 token.txt"))
	cmd := exec.Command(program, file)
	cmd.Dir, cmd.Env = w.dir, append(os.Environ(), "DUEQ_URL="+w.url, "DUEQ_TOKEN="+token)
	var out lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	auth := "Authorization: Bearer " + token
	w.server.call(t, "POST /v1/queues/order:close/tasks/batch", `{"items": [{"id": "slow", "delay_ms": 0}, {"id": "é\"x", "delay_ms": 0}, {"id": "o\"1", "kind": "pay_timeout", "delay_ms": 100}]}`, auth).must(t, 200)
	var stats string
	eventually(t, func() bool {
		stats = w.server.call(t, "GET /v1/queues/order:close/stats", "", auth).must(t, 200).body
		return strings.Contains(stats, `"acked":3`)
	})
	if !strings.Contains(stats, `"claimed":3,`) || !strings.Contains(stats, `"ended":0,`) {
		t.Errorf("a lease ended, or a task ran twice: %s\n%s", stats, out.String())
	}
	if refused.Load() < 3 || !strings.Contains(out.String(), "closing") {
		t.Errorf("%d calls, printed %s", refused.Load(), out.String())
	}
}

// TestHTTPDocRoutes compares what the page names with what there is.
func TestHTTPDocRoutes(t *testing.T) {
	t.Parallel()
	text, _ := httpDoc(t)
	s := inMemory().ready(t)
	c, err := contract.Parse([]byte(s.call(t, "GET /openapi.json", "").must(t, 200).body))
	if err != nil {
		t.Fatal(err)
	}
	named := documentedRoutes(t, c, text)
	for _, operation := range c.Operations() {
		if !named[operation] {
			t.Errorf("docs/http.md does not show %s", operation)
		}
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(documentedRoutes(t, c, string(readme))) < 2 {
		t.Error("README.md shows no calls")
	}
	s.stop(t)
}

var (
	namedRoute = regexp.MustCompile("`(GET|POST|PATCH|DELETE) (/[^`?]*)`")
	curlRoute  = regexp.MustCompile(`curl (.*?)'?http://127\.0\.0\.1:8080(/[^\s'?]*)(.*)`)
)

// documentedRoutes are the operations that a text names or calls, all of which
// must be there.
func documentedRoutes(t *testing.T, c *contract.Contract, text string) map[string]bool {
	t.Helper()
	named := map[string]bool{}
	note := func(method, path string) {
		r, err := http.NewRequest(method, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		operation := c.Operation(r)
		if named[operation] = true; operation == "" {
			t.Errorf("there is no %s %s", method, path)
		}
	}
	for _, m := range namedRoute.FindAllStringSubmatch(text, -1) {
		note(m[1], m[2])
	}
	for _, m := range curlRoute.FindAllStringSubmatch(strings.ReplaceAll(text, "\\\n", " "), -1) {
		args := m[1] + m[3]
		method := "GET"
		if x := regexp.MustCompile(`-X (\w+)`).FindStringSubmatch(args); x != nil {
			method = x[1]
		} else if strings.Contains(args, "--json") || strings.Contains(args, "-d ") {
			method = "POST"
		}
		note(method, m[2])
	}
	return named
}
