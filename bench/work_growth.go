package main

import (
	"context"
	"maps"
)

// growthWorks measure dueq with ever more tasks scheduled, and ever more
// queues in one process.
func growthWorks(sizes Sizes) []Measurement {
	var all []Measurement
	for _, n := range sizes.Growth {
		all = append(all, Measurement{Work: "growth", Case: grouped(n), Run: func(ctx context.Context, s *session) (Values, error) {
			return s.grow(ctx, n)
		}})
	}
	for _, queues := range []int{1, 10, 100, 1000} {
		all = append(all, Measurement{Work: "queues", Case: grouped(queues), Run: func(ctx context.Context, s *session) (Values, error) {
			return s.manyQueues(ctx, queues)
		}})
	}
	return all
}

// grow schedules into, claims from and drains beside n tasks that are far ahead.
func (s *session) grow(ctx context.Context, n int) (Values, error) {
	if err := s.fill(ctx, farPlan(n, 0, false)); err != nil {
		return nil, err
	}
	plan := farPlan(s.sizes.Schedule, 128, false)
	plan.First = n
	r, _, err := s.do(ctx, plan)
	if err != nil {
		return nil, err
	}
	scheduled := n + plan.Tasks
	v, err := s.timeClaims(ctx, scheduled, s.sizes.ClaimRounds)
	if err != nil {
		return nil, err
	}
	next := scheduled + s.sizes.ClaimRounds*batchSize
	drained, err := s.drain(ctx, due{next, s.sizes.Drain, int64(scheduled)}, 1, 16)
	if err != nil {
		return nil, err
	}
	v["schedule_per_s"], v["drain_per_s"] = float64(plan.Tasks)/r.Seconds, drained["tasks_per_s"]
	return v, nil
}

// manyQueues drains queues, has tasks come due in them, and leaves them idle.
func (s *session) manyQueues(ctx context.Context, queues int) (Values, error) {
	drained, err := s.drain(ctx, due{n: s.sizes.Drain}, queues, 16)
	if err != nil {
		return nil, err
	}
	v, err := s.precision(ctx, s.sizes.PrecisionSeconds, 1, queues)
	if err != nil {
		return nil, err
	}
	idle, err := s.idle(ctx, queues, s.sizes.IdleSeconds)
	if err != nil {
		return nil, err
	}
	maps.Copy(v, idle)
	v["drain_per_s"] = drained["tasks_per_s"]
	return v, nil
}
