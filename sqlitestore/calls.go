package sqlitestore

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/rules"
)

// Schedule implements dueq.Store.
func (s *Store) Schedule(ctx context.Context, items []dueq.Item) ([]dueq.Outcome, error) {
	var outcomes []dueq.Outcome
	err := s.write(ctx, func(u *unit) (err error) {
		outcomes, err = rules.Schedule(items, s.now(), func(name string) *rules.Queue { return u.queue(name).Queue })
		return err
	})
	if err != nil {
		return nil, s.wrap("schedule", "", err)
	}
	return outcomes, nil
}

// Change implements dueq.Store.
func (s *Store) Change(ctx context.Context, queue string, op dueq.Op, targets []dueq.Target) ([]dueq.Outcome, error) {
	return change(ctx, s, "change", queue, func(q *rules.Queue) ([]dueq.Outcome, error) {
		return q.Change(op, targets, s.now())
	})
}

// Claim implements dueq.Store.
func (s *Store) Claim(ctx context.Context, req dueq.ClaimRequest) (dueq.Claim, error) {
	return change(ctx, s, "claim", req.Queue, func(q *rules.Queue) (dueq.Claim, error) {
		c, err := q.Claim(req, s.now())
		if err == nil && q.CallsForOthers(req, c) {
			s.send(dueq.Hint{Queue: q.Name, Due: rules.ScoreTime(q.Head(rules.Scheduled))})
		}
		return c, err
	})
}

// Settle implements dueq.Store.
func (s *Store) Settle(ctx context.Context, queue string, results []dueq.Result) ([]dueq.Outcome, error) {
	return change(ctx, s, "settle", queue, func(q *rules.Queue) ([]dueq.Outcome, error) {
		return q.Settle(results, s.now())
	})
}

// Extend implements dueq.Store.
func (s *Store) Extend(ctx context.Context, queue string, leases []dueq.Lease, d time.Duration) ([]dueq.Outcome, error) {
	return change(ctx, s, "extend", queue, func(q *rules.Queue) ([]dueq.Outcome, error) {
		return q.Extend(leases, d, s.now())
	})
}

// SetSettings implements dueq.Store.
func (s *Store) SetSettings(ctx context.Context, queue string, patch dueq.SettingsPatch) (dueq.Settings, error) {
	if err := dueq.ValidateQueue(queue); err != nil {
		return dueq.Settings{}, s.wrap("set settings", queue, err)
	}
	if len(patch) == 0 {
		return s.Settings(ctx, queue)
	}
	var settings dueq.Settings
	err := s.write(ctx, func(u *unit) (err error) {
		settings, err = u.queue(queue).set(patch)
		return err
	})
	if err != nil {
		return dueq.Settings{}, s.wrap("set settings", queue, err)
	}
	return settings, nil
}

// leastRoom is what a probe wants to be left on the disk: room for a transaction.
// That alone fits the journal says little.
const leastRoom = 1 << 20

// Probe implements dueq.Prober: it writes the version of the schema again. A
// disk with less than 1 MiB left counts as full.
func (s *Store) Probe(ctx context.Context) error {
	err := s.write(ctx, func(u *unit) error {
		if err := u.exec(fmt.Sprintf("PRAGMA user_version = %d", schemaVersion)); err != nil {
			u.fail(err)
		}
		return nil
	})
	if err == nil && !hasRoom(filepath.Dir(s.path), leastRoom) {
		err = dueq.Unavailable(fmt.Errorf("%s: the disk is full", s.path))
	}
	if err != nil {
		return s.wrap("probe", "", err)
	}
	return nil
}

// change makes a call about one queue that writes.
func change[T any](ctx context.Context, s *Store, op, queue string, do func(q *rules.Queue) (T, error)) (T, error) {
	var answer, none T
	err := dueq.ValidateQueue(queue)
	if err == nil {
		err = s.write(ctx, func(u *unit) (err error) {
			answer, err = do(u.queue(queue).Queue)
			return err
		})
	}
	if err != nil {
		return none, s.wrap(op, queue, err)
	}
	return answer, nil
}
