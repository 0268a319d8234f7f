package main

import (
	"context"
	"fmt"
	"time"
)

// memoryWorks measure what scheduled tasks occupy, one to two hours ahead, with
// ids of 28 bytes.
func memoryWorks(sizes Sizes) []Measurement {
	var all []Measurement
	for _, n := range sizes.Memory {
		for _, body := range []int{0, 120} {
			all = append(all, Measurement{Work: "memory", Case: memoryCase(n, body), Rounds: once, Together: true, Run: func(ctx context.Context, s *session) (Values, error) {
				return s.memory(ctx, n, body)
			}})
		}
	}
	return all
}

func memoryCase(n, body int) string {
	if body == 0 {
		return grouped(n) + ", no body"
	}
	return fmt.Sprintf("%s, %d bytes", grouped(n), body)
}

// memory counts the bytes of n tasks more than a thousand, so that scripts, keys
// and what else is there once do not count.
func (s *session) memory(ctx context.Context, n, body int) (Values, error) {
	first := farPlan(1000, 0, false)
	first.Body = body
	before, err := s.filled(ctx, first)
	if err != nil {
		return nil, err
	}
	plan := farPlan(n, 0, false)
	plan.First, plan.Body = first.Tasks, body
	after, err := s.filled(ctx, plan)
	return Values{"bytes": float64(after-before) / float64(n)}, err
}

// filled returns the memory of the server after a plan.
func (s *session) filled(ctx context.Context, plan Plan) (int64, error) {
	if err := s.fill(ctx, plan); err != nil {
		return 0, err
	}
	// what the connections of the client held is freed a little after they close
	sleepUntil(ctx, time.Now().Add(500*time.Millisecond))
	u, err := s.server.Usage(ctx)
	return u.Memory, err
}
