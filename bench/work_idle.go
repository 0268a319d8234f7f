package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// idleWorks have one worker process wait at empty queues.
func idleWorks(sizes Sizes) []Measurement {
	var all []Measurement
	for _, queues := range []int{1, 100} {
		all = append(all, Measurement{Work: "idle", Case: fmt.Sprint(queues), Rounds: once, Together: true, Run: func(ctx context.Context, s *session) (Values, error) {
			return s.idle(ctx, queues, sizes.IdleSeconds)
		}})
	}
	return all
}

// once is for what does not vary.
func once(*Peer) int { return 1 }

func (s *session) idle(ctx context.Context, queues, seconds int) (Values, error) {
	ws, err := s.startWorkers(1, Plan{Tasks: 1, Queues: queues, Slots: 1})
	if err != nil {
		return nil, err
	}
	defer ws.kill()
	ws.release(0)
	sleepUntil(ctx, time.Now().Add(3*time.Second)) // to start, and to calm down
	before, err := s.server.Usage(ctx)
	if err != nil {
		return nil, err
	}
	d := time.Duration(seconds) * time.Second
	sent, sentErr := s.server.Listen(ctx, d)
	after, err := s.server.Usage(ctx)
	if err := errors.Join(sentErr, err); err != nil {
		return nil, err
	}
	v := Values{
		"commands_per_s": float64(sent.Commands) / d.Seconds(),
		"trips_per_s":    float64(sent.Trips) / d.Seconds(),
		"cpu_share":      after.since(before).CPU / d.Seconds(),
	}
	_, err = ws.finish(ctx, 0, time.Now())
	return v, err
}
