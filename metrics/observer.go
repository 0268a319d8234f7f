package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dueq/dueq"
)

// Buckets in seconds, dense around the goals: scans under 10 ms, drift of
// single-digit milliseconds.
var (
	scanBuckets    = []float64{.00025, .0005, .001, .002, .003, .005, .0075, .01, .015, .025, .05, .1, .25, .5, 1, 2.5}
	lateBuckets    = []float64{.0005, .001, .002, .003, .005, .0075, .01, .025, .05, .1, .25, .5, 1, 5, 30, 300, 3600}
	handlerBuckets = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 3, 10, 30, 60, 300}
)

// verdicts are the outcomes of runs.
var verdicts = [...]dueq.Verdict{dueq.VerdictAck, dueq.VerdictRetry, dueq.VerdictAgain, dueq.VerdictRelease, dueq.VerdictDead}

// series is what is counted of the work on one queue, looked up once.
type series struct {
	age, drift, handler    prometheus.Observer
	runs                   [len(verdicts)]prometheus.Counter // by verdict
	dropped, lost, ignored prometheus.Counter
}

func (m *Metrics) makeWork() {
	m.scan = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "dueq_scan_latency_seconds",
		Help: "How long calls took that claim or forward what is due, failed ones included.", Buckets: scanBuckets})
	m.age = histogram("dueq_task_age_seconds",
		"From due to claimed, by the store's clock.", lateBuckets, "queue")
	m.drift = histogram("dueq_score_drift_seconds",
		"From due to the start of the handler.", lateBuckets, "queue")
	m.handler = histogram("dueq_handler_seconds",
		"How long handlers ran.", handlerBuckets, "queue")
	m.runs = counter("dueq_runs_total",
		"Runs that ended, by what their handlers or consumers said.", "queue", "outcome")
	m.rejected = counter(rejectedName, rejectedHelp, "queue", "reason")
	m.lost = counter("dueq_leases_lost_total",
		"Deliveries whose lease was lost before they were settled.", "queue")
	m.ignored = counter("dueq_deadlines_ignored_total",
		"Runs that went on after their deadline and a second.", "queue")
}

func (m *Metrics) seriesOf(label string) *series {
	s := &series{
		age:     m.age.WithLabelValues(label),
		drift:   m.drift.WithLabelValues(label),
		handler: m.handler.WithLabelValues(label),
		dropped: m.rejected.WithLabelValues(label, reasonDropped),
		lost:    m.lost.WithLabelValues(label),
		ignored: m.ignored.WithLabelValues(label),
	}
	for _, verdict := range verdicts {
		s.runs[verdict] = m.runs.WithLabelValues(label, verdict.String())
	}
	return s
}

func (m *Metrics) of(queue string) *series { return m.names.of(queue).series() }

// Observer returns what to give to Workers, as many as there are, so that what
// they do is counted. Its functions take no locks.
func (m *Metrics) Observer() dueq.Observer {
	return dueq.Observer{
		Call:    m.called,
		Claimed: m.claimed,
		Started: func(t *dueq.Task, drift time.Duration) { m.of(t.Queue).drift.Observe(drift.Seconds()) },
		Ended:   m.ended,
		Settled: func(t *dueq.Task, o dueq.Outcome) { m.settled(t.Queue, o) },
		Dropped: m.droppedTask,
		Overran: func(t *dueq.Task) { m.of(t.Queue).ignored.Inc() },
	}
}

// called counts the calls that take what is due, Wrap counts all.
func (m *Metrics) called(op, _ string, _ int, took time.Duration, _ error) {
	if op == "claim" || op == "forward" {
		m.scan.Observe(took.Seconds())
	}
}

func (m *Metrics) claimed(queue string, c dueq.Claim) {
	if len(c.Tasks) == 0 {
		return
	}
	age := m.of(queue).age
	for _, t := range c.Tasks {
		age.Observe(t.Age.Seconds())
	}
}

func (m *Metrics) ended(t *dueq.Task, v dueq.Verdict, took time.Duration, _ error) {
	s := m.of(t.Queue)
	s.handler.Observe(took.Seconds())
	s.runs[v].Inc()
}

func (m *Metrics) settled(queue string, o dueq.Outcome) {
	if o.Status == dueq.StatusLeaseLost {
		m.of(queue).lost.Inc()
	}
}

func (m *Metrics) droppedTask(t *dueq.Task) {
	s := m.of(t.Queue)
	s.dropped.Inc()
	s.lost.Inc()
}
