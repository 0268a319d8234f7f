package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	precisionRate  = 1000 // tasks a second that come due
	precisionSlots = 16
	precisionLead  = time.Second      // a task is scheduled one to two seconds ahead
	precisionTail  = 20 * time.Second // to handle the last one
	settleDown     = 2 * time.Second  // from workers that are ready to the first task that is sent
)

// precisionWorks have tasks come due at a steady rate. One worker process.
func precisionWorks(sizes Sizes) []Measurement {
	return []Measurement{{Work: "precision", Case: "1,000/s", Run: func(ctx context.Context, s *session) (Values, error) {
		return s.precision(ctx, sizes.PrecisionSeconds, 1, 1)
	}}}
}

// processWorks are the same with many worker processes waiting for one queue.
func processWorks(sizes Sizes) []Measurement {
	var all []Measurement
	for _, processes := range []int{1, 10, 20} {
		all = append(all, Measurement{Work: "processes", Case: fmt.Sprint(processes),
			Rounds: func(p *Peer) int {
				switch {
				case p.Name == "dueq":
					return sizes.Rounds
				case processes == 20:
					return 1 // what a herd does to a peer is not a matter of per cents
				}
				return 0
			},
			Run: func(ctx context.Context, s *session) (Values, error) {
				return s.precision(ctx, sizes.PrecisionSeconds, processes, 1)
			}})
	}
	return all
}

// precision schedules and works at the same time, in processes of their own.
func (s *session) precision(ctx context.Context, seconds, processes, queues int) (Values, error) {
	n := precisionRate * seconds
	plan := Plan{
		Job: "schedule", Tasks: n, SpreadMs: 1000, EachUs: 1_000_000 / precisionRate,
		LeadMs: precisionLead.Milliseconds(), Callers: precisionSlots, Queues: queues, Slots: precisionSlots,
	}
	ws, err := s.startWorkers(processes, plan)
	if err != nil {
		return nil, err
	}
	defer ws.kill()
	plan.FromMs = time.Now().Add(settleDown + precisionLead).UnixMilli()
	producing := make(chan error, 1)
	go func() {
		_, err := s.run(ctx, plan)
		producing <- err
	}()
	patience := settleDown + precisionLead + time.Duration(seconds+1)*time.Second + precisionTail
	v, results, err := s.workOff(ctx, ws, due{n: n}, plan.FromMs, patience)
	if err = errors.Join(err, <-producing); err != nil {
		return nil, err
	}
	v.addDrift(results)
	return v, nil
}

// run runs a client to its end; the server is not looked at.
func (s *session) run(ctx context.Context, plan Plan) (Result, error) {
	h, err := s.start(plan)
	if err != nil {
		return Result{}, err
	}
	h.release(plan.FromMs)
	return h.await(ctx, 10*time.Minute)
}
