package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dueq/dueq/internal/history"
)

// Result is what came of a run.
type Result struct {
	*history.Report
	History *history.History
	Target  string
	Seed    uint64
	Took    time.Duration
	faults  map[string]*impact
}

// impact is how often a kind of fault came, how long it took after each until a
// task that began then was handled, and the longest time that a queue stood
// still while it lasted.
type impact struct {
	times     int
	recovered []time.Duration
	pause     time.Duration
}

func newResult(target string, seed uint64, took time.Duration, h *history.History) *Result {
	r := &Result{Report: history.Check(h), History: h, Target: target, Seed: seed, Took: took, faults: map[string]*impact{}}
	deliveries := slices.Clone(h.Deliveries)
	deliveries = slices.DeleteFunc(deliveries, func(d *history.Delivery) bool { return d.Ended == 0 })
	slices.SortFunc(deliveries, func(a, b *history.Delivery) int { return cmp.Compare(a.Started, b.Started) })
	for _, f := range h.Faults {
		if r.faults[f.Kind] == nil {
			r.faults[f.Kind] = &impact{}
		}
		r.faults[f.Kind].note(f, h.Faults, deliveries)
	}
	for _, queue := range queues {
		r.notePauses(h.Faults, slices.DeleteFunc(slices.Clone(deliveries), func(d *history.Delivery) bool { return d.Queue != queue }))
	}
	return r
}

// notePauses finds the longest time without a delivery of one queue that began
// or ended during each fault; they are sorted by their start.
func (r *Result) notePauses(faults []history.Fault, deliveries []*history.Delivery) {
	for _, f := range faults {
		i := r.faults[f.Kind]
		for n := 1; n < len(deliveries); n++ {
			from, until := deliveries[n-1].Started, deliveries[n].Started
			if from <= f.Until && until >= f.From {
				i.pause = max(i.pause, time.Duration(until-from))
			}
		}
	}
}

// note finds the first delivery after a fault; they are sorted by their start.
// One that another fault of the store delayed says nothing about this one.
func (i *impact) note(f history.Fault, all []history.Fault, deliveries []*history.Delivery) {
	i.times++
	n, _ := slices.BinarySearchFunc(deliveries, f.Until, func(d *history.Delivery, at history.Instant) int { return cmp.Compare(d.Started, at) })
	if n == len(deliveries) {
		return
	}
	first := deliveries[n].Started
	if !slices.ContainsFunc(all, func(o history.Fault) bool {
		return o != f && o.Process == "" && o.Until >= f.Until && o.From <= first
	}) {
		i.recovered = append(i.recovered, time.Duration(first-f.Until))
	}
}

// recovery is the median and the longest.
func (i *impact) recovery() (p50, longest time.Duration) {
	if len(i.recovered) == 0 {
		return 0, 0
	}
	slices.Sort(i.recovered)
	return i.recovered[len(i.recovered)/2], i.recovered[len(i.recovered)-1]
}

// String is the table.
func (r *Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, seed %d, %.0f s\n", r.Target, r.Seed, r.Took.Seconds())
	fmt.Fprintf(&b, "  %-20s %5s %12s %11s %13s %11s\n", "fault", "times", "recovery p50", "longest", "longest pause", "second runs")
	for _, kind := range slices.Sorted(maps.Keys(r.faults)) {
		p50, longest := r.faults[kind].recovery()
		fmt.Fprintf(&b, "  %-20s %5d %9.0f ms %8.0f ms %10.0f ms %11d\n", kind, r.faults[kind].times,
			millis(p50), millis(longest), millis(r.faults[kind].pause), r.Explained(kind))
	}
	fmt.Fprintf(&b, "  %d tasks; schedules: %d acknowledged, %d unknown, %d refused, %d handled\n",
		r.Tasks, r.Acknowledged, r.Unknown, r.Refused, r.Handled)
	fmt.Fprintf(&b, "  %d lost, %d not replicated, %d early, %d run after a cancel, %d beside itself, %d strangers\n",
		r.Count(history.Lost), r.Count(history.NotReplicated), r.Count(history.Early),
		r.Count(history.Cancelled), r.Count(history.Beside), r.Count(history.Stranger))
	fmt.Fprintf(&b, "  second runs: %d explained, %d unexplained; %d totals wrong, %d odd errors",
		r.Explained(""), r.Count(history.Unexplained), r.Count(history.Wrong), r.Count(history.Odd))
	return b.String()
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Complaints tells the stories of the first findings that nothing excuses.
func (r *Result) Complaints(most int) string {
	var b strings.Builder
	for i, f := range r.Bad() {
		if i == most {
			fmt.Fprintf(&b, "and %d more\n", len(r.Bad())-most)
			break
		}
		fmt.Fprintf(&b, "%v\n%s", f, r.History.Tell(f.Key))
	}
	return b.String()
}
