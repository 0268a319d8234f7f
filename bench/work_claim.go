package main

import (
	"context"
	"slices"
	"time"
)

// claimWorks time claims of 100 due tasks among many that are not due.
func claimWorks(sizes Sizes) []Measurement {
	var all []Measurement
	for _, n := range sizes.Claim {
		all = append(all, Measurement{Work: "claim", Case: grouped(n), Rounds: once, Run: func(ctx context.Context, s *session) (Values, error) {
			return s.claim(ctx, n, sizes.ClaimRounds)
		}})
	}
	return all
}

func (s *session) claim(ctx context.Context, scheduled, rounds int) (Values, error) {
	if err := s.fill(ctx, farPlan(scheduled, 0, false)); err != nil {
		return nil, err
	}
	return s.timeClaims(ctx, scheduled, rounds)
}

// timeClaims schedules and claims tasks from index first on.
func (s *session) timeClaims(ctx context.Context, first, rounds int) (Values, error) {
	r, _, err := s.do(ctx, Plan{
		Job: "claim", First: first, Batch: batchSize, Rounds: rounds,
		FromMs: time.Now().Add(-time.Minute).UnixMilli(), SpreadMs: 60_000,
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(r.ClaimMs)
	return Values{"claim_p50_ms": quantile(r.ClaimMs, 0.5), "claim_p99_ms": quantile(r.ClaimMs, 0.99)}, nil
}
