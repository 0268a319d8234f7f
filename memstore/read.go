package memstore

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/dueq/dueq"
)

// Get looks tasks up by member.
func (s *Store) Get(ctx context.Context, queue string, members []string) ([]dueq.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(s.readyFor(ctx, queue), checkCount("members", len(members))); err != nil {
		return nil, callError("get", queue, err)
	}
	q := s.peek(queue)
	infos := make([]dueq.Info, len(members))
	for i, member := range members {
		infos[i] = q.get(member)
	}
	return infos, nil
}

func (q *queue) get(member string) dueq.Info {
	t := q.find(member)
	for _, p := range [...]place{active, scheduled, next, dead} {
		if e := t.get(p); e != nil {
			info := t.info(e)
			info.Body = bytes.Clone(t.body())
			return info
		}
	}
	return q.newInfo(member)
}

func (q *queue) newInfo(member string) dueq.Info {
	parsed, err := dueq.ParseMember(member)
	info := dueq.Info{Task: parsed, Member: member, Malformed: err}
	info.Queue = q.name
	return info
}

// info says what the store knows of a task that exists, but for its body. Its
// member is that of e.
func (t task) info(e *entry) dueq.Info {
	info := t.q.newInfo(e.member)
	scheduledEntry, due := t.schedule()
	if scheduledEntry != nil {
		info.State = dueq.StateScheduled
		info.Due = scoreTime(due)
	}
	run, letter := t.get(active), t.get(dead)
	if letter != nil {
		info.DiedAt = milliTime(int64(letter.score[dead]))
	}
	switch {
	case run != nil:
		info.State = dueq.StateActive
		info.Again = scheduledEntry != nil
		info.Cancelled = run.cancelled
		info.LeaseEnds = secondTime(leaseSecond(run.lease))
	case scheduledEntry == nil:
		info.State = dueq.StateDead
	}
	info.Failures, info.LastError = e.failures, e.lastErr
	info.Attempt, info.Round = e.failures+1, e.rounds
	info.HasBody = t.body() != nil
	return info
}

// Stats counts the tasks of queues.
func (s *Store) Stats(ctx context.Context, queues ...string) ([]dueq.QueueStats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(ctx); err != nil {
		return nil, callError("stats", "", err)
	}
	if len(queues) == 0 {
		queues = s.known()
	}
	now, stats := s.now(), make([]dueq.QueueStats, len(queues))
	for i, name := range queues {
		if err := dueq.ValidateQueue(name); err != nil {
			return nil, callError("stats", name, err)
		}
		stats[i] = s.peek(name).stats(now)
	}
	return stats, nil
}

func (s *Store) known() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		if s.queues[name].known {
			names = append(names, name)
		}
	}
	return names
}

func (q *queue) stats(now instant) dueq.QueueStats {
	size := func(p place) int64 { return int64(q.sets[p].Len()) }
	overdue := func(p place) int64 { return int64(q.count(p, float64(now.ms))) }
	stats := dueq.QueueStats{
		Queue: q.name, Now: now.time(), Paused: q.settings.Paused, Totals: q.totals,
		Scheduled: size(scheduled) + size(next),
		Overdue:   overdue(scheduled) + overdue(next),
		Active:    size(active),
		Dead:      size(dead),
	}
	if size(scheduled) > 0 {
		stats.NextDue = scoreTime(q.head(scheduled))
	}
	if first, ok := q.sets[active].Min(); ok {
		stats.NextLease = secondTime(leaseSecond(first.entry.lease))
	}
	if q.lastClaim != never {
		stats.LastClaim = milliTime(q.lastClaim)
	}
	return stats
}
