package rules

import (
	"bytes"

	"github.com/dueq/dueq"
)

// Get looks tasks up by member.
func (q *Queue) Get(members []string) ([]dueq.Info, error) {
	if err := checkCount("members", len(members)); err != nil {
		return nil, err
	}
	infos := make([]dueq.Info, len(members))
	for i, member := range members {
		infos[i] = q.get(member)
	}
	return infos, nil
}

func (q *Queue) get(member string) dueq.Info {
	t := q.find(member)
	for _, p := range [...]Place{Active, Scheduled, Next, Dead} {
		if e := t.get(p); e != nil {
			info := t.info(e)
			info.Body = bytes.Clone(t.body())
			return info
		}
	}
	return q.newInfo(member)
}

func (q *Queue) newInfo(member string) dueq.Info {
	parsed, err := dueq.ParseMember(member)
	info := dueq.Info{Task: parsed, Member: member, Malformed: err}
	info.Queue = q.Name
	return info
}

// info says what the store knows of a task that exists, but for its body. Its
// member is that of e.
func (t task) info(e *Entry) dueq.Info {
	info := t.q.newInfo(e.Member)
	scheduledEntry, due := t.schedule()
	if scheduledEntry != nil {
		info.State = dueq.StateScheduled
		info.Due = ScoreTime(due)
	}
	run, letter := t.get(Active), t.get(Dead)
	if letter != nil {
		info.DiedAt = milliTime(int64(letter.Score[Dead]))
	}
	switch {
	case run != nil:
		info.State = dueq.StateActive
		info.Again = scheduledEntry != nil
		info.Cancelled = run.Cancelled
		info.LeaseEnds = secondTime(leaseSecond(run.Lease))
	case scheduledEntry == nil:
		info.State = dueq.StateDead
	}
	info.Failures, info.LastError = e.Failures, e.LastErr
	info.Attempt, info.Round = e.Failures+1, e.Rounds
	bearer := t.bearer()
	info.HasBody = bearer != nil && bearer.HasBody
	return info
}

// Stats counts the tasks of the queue.
func (q *Queue) Stats(now Instant) dueq.QueueStats {
	size := func(p Place) int64 { return int64(q.Storage.Len(p)) }
	overdue := func(p Place) int64 { return int64(q.Storage.Count(p, float64(now.ms))) }
	stats := dueq.QueueStats{
		Queue: q.Name, Now: now.time(), Paused: q.Settings.Paused, Totals: q.Totals,
		Scheduled: size(Scheduled) + size(Next),
		Overdue:   overdue(Scheduled) + overdue(Next),
		Active:    size(Active),
		Dead:      size(Dead),
	}
	if first := q.Storage.Min(Scheduled); first != nil {
		stats.NextDue = ScoreTime(first.Score[Scheduled])
	}
	if first := q.Storage.Min(Active); first != nil {
		stats.NextLease = secondTime(leaseSecond(first.Lease))
	}
	if q.LastClaim != Never {
		stats.LastClaim = milliTime(q.LastClaim)
	}
	return stats
}
