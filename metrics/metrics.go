// Package metrics tells Prometheus what queues, workers, stores and an HTTP
// server do. Nothing is registered globally.
//
// [Metrics.Observer] watches a Worker, [Metrics.Wrap] a store,
// [Metrics.HTTP] a server, and the state of all queues is read from the store
// when somebody scrapes. [Metrics.Handler] is what to scrape; who has a
// registry of their own registers Metrics there.
//
// docs/metrics.md lists every metric.
package metrics

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dueq/dueq"
)

// Defaults and bounds of Options.
const (
	defaultQueues  = 200
	maxQueues      = 100_000
	defaultTimeout = 2 * time.Second
)

// Options configure Metrics.
type Options struct {
	// Queues is how many queues have series of their own, 1 to 100,000; the
	// queues seen after them share the label other. Defaults to 200.
	Queues int
	// Timeout is how long a scrape waits for the store. Keep it below the
	// timeout of who scrapes. Defaults to 2 s.
	Timeout time.Duration
	// Version is what dueq_build_info says. Defaults to the version of the
	// module in the running binary.
	Version string
}

func (o Options) withDefaults() Options {
	if o.Queues == 0 {
		o.Queues = defaultQueues
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Version == "" {
		o.Version = moduleVersion()
	}
	return o
}

func (o Options) validate() error {
	if o.Queues < 1 || o.Queues > maxQueues {
		return fmt.Errorf("Options.Queues %d is not 1 to %d", o.Queues, maxQueues)
	}
	if o.Timeout < 0 {
		return fmt.Errorf("Options.Timeout %v is negative", o.Timeout)
	}
	return nil
}

// Metrics is the metrics of one process, and a [prometheus.Collector] of them.
// It is safe for concurrent use and starts no goroutines.
type Metrics struct {
	registry *prometheus.Registry
	names    *names
	state    *state // nil without a store
	info     prometheus.Metric

	scan     prometheus.Histogram
	age      *prometheus.HistogramVec // queue
	drift    *prometheus.HistogramVec // queue
	handler  *prometheus.HistogramVec // queue
	runs     *prometheus.CounterVec   // queue, outcome
	rejected *prometheus.CounterVec   // queue, reason
	lost     *prometheus.CounterVec   // queue
	ignored  *prometheus.CounterVec   // queue

	calls  *prometheus.HistogramVec // op
	errors *prometheus.CounterVec   // op, error

	requests *prometheus.CounterVec   // route, method, status
	served   *prometheus.HistogramVec // route, method
	inFlight prometheus.Gauge
}

// New returns the metrics of a process that works on store, which stays the
// caller's to close. With a nil store they say nothing of the queues' state:
// enough for one of many workers, when another process tells it.
//
// It panics if an option is out of bounds.
func New(store dueq.Store, opts Options) *Metrics {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		panic("metrics: " + err.Error())
	}
	m := &Metrics{registry: prometheus.NewRegistry(), info: buildInfo(opts.Version)}
	m.makeWork()
	m.makeCalls()
	m.makeHTTP()
	m.names = newNames(opts.Queues, m.seriesOf)
	if store != nil {
		m.state = newState(m.Wrap(store), m.names, opts.Timeout)
	}
	m.registry.MustRegister(m,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector())
	return m
}

// Registry returns the registry behind Handler, for more collectors. It has
// Metrics and those of the Go runtime, the process and the build.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Handler serves the registry in the text format. It answers 200 with the rest
// while the store is away.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- m.info.Desc()
	for _, c := range m.collectors() {
		c.Describe(descs)
	}
	if m.state != nil {
		describeState(descs)
	}
}

// Collect implements prometheus.Collector. It reads the state of the queues
// from the store, at most once a second.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	out <- m.info
	for _, c := range m.collectors() {
		c.Collect(out)
	}
	if m.state != nil {
		for _, metric := range m.state.metrics() {
			out <- metric
		}
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.scan, m.age, m.drift, m.handler, m.runs, m.rejected, m.lost, m.ignored,
		m.calls, m.errors,
		m.requests, m.served, m.inFlight,
	}
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}
