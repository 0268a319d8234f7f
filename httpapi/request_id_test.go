package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dueq/dueq"
)

// requestLog is a log that a server writes while a test reads.
type requestLog struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *requestLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *requestLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// recorded sends one request through record, in the same goroutine, and returns
// the answer and what was logged as JSON.
func recorded(t *testing.T, r *http.Request, h http.HandlerFunc) (*httptest.ResponseRecorder, []map[string]any) {
	t.Helper()
	var log bytes.Buffer
	w := httptest.NewRecorder()
	record(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), h).ServeHTTP(w, r)
	var lines []map[string]any
	for d := json.NewDecoder(&log); ; {
		line := map[string]any{}
		if err := d.Decode(&line); err == io.EOF {
			return w, lines
		} else if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
}

func TestRequestIDIsTheClientsIfItIsHarmless(t *testing.T) {
	t.Parallel()
	made := regexp.MustCompile(`^[A-Z2-7]{26}$`)
	for id, taken := range map[string]bool{
		"a": true, "2f0c7a3e-1b.C_9": true, strings.Repeat("x", 64): true,
		"": false, strings.Repeat("x", 65): false, "a b": false, "a\nb": false, "a\x1b[2J": false, "é": false, `a"b`: false, "a/b": false, "a=b": false, "a\n": false, "a,b": false,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header[requestIDHeader] = []string{id}
		var inside string
		w, lines := recorded(t, r, func(w http.ResponseWriter, r *http.Request) {
			inside = requestID(r.Context())
			writeProblem(w, r, kindNoRoute.problem(""))
		})
		got := w.Header().Get(requestIDHeader)
		if (got == id) != taken || !taken && !made.MatchString(got) {
			t.Errorf("%q became %q", id, got)
		}
		var p Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.RequestID != got || inside != got || lines[0]["request_id"] != got {
			t.Errorf("header %q, problem %q, context %q, log %v, %v", got, p.RequestID, inside, lines[0]["request_id"], err)
		}
	}
}

func TestRequestIDIsMadeAnewForEachRequest(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, ids := range [][]string{nil, nil, {"a", "a"}, {"a", "b"}} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header[requestIDHeader] = ids
		w, _ := recorded(t, r, func(http.ResponseWriter, *http.Request) {})
		seen[w.Header().Get(requestIDHeader)] = true
	}
	if len(seen) != 4 || seen["a"] || seen["b"] || seen[""] {
		t.Errorf("four requests had the ids %v", seen)
	}
	if id := requestID(t.Context()); id != "" {
		t.Errorf("outside of a request the id is %q", id)
	}
}

func TestRequestIsOneLineWithoutSecrets(t *testing.T) {
	t.Parallel()
	g := gateOf(t, tokenOf("shop", ScopeRead))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/queues/{queue}/tasks", func(w http.ResponseWriter, r *http.Request) {
		if _, err := g.identify(r); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusCreated)
	})
	r := httptest.NewRequest("POST", "/v1/queues/hunter2/tasks?key=hunter2", strings.NewReader("hunter2"))
	r.Header.Set("Authorization", "Bearer shop-secret")
	r.Header.Set("Cookie", "hunter2")
	r.Header.Set(requestIDHeader, "r-1")
	r.RemoteAddr = "192.0.2.7:1234"
	_, lines := recorded(t, r, g.protect(mux).ServeHTTP)
	if len(lines) != 1 {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	line := lines[0]
	if took, ok := line["took"].(float64); !ok || took < 0 {
		t.Errorf("took %v", line["took"])
	}
	delete(line, "took")
	delete(line, "time")
	want := map[string]any{
		"level": "DEBUG", "msg": "request", "request_id": "r-1", "method": "POST", "route": "POST /v1/queues/{queue}/tasks",
		"status": 201.0, "token": "shop", "remote": "192.0.2.7",
	}
	if fmt.Sprint(line) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", line, want)
	}
}

func TestLevelSaysWhoseFaultItWas(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	cause := dueq.Unavailable(errors.New("dial tcp 10.1.2.3:6379"))
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		gone    bool // the client left
		level   string
		status  float64
		err     any
	}{
		"nothing written": {func(http.ResponseWriter, *http.Request) {}, false, "DEBUG", 200, nil},
		"written":         {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") }, false, "DEBUG", 200, nil},
		"hints first": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusAccepted)
		}, false, "DEBUG", 202, nil},
		"written twice":            {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204); w.WriteHeader(500) }, false, "DEBUG", 204, nil},
		"mistake":                  {func(w http.ResponseWriter, r *http.Request) { writeProblem(w, r, problemOf(dueq.ErrInvalid)) }, false, "DEBUG", 400, nil},
		"failure":                  {func(w http.ResponseWriter, r *http.Request) { writeProblem(w, r, problemOf(broken)) }, false, "ERROR", 500, broken.Error()},
		"outage":                   {func(w http.ResponseWriter, r *http.Request) { writeProblem(w, r, problemOf(cause)) }, false, "WARN", 503, cause.Error()},
		"failure nobody waits for": {func(w http.ResponseWriter, r *http.Request) { writeProblem(w, r, problemOf(cause)) }, true, "DEBUG", 503, cause.Error()},
		"no failure": {func(w http.ResponseWriter, r *http.Request) {
			writeProblem(w, r, kind{status: 503}.problem("stopping"))
		}, false, "DEBUG", 503, nil},
		"failure without a problem": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, false, "ERROR", 502, nil},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if tc.gone {
			ctx, cancel := context.WithCancel(r.Context())
			cancel()
			r = r.WithContext(ctx)
		}
		_, lines := recorded(t, r, tc.handler)
		if len(lines) != 1 || lines[0]["level"] != tc.level || lines[0]["status"] != tc.status || lines[0]["err"] != tc.err {
			t.Errorf("%s: %v", name, lines)
		}
	}
}

func TestPanicIsAnInternalErrorLoggedOnce(t *testing.T) {
	t.Parallel()
	for method, mayHaveHappened := range map[string]bool{"GET": false, "POST": true} {
		w, lines := recorded(t, httptest.NewRequest(method, "/", nil), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1")
			panic("hunter2")
		})
		var p Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		if w.Code != 500 || p.Type != typePrefix+"internal" || p.MayHaveHappened != mayHaveHappened || p.RequestID == "" || w.Header().Get("Content-Length") != "" {
			t.Errorf("%s: %d %v %s", method, w.Code, w.Header(), w.Body)
		}
		if strings.Contains(w.Body.String(), "hunter2") || strings.Contains(w.Body.String(), "goroutine") {
			t.Errorf("the client learns %s", w.Body)
		}
		if len(lines) != 1 || lines[0]["level"] != "ERROR" || lines[0]["err"] != "panic: hunter2" || !strings.Contains(fmt.Sprint(lines[0]["stack"]), "request_id_test.go") {
			t.Errorf("%s: logged %v", method, lines)
		}
	}
}

func TestAnswerThatBeganBeforeAPanicIsCutOff(t *testing.T) {
	t.Parallel()
	log := &requestLog{}
	s := httptest.NewUnstartedServer(record(slog.New(slog.NewTextHandler(log, nil)), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, `{"tasks":[`)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		panic("x")
	})))
	s.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(log, nil), slog.LevelError)
	s.Start()
	resp, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err == nil || string(body) != `{"tasks":[` {
		t.Errorf("the answer looks complete: %q, %v", body, err)
	}
	if _, err := http.Get(s.URL + "/abort"); err == nil {
		t.Error("an aborted request is answered")
	}
	s.Close() // waits for the handlers
	if n := strings.Count(log.String(), "stack="); n != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%d stacks: %s", n, log)
	}
}

const forgedLine = "x\nlevel=ERROR msg=forged\r\x1b[2J\u202e\x00"

func TestRequestsForgeNoLogLines(t *testing.T) {
	t.Parallel()
	options := &slog.HandlerOptions{Level: slog.LevelDebug}
	for name, handlerOf := range map[string]func(io.Writer) slog.Handler{
		"text": func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, options) },
		"JSON": func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, options) },
	} {
		g := gateOf(t, tokenOf("a", ScopeRead))
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v1/queues/{queue}/tasks/{member}", func(w http.ResponseWriter, r *http.Request) {
			switch r.PathValue("member") {
			case "panic":
				panic(forgedLine)
			case "fail":
				writeProblem(w, r, problemOf(dueq.Unavailable(errors.New(forgedLine))))
			default:
				writeProblem(w, r, problemOf(&dueq.FieldError{Field: forgedLine, Reason: forgedLine}))
			}
		})
		log := &requestLog{}
		handler := record(slog.New(handlerOf(log)), g.protect(mux))
		sent := 0
		for _, member := range []string{"panic", "fail", "mistake", "%0Alevel=ERROR%1B", "x%0D%0Ay"} {
			for _, method := range []string{"GET", "POST", "x\nforged"} {
				r := httptest.NewRequest("GET", "/v1/queues/q/tasks/"+member, nil)
				r.Method = method // no real server lets it in; one more defence
				for _, header := range []string{"User-Agent", "Authorization", "Referer", "Cookie", "X-Forwarded-For", requestIDHeader} {
					r.Header[http.CanonicalHeaderKey(header)] = []string{forgedLine}
				}
				r.Host, r.RemoteAddr = forgedLine, forgedLine
				handler.ServeHTTP(httptest.NewRecorder(), r)
				sent++
			}
		}
		lines := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
		if len(lines) != sent {
			t.Errorf("%s: %d requests, %d lines", name, sent, len(lines))
		}
		for _, line := range lines {
			if strings.ContainsAny(line, "\r\x1b\x00") || name == "text" && (!strings.HasPrefix(line, "time=") || strings.Contains(line, "\u202e")) {
				t.Errorf("%s: %q", name, line)
			}
			if name == "JSON" && !json.Valid([]byte(line)) {
				t.Errorf("%q is not JSON", line)
			}
		}
	}
}

func TestRecordedAnswersCanBeStreamed(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	s := httptest.NewServer(record(slog.New(slog.DiscardHandler), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "first")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-goOn
	})))
	defer s.Close()
	defer close(goOn)
	resp, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first" {
		t.Errorf("%q, %v", first, err)
	}
}

func TestOutagesAreLoggedOnceInAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		fail := errors.New("broken")
		handler := record(slog.New(slog.NewTextHandler(&log, nil)), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			writeProblem(w, r, problemOf(fail))
		}))
		send := func(n int, err error) string {
			log.Reset()
			fail = err
			for range n {
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			}
			return log.String()
		}
		away := dueq.Unavailable(errors.New("refused"))
		if got := send(100, away); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "refused") {
			t.Errorf("of 100 in an outage: %s", got)
		}
		if got := send(3, errors.New("broken")); strings.Count(got, "level=ERROR") != 3 {
			t.Errorf("of 3 that are a mistake of ours: %s", got)
		}
		time.Sleep(11 * time.Second)
		if got := send(100, away); strings.Count(got, "\n") != 1 {
			t.Errorf("of 100 later in the outage: %s", got)
		}
	})
}
