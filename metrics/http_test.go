package metrics_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq/metrics"
)

// routes is a small API.
func routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/queues/{queue}/tasks/{member}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.PathValue("member"))
	})
	mux.HandleFunc("POST /v1/queues/{queue}/tasks", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusCreated)
		w.WriteHeader(http.StatusTeapot) // too late
	})
	mux.HandleFunc("example.org/host", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("GET /late-panic", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("GET /{$}", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// hiding passes on a copy of each request, as whatever sets a context does.
func hiding(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "wrong" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(r.Context()))
	})
}

// noting passes on a copy and notes its pattern.
func noting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		passed := r.WithContext(r.Context())
		defer func() { r.Pattern = passed.Pattern }()
		next.ServeHTTP(w, passed)
	})
}

func ask(h http.Handler, method, url string, header ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, url, nil)
	if len(header) > 0 {
		r.Header.Set("Authorization", header[0])
	}
	defer func() { _ = recover() }()
	h.ServeHTTP(w, r)
	return w
}

func TestHTTPCountsRequestsByRouteMethodAndStatus(t *testing.T) {
	t.Parallel()
	outer := http.NewServeMux()
	outer.Handle("/", routes())
	for name, handler := range map[string]http.Handler{
		"a mux": routes(), "a mux in another": outer, "a handler before it": noting(routes()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := metrics.New(nil, metrics.Options{})
			h := m.HTTP(handler)
			for i := range 7 {
				if got := ask(h, "GET", fmt.Sprint("/v1/queues/q/tasks/order_", i)).Body.String(); got != fmt.Sprint("order_", i) {
					t.Errorf("the answer is %q", got)
				}
			}
			ask(h, "POST", "/v1/queues/r/tasks")
			ask(h, "HEAD", "/v1/queues/q/tasks/x")
			ask(h, "PURGE", "/v1/queues/q/tasks/x")
			ask(h, "GET", "http://example.org/host")
			ask(h, "GET", "/")
			ask(h, "GET", "/panic")
			ask(h, "GET", "/late-panic")
			p := scrape(t, m)
			want := page{
				`dueq_http_requests_total{method="GET",route="/v1/queues/{queue}/tasks/{member}",status="200"}`:  7,
				`dueq_http_requests_total{method="HEAD",route="/v1/queues/{queue}/tasks/{member}",status="200"}`: 1,
				`dueq_http_requests_total{method="POST",route="/v1/queues/{queue}/tasks",status="201"}`:          1,
				`dueq_http_requests_total{method="other",route="other",status="405"}`:                            1,
				`dueq_http_requests_total{method="GET",route="/{$}",status="200"}`:                               1,
				`dueq_http_requests_total{method="GET",route="/host",status="200"}`:                              1,
				`dueq_http_requests_total{method="GET",route="/panic",status="500"}`:                             1,
				`dueq_http_requests_total{method="GET",route="/late-panic",status="202"}`:                        1,
			}
			p.want(t, want)
			if got := p.within("dueq_http_requests_total"); len(got) != len(want) {
				t.Errorf("there is more: %v", got)
			}
			p.want(t, page{
				`dueq_http_request_seconds_count{method="GET",route="/v1/queues/{queue}/tasks/{member}"}`: 7,
				`dueq_http_requests_in_flight`: 0,
			})
		})
	}
}

func TestHTTPCountsWhatNeverReachesARoute(t *testing.T) {
	t.Parallel()
	m := metrics.New(nil, metrics.Options{})
	ask(m.HTTP(hiding(routes())), "GET", "/v1/queues/q/tasks/x")
	ask(m.HTTP(hiding(routes())), "GET", "/v1/queues/q/tasks/x", "wrong")
	scrape(t, m).want(t, page{
		`dueq_http_requests_total{method="GET",route="other",status="200"}`: 1,
		`dueq_http_requests_total{method="GET",route="other",status="401"}`: 1,
	})
}

// Long polls and streams of events are requests in flight, and are not held
// up.
func TestHTTPLetsStreamsThroughAndCountsThemInFlight(t *testing.T) {
	t.Parallel()
	m := metrics.New(nil, metrics.Options{})
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/wake", func(w http.ResponseWriter, r *http.Request) {
		flusher, ok := w.(http.Flusher)
		if !ok {
			t.Error("the writer is no Flusher")
			return
		}
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Errorf("a deadline for writing: %v", err)
		}
		fmt.Fprintln(w, "first")
		flusher.Flush()
		<-release
		fmt.Fprintln(w, "second")
	})
	server := httptest.NewServer(m.HTTP(mux))
	defer server.Close()
	answer, err := server.Client().Get(server.URL + "/v1/wake")
	must(t, err)
	defer answer.Body.Close()
	first := make([]byte, len("first\n"))
	_, err = io.ReadFull(answer.Body, first)
	must(t, err)
	scrape(t, m).want(t, page{`dueq_http_requests_in_flight`: 1})
	close(release)
	rest, err := io.ReadAll(answer.Body)
	must(t, err)
	if text := string(first) + string(rest); strings.Join(strings.Fields(text), " ") != "first second" {
		t.Errorf("the stream is %q", text)
	}
	eventually(t, "the request has ended", func() bool { return scrape(t, m)[`dueq_http_requests_in_flight`] == 0 })
	scrape(t, m).want(t, page{`dueq_http_requests_total{method="GET",route="/v1/wake",status="200"}`: 1})
}
