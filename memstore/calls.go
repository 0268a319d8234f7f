package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/rules"
)

// Schedule puts tasks into their queues.
func (s *Store) Schedule(ctx context.Context, items []dueq.Item) ([]dueq.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(ctx); err != nil {
		return nil, callError("schedule", "", err)
	}
	var touched []*queue
	outcomes, err := rules.Schedule(items, s.now(), func(name string) *rules.Queue {
		q := s.queue(name)
		if !slices.Contains(touched, q) {
			touched, q.was = append(touched, q), q.Head(rules.Scheduled)
		}
		return q.Queue
	})
	for _, q := range touched {
		s.hint(q)
	}
	return outcomes, wrap("schedule", "", err)
}

// Change applies one operation to tasks by member.
func (s *Store) Change(ctx context.Context, queue string, op dueq.Op, targets []dueq.Target) ([]dueq.Outcome, error) {
	return call(s, ctx, "change", queue, s.peek, func(q *rules.Queue) ([]dueq.Outcome, error) {
		return q.Change(op, targets, s.now())
	})
}

// Claim leases due tasks.
func (s *Store) Claim(ctx context.Context, req dueq.ClaimRequest) (dueq.Claim, error) {
	return call(s, ctx, "claim", req.Queue, s.queue, func(q *rules.Queue) (dueq.Claim, error) {
		c, err := q.Claim(req, s.now())
		if err == nil && q.CallsForOthers(req, c) {
			s.send(dueq.Hint{Queue: q.Name, Due: rules.ScoreTime(q.Head(rules.Scheduled))})
		}
		return c, err
	})
}

// Settle ends deliveries.
func (s *Store) Settle(ctx context.Context, queue string, results []dueq.Result) ([]dueq.Outcome, error) {
	return call(s, ctx, "settle", queue, s.queue, func(q *rules.Queue) ([]dueq.Outcome, error) {
		return q.Settle(results, s.now())
	})
}

// Extend makes leases end d from now.
func (s *Store) Extend(ctx context.Context, queue string, leases []dueq.Lease, d time.Duration) ([]dueq.Outcome, error) {
	return call(s, ctx, "extend", queue, s.peek, func(q *rules.Queue) ([]dueq.Outcome, error) {
		return q.Extend(leases, d, s.now())
	})
}

// Get looks tasks up by member.
func (s *Store) Get(ctx context.Context, queue string, members []string) ([]dueq.Info, error) {
	return call(s, ctx, "get", queue, s.peek, func(q *rules.Queue) ([]dueq.Info, error) {
		return q.Get(members)
	})
}

// List pages through the tasks of one queue in one state. A page looks at
// Limit tasks, so one with an Error to look for may be empty and not the last.
func (s *Store) List(ctx context.Context, query dueq.ListQuery) (dueq.Page, error) {
	return call(s, ctx, "list", query.Queue, s.peek, func(q *rules.Queue) (dueq.Page, error) {
		return q.List(query, s.now())
	})
}

// Settings returns the settings of a queue.
func (s *Store) Settings(ctx context.Context, queue string) (dueq.Settings, error) {
	return call(s, ctx, "settings", queue, s.peek, func(q *rules.Queue) (dueq.Settings, error) {
		return q.Settings, nil
	})
}

// SetSettings changes settings of a queue at once. An empty patch changes
// nothing.
func (s *Store) SetSettings(ctx context.Context, queue string, patch dueq.SettingsPatch) (dueq.Settings, error) {
	open := s.queue
	if len(patch) == 0 {
		open = s.peek
	}
	return call(s, ctx, "set settings", queue, open, func(q *rules.Queue) (dueq.Settings, error) {
		return q.Set(patch)
	})
}

// Probe reports that the store takes writes, which it does until it is closed.
func (s *Store) Probe(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(ctx); err != nil {
		return callError("probe", "", err)
	}
	return nil
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
		stats[i] = s.peek(name).Stats(now)
	}
	return stats, nil
}

func (s *Store) known() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		if s.queues[name].Known {
			names = append(names, name)
		}
	}
	return names
}

// call makes a call about one queue, and tells the sleepers if the queue has a
// new earliest task after it.
func call[T any](s *Store, ctx context.Context, op, name string, open func(string) *queue, do func(*rules.Queue) (T, error)) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none T
	if err := s.readyFor(ctx, name); err != nil {
		return none, callError(op, name, err)
	}
	q := open(name)
	q.was = q.Head(rules.Scheduled)
	answer, err := do(q.Queue)
	s.hint(q)
	return answer, wrap(op, name, err)
}
