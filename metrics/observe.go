package metrics

import (
	"context"
	"time"

	"github.com/dueq/dueq"
)

// Observe returns store with what is claimed and settled through it counted as
// the Observer counts it for a Worker. It is for consumers that are no Workers,
// such as those of an HTTP API; a Worker on it that has the Observer too is
// counted twice. What only a Worker knows is missing: drift, how long handlers
// ran, deadlines.
func (m *Metrics) Observe(store dueq.Store) dueq.Store {
	forwarder, prober := optional(store)
	return withOptional(&observed{Store: store, m: m}, forwarder, prober)
}

type observed struct {
	dueq.Store
	m *Metrics
}

// Claim implements dueq.Store.
func (s *observed) Claim(ctx context.Context, req dueq.ClaimRequest) (dueq.Claim, error) {
	began := time.Now()
	claim, err := s.Store.Claim(ctx, req)
	s.m.called("claim", req.Queue, len(claim.Tasks), time.Since(began), err)
	if err == nil {
		s.m.claimed(req.Queue, claim)
	}
	return claim, err
}

// Settle implements dueq.Store.
func (s *observed) Settle(ctx context.Context, queue string, results []dueq.Result) ([]dueq.Outcome, error) {
	outcomes, err := s.Store.Settle(ctx, queue, results)
	for i, o := range outcomes {
		switch o.Status {
		case dueq.StatusDone, dueq.StatusSuperseded:
			s.m.of(queue).runs[results[i].Verdict].Inc()
		default:
			s.m.settled(queue, o)
		}
	}
	return outcomes, err
}
