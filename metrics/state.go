package metrics

import (
	"context"
	"reflect"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dueq/dueq"
)

// statsEvery is how often the store is asked at most, however many scrape.
const statsEvery = time.Second

var (
	upDesc         = prometheus.NewDesc("dueq_store_up", "Whether the store told the state of its queues: 1 or 0.", nil, nil)
	unreadableDesc = prometheus.NewDesc("dueq_unreadable_queues", "Queues whose state could not be read though the store is up.", nil, nil)
	tasksDesc      = queueDesc("dueq_tasks", "Tasks, by state; scheduled ones due or not.", "state")
	overdueDesc    = queueDesc("dueq_overdue_tasks", "Scheduled tasks that are due, all of them.")
	oldestDesc     = queueDesc("dueq_oldest_overdue_age_seconds", "Since the earliest overdue task came due; 0 without one.")
	lastDesc       = queueDesc("dueq_last_claim_timestamp_seconds", "When anybody last claimed, by the store's clock; missing if never.")
	pausedDesc     = queueDesc("dueq_queue_paused", "Whether the queue is paused: 1 or 0; how many of them, for other.")
	eventsDesc     = queueDesc("dueq_task_events_total", "What happened to tasks since the queue began, in all processes.", "event")
	rejectedDesc   = queueDesc(rejectedName, rejectedHelp, "reason")
)

func queueDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"queue"}, labels...), nil)
}

func describeState(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{upDesc, unreadableDesc, tasksDesc, overdueDesc, oldestDesc, lastDesc, pausedDesc, eventsDesc, rejectedDesc} {
		descs <- desc
	}
}

// events are the names of the totals of a queue, in the order of their fields.
var events = func() []string {
	var names []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[dueq.Totals]()) {
		names = append(names, strings.ToLower(field.Name))
	}
	return names
}()

// state is what the store tells of its queues.
type state struct {
	store   dueq.Store
	names   *names
	timeout time.Duration

	turn chan struct{} // of one; held while the store is asked, so that scrapes share the answer
	read time.Time     // when the store last answered or failed; guarded by turn; zero before
	last []prometheus.Metric
}

func newState(store dueq.Store, names *names, timeout time.Duration) *state {
	return &state{store: store, names: names, timeout: timeout, turn: make(chan struct{}, 1)}
}

// metrics returns what the store tells, at most statsEvery old.
func (s *state) metrics() []prometheus.Metric {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.read.IsZero() || time.Since(s.read) >= statsEvery {
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		defer cancel()
		stats, err := s.store.Stats(ctx)
		s.last, s.read = s.describe(stats, err), time.Now()
	}
	return s.last
}

func (s *state) describe(stats []dueq.QueueStats, err error) []prometheus.Metric {
	if err != nil {
		return []prometheus.Metric{gauge(upDesc, 0)}
	}
	sums, unreadable := s.sum(stats)
	out := []prometheus.Metric{gauge(upDesc, 1), gauge(unreadableDesc, float64(unreadable))}
	for label, sum := range sums {
		if !sum.partial {
			out = sum.describe(out, label)
		}
	}
	return out
}

// sum is the queues of one label.
type sum struct {
	partial                          bool // a queue could not be read: counters of the rest would seem to go back
	scheduled, active, dead, overdue int64
	paused                           int
	oldest                           time.Duration
	lastClaim                        time.Time
	refused, died                    int64
	totals                           []int64 // by event
}

func (s *state) sum(stats []dueq.QueueStats) (sums map[string]*sum, unreadable int) {
	sums = map[string]*sum{}
	for i := range stats {
		label := s.names.of(stats[i].Queue).label
		if sums[label] == nil {
			sums[label] = &sum{totals: make([]int64, len(events))}
		}
		if stats[i].Err != nil {
			unreadable++
			sums[label].partial = true
			continue
		}
		sums[label].add(&stats[i])
	}
	return sums, unreadable
}

func (s *sum) add(st *dueq.QueueStats) {
	s.scheduled += st.Scheduled
	s.active += st.Active
	s.dead += st.Dead
	s.overdue += st.Overdue
	if !st.NextDue.IsZero() {
		s.oldest = max(s.oldest, st.Now.Sub(st.NextDue))
	}
	if st.LastClaim.After(s.lastClaim) {
		s.lastClaim = st.LastClaim
	}
	if st.Paused {
		s.paused++
	}
	s.refused += st.Totals.Refused
	s.died += st.Totals.Died
	totals := reflect.ValueOf(st.Totals)
	for i := range s.totals {
		s.totals[i] += totals.Field(i).Int()
	}
}

// describe appends the metrics of the sum.
func (s *sum) describe(out []prometheus.Metric, label string) []prometheus.Metric {
	out = append(out,
		gauge(tasksDesc, float64(s.scheduled), label, dueq.StateScheduled.String()),
		gauge(tasksDesc, float64(s.active), label, dueq.StateActive.String()),
		gauge(tasksDesc, float64(s.dead), label, dueq.StateDead.String()),
		gauge(overdueDesc, float64(s.overdue), label),
		gauge(oldestDesc, s.oldest.Seconds(), label),
		gauge(pausedDesc, float64(s.paused), label),
		total(rejectedDesc, s.refused, label, reasonRefused),
		total(rejectedDesc, s.died, label, reasonDead))
	if !s.lastClaim.IsZero() {
		out = append(out, gauge(lastDesc, float64(s.lastClaim.UnixMilli())/1000, label))
	}
	for i, event := range events {
		out = append(out, total(eventsDesc, s.totals[i], label, event))
	}
	return out
}

func gauge(desc *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
}

func total(desc *prometheus.Desc, n int64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
}
