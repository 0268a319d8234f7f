package main

import (
	"context"
	"fmt"
	"time"
)

// drainWorks handle tasks that are all due, and acknowledge them.
func drainWorks(sizes Sizes) []Measurement {
	var all []Measurement
	for _, slots := range []int{3, 16, 100} {
		all = append(all, Measurement{Work: "drain", Case: fmt.Sprint(slots), Brief: true, Run: func(ctx context.Context, s *session) (Values, error) {
			n := sizes.Drain
			if s.peer.Name == "textbook" && slots == 100 {
				n /= 10 // a hundred pollers are in each other's way, and would take minutes
			}
			return s.drain(ctx, due{n: n}, 1, slots)
		}})
	}
	return all
}

// drainSpread is within how long after its schedule a task comes due. Nobody
// works before all are.
const drainSpread = 500 * time.Millisecond

func (s *session) drain(ctx context.Context, d due, queues, slots int) (Values, error) {
	plan := Plan{Tasks: d.n, First: d.first, Queues: queues, FromMs: 50, SpreadMs: drainSpread.Milliseconds(), After: true}
	if err := s.fill(ctx, plan); err != nil {
		return nil, err
	}
	sleepUntil(ctx, time.Now().Add(drainSpread+100*time.Millisecond))
	ws, err := s.startWorkers(1, Plan{Tasks: d.n, Queues: queues, Slots: slots})
	if err != nil {
		return nil, err
	}
	defer ws.kill()
	v, results, err := s.workOff(ctx, ws, d, 0, 2*time.Minute)
	if err != nil {
		return nil, err
	}
	v["tasks_per_s"] = float64(d.n) / results[0].Seconds
	return v, nil
}

// workOff lets worker processes handle what is due, the first at fromMs, and
// checks that each task was handled once and none is left.
func (s *session) workOff(ctx context.Context, ws workers, d due, fromMs int64, patience time.Duration) (Values, []Result, error) {
	before, err := s.server.Usage(ctx)
	if err != nil {
		return nil, nil, err
	}
	ws.release(fromMs)
	results, err := ws.finish(ctx, d.n, time.Now().Add(patience))
	if err != nil {
		return nil, nil, err
	}
	after, err := s.server.Usage(ctx)
	if err != nil {
		return nil, nil, err
	}
	v := Values{}
	v.addCost(d.n, after.since(before), results...)
	v.addClaims(d.n, results)
	return v, results, d.check(results)
}

func (v Values) addClaims(n int, results []Result) {
	var claims int64
	for _, r := range results {
		claims += r.Claims
	}
	if claims > 0 {
		v["claims"] = float64(claims) / float64(n)
	}
}
