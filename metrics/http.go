package metrics

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// httpBuckets reach beyond the longest poll of 20 s.
var httpBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 21, 60}

var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
	http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

func (m *Metrics) makeHTTP() {
	m.requests = counter("dueq_http_requests_total",
		"Requests answered, by route pattern, method and status.", "route", "method", "status")
	m.served = histogram("dueq_http_request_seconds",
		"How long requests took, long polls included.", httpBuckets, "route", "method")
	m.inFlight = prometheus.NewGauge(prometheus.GaugeOpts{Name: "dueq_http_requests_in_flight",
		Help: "Requests being answered now, waiting polls included."})
}

// HTTP counts the requests that next answers, by the pattern that a ServeMux
// notes in the request. Handlers before the mux that pass on a copy of the
// request must note the copy's pattern in theirs, or HTTP must come after them.
// What no pattern or only the pattern / fits is of the route other.
func (m *Metrics) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &answer{ResponseWriter: w}
		began, returned := time.Now(), false
		m.inFlight.Inc()
		defer func() {
			m.inFlight.Dec()
			if returned {
				answer.begin(http.StatusOK)
			} else {
				answer.begin(http.StatusInternalServerError) // a panic, on its way to the server
			}
			m.answered(routeOf(r.Pattern), methodOf(r.Method), answer.status, time.Since(began))
		}()
		next.ServeHTTP(answer, r)
		returned = true
	})
}

func (m *Metrics) answered(route, method string, status int, took time.Duration) {
	m.served.WithLabelValues(route, method).Observe(took.Seconds())
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
}

// routeOf cuts method and host off a pattern of ServeMux.
func routeOf(pattern string) string {
	_, path, _ := strings.Cut(pattern, "/")
	if path == "" {
		return other
	}
	return "/" + path
}

func methodOf(method string) string {
	if slices.Contains(methods, method) {
		return method
	}
	return other
}

// answer notes the status of a response.
type answer struct {
	http.ResponseWriter
	status int // zero before the header
}

func (a *answer) begin(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// WriteHeader notes the first status that is final.
func (a *answer) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		a.begin(status)
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(data []byte) (int, error) {
	a.begin(http.StatusOK)
	return a.ResponseWriter.Write(data)
}

// Flush is for handlers that ask for a Flusher.
func (a *answer) Flush() {
	a.begin(http.StatusOK)
	_ = http.NewResponseController(a.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
