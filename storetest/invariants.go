package storetest

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/dueq/dueq"
)

// check expects the invariants of the queue to hold.
func (q *queue) check() {
	q.Helper()
	if q.closed || q.Failed() {
		return
	}
	stats, err := q.Store.Stats(q.Context(), q.name)
	q.must("Stats", err)
	settings, err := q.Store.Settings(q.Context(), q.name)
	q.must("Settings", err)
	snap := q.dump()
	for _, fault := range faults(snap, stats[0], checks{leftovers: q.zrem, lossy: q.lossy, priority: settings.Priority}) {
		q.Errorf("invariant: %s", fault)
	}
	if q.Failed() {
		q.Logf("%v\n%+v", snap, stats[0])
	}
}

// checks says which invariants a queue gave up.
type checks struct {
	leftovers bool // side data without a member is allowed
	lossy     bool // totals need not add up
	priority  bool // all spellings of a member are one task
}

// faults names what is wrong in a snapshot and the stats taken with it.
func faults(s Snapshot, stats dueq.QueueStats, c checks) []string {
	found := placeFaults(s, c)
	found = append(found, sideFaults(s, c)...)
	found = append(found, countFaults(s, stats)...)
	if sum := endedRuns(stats.Totals) + stats.Active; !c.lossy && sum != stats.Totals.Claimed {
		found = append(found, fmt.Sprintf("claimed is %d but %d runs ended or are active: %+v", stats.Totals.Claimed, sum, stats.Totals))
	}
	return found
}

// placeFaults: a member is in one of scheduled, next, active and dead, except
// scheduled or next beside active, and scheduled beside dead.
func placeFaults(s Snapshot, c checks) (found []string) {
	active := map[string]bool{}
	for m, lease := range s.Active {
		if id := identity(m, c); active[id] {
			found = append(found, fmt.Sprintf("%q runs beside itself", id))
		} else {
			active[id] = true
		}
		if lease < 1e6*1e6 || lease > 253_402_300_800*1e6 {
			found = append(found, fmt.Sprintf("lease %d of %q is not seconds × 1,000,000 + number", lease, m))
		}
	}
	for m := range s.Next {
		if !active[identity(m, c)] {
			found = append(found, fmt.Sprintf("%q is in next but not active", m))
		}
	}
	for m := range s.Dead {
		if _, ok := s.Active[m]; ok {
			found = append(found, fmt.Sprintf("%q is dead and active", m))
		}
		if _, ok := s.Next[m]; ok {
			found = append(found, fmt.Sprintf("%q is dead and in next", m))
		}
	}
	return found
}

var triesFormat = regexp.MustCompile(`^(-.*|[1-9]\d*(/[1-9]\d*)?|0/[1-9]\d*)$`)

// sideFaults: body, tries and error belong to a member, tries read
// failures[/rounds] or mark the run of an active member as cancelled.
func sideFaults(s Snapshot, c checks) (found []string) {
	live, active := map[string]bool{}, map[string]bool{}
	for _, set := range []map[string]float64{s.Scheduled, s.Next, s.Dead} {
		for m := range set {
			live[identity(m, c)] = true
		}
	}
	for m := range s.Active {
		live[identity(m, c)], active[identity(m, c)] = true, true
	}
	for name, side := range map[string]map[string]string{"body": s.Body, "tries": s.Tries, "error": s.Error} {
		for _, m := range slices.Sorted(maps.Keys(side)) {
			if !c.leftovers && !live[identity(m, c)] {
				found = append(found, fmt.Sprintf("%s of %q, which is nowhere", name, m))
			}
		}
	}
	for m, tries := range s.Tries {
		if !triesFormat.MatchString(tries) {
			found = append(found, fmt.Sprintf("tries of %q are %q", m, tries))
		}
		if strings.HasPrefix(tries, "-") && !active[identity(m, c)] {
			found = append(found, fmt.Sprintf("%q is marked as cancelled but not active", m))
		}
	}
	for m, text := range s.Error {
		if len(text) > 1024 {
			found = append(found, fmt.Sprintf("error of %q is %d bytes", m, len(text)))
		}
	}
	return found
}

// countFaults: stats are recounts of what lies there.
func countFaults(s Snapshot, stats dueq.QueueStats) (found []string) {
	now := float64(stats.Now.UnixMilli())
	overdue, first, head := int64(0), int64(0), math.Inf(1)
	for _, set := range []map[string]float64{s.Scheduled, s.Next} {
		for _, due := range set {
			if due <= now {
				overdue++
			}
		}
	}
	for _, due := range s.Scheduled {
		head = min(head, due)
	}
	for _, lease := range s.Active {
		if end := lease / 1e6; first == 0 || end < first {
			first = end
		}
	}
	count := func(what string, got, want int64) {
		if got != want {
			found = append(found, fmt.Sprintf("stats say %d %s, there are %d", got, what, want))
		}
	}
	count("scheduled", stats.Scheduled, int64(len(s.Scheduled)+len(s.Next)))
	count("overdue", stats.Overdue, overdue)
	count("active", stats.Active, int64(len(s.Active)))
	count("dead", stats.Dead, int64(len(s.Dead)))
	if first == 0 != stats.NextLease.IsZero() || first != 0 && stats.NextLease.Unix() != first {
		found = append(found, fmt.Sprintf("stats say the next lease ends at %v, it is %d", stats.NextLease, first))
	}
	valid := head >= dueq.MinDueMilli && head <= dueq.MaxDueMilli
	if valid && float64(stats.NextDue.UnixMilli()) != math.Ceil(head) {
		found = append(found, fmt.Sprintf("stats say the next due is %v, it is %.3f", stats.NextDue, head))
	}
	return found
}

func endedRuns(t dueq.Totals) int64 {
	return t.Acked + t.Retried + t.Again + t.Released + t.Died + t.Ended + t.Stopped + t.Superseded
}

// identity is what makes members one task: on a priority queue all but the
// priority.
func identity(member string, c checks) string {
	if !c.priority {
		return member
	}
	task, err := dueq.ParseMember(member)
	if err != nil {
		return member
	}
	return dueq.Task{ID: task.ID, Kind: task.Kind, Trace: task.Trace}.Member()
}
