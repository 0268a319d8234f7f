package main

import (
	"context"
	"fmt"
	"time"
)

// hourMs is the unit of far due times: one to two hours ahead, at random.
const hourMs = int64(time.Hour / time.Millisecond)

const batchSize = 100

// scheduleWorks schedule one task a call.
func scheduleWorks(sizes Sizes) []Measurement {
	var all []Measurement
	for _, callers := range []int{1, 16, 128} {
		n := sizes.Schedule
		if callers == 1 {
			n /= 10
		}
		all = append(all, Measurement{Work: "schedule", Case: fmt.Sprint(callers), Brief: callers == 128, Run: func(ctx context.Context, s *session) (Values, error) {
			return s.schedule(ctx, farPlan(n, callers, false))
		}})
	}
	return all
}

// batchWorks schedule 100 tasks a call, by the instant or by the delay.
func batchWorks(sizes Sizes) []Measurement {
	var all []Measurement
	for _, name := range []string{"absolute", "relative"} {
		all = append(all, Measurement{Work: "batch", Case: name, Run: func(ctx context.Context, s *session) (Values, error) {
			plan := farPlan(5*sizes.Schedule, 128, name == "relative")
			plan.Batch = batchSize
			return s.schedule(ctx, plan)
		}})
	}
	return all
}

// farPlan schedules n tasks due one to two hours ahead.
func farPlan(n, callers int, after bool) Plan {
	plan := Plan{Job: "schedule", Tasks: n, Callers: callers, FromMs: hourMs, SpreadMs: hourMs, After: after}
	if !after {
		plan.FromMs += time.Now().UnixMilli()
	}
	return plan
}

// schedule carries a plan out and checks that every task is there.
func (s *session) schedule(ctx context.Context, plan Plan) (Values, error) {
	r, usage, err := s.do(ctx, plan)
	if err != nil {
		return nil, err
	}
	if r.Left != int64(plan.Tasks) {
		return nil, fmt.Errorf("%d tasks were scheduled and %d are there", plan.Tasks, r.Left)
	}
	v := Values{"tasks_per_s": float64(plan.Tasks) / r.Seconds}
	v.addCost(plan.Tasks, usage, r)
	return v, nil
}

// fill schedules tasks the quickest way that the system has; nothing is
// measured.
func (s *session) fill(ctx context.Context, plan Plan) error {
	plan.Job, plan.Callers = "schedule", 128
	if s.peer.batch {
		plan.Batch, plan.Callers = 1000, 8
	}
	_, _, err := s.do(ctx, plan)
	return err
}
