package httpapi

import (
	"net/http"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/item"
	"github.com/dueq/dueq/internal/view"
)

func (s *Server) workRoutes() {
	handleJSON(s, route{
		group: "Work", id: "claim", method: http.MethodPost, path: "/v1/queues/{queue}/claim",
		summary: "Lease due tasks",
		note:    "Earliest due first. An answer without tasks is 200 too. Whoever leaves while it waits is given nothing.",
		scopes:  []Scope{ScopeConsume}, crowded: true,
	}, s.claim)
	handleJSON(s, route{
		group: "Work", id: "settle", method: http.MethodPost, path: "/v1/queues/{queue}/settle",
		summary: "End deliveries",
		note:    "superseded: the task was scheduled again or cancelled meanwhile, the verdict changed nothing but the end of the run. lease_lost: nothing changed. Settling again after an unknown answer is safe.",
		scopes:  []Scope{ScopeConsume}, limit: largeBody,
	}, s.settle)
	handleJSON(s, route{
		group: "Work", id: "extend", method: http.MethodPost, path: "/v1/queues/{queue}/extend",
		summary: "Make leases end later",
		scopes:  []Scope{ScopeConsume},
	}, s.extend)
}

func (s *Server) claim(c *call, in *claimRequest) (*claimAnswer, error) {
	req := dueq.ClaimRequest{Queue: c.queue, Max: 1, Lease: ms(in.LeaseMs)}
	if in.Max != nil {
		req.Max = *in.Max
	}
	wait := ms(in.WaitMs)
	if wait > 0 {
		if !s.waiting.enter() {
			return nil, kindTooMany.problem("too many claims wait already")
		}
		defer s.waiting.leave()
	}
	claim, err := s.polls.claim(c.r.Context(), req, wait)
	if err != nil {
		return nil, asJSON(err)
	}
	if len(claim.Tasks) > 0 {
		c.unsent = func() { s.polls.giveBack(c.queue, claim) }
	}
	return newClaimAnswer(claim), nil
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func newClaimAnswer(claim dueq.Claim) *claimAnswer {
	out := &claimAnswer{
		Tasks: make([]deliveredTask, len(claim.Tasks)),
		Now:   view.Instant(claim.Now), PreviousAt: view.Instant(claim.Previous), Paused: claim.Paused,
	}
	if claim.Wait >= 0 {
		out.NextInMs = item.NewWhen(dueq.In(claim.Wait)).DelayMs // rounded up
	}
	for i, t := range claim.Tasks {
		out.Tasks[i] = deliveredTask{
			Delivery: view.NewDelivery(t), Lease: formatLease(t),
			LeaseEndsAt: view.Instant(claim.LeaseEnds), Payload: view.NewPayload(t.Body),
		}
	}
	return out
}

func (s *Server) settle(c *call, in *settleRequest) (*results, error) {
	return many(in.Results, func(v verdict) (string, dueq.Result, error) {
		r, err := v.parse(c.queue)
		return v.Member, r, err
	}, func(all []dueq.Result) ([]dueq.Outcome, error) {
		return s.store.Settle(c.r.Context(), c.queue, all)
	})
}

func (v verdict) parse(queue string) (dueq.Result, error) {
	t, err := parseLease(queue, v.Member, v.Lease)
	if err != nil {
		return dueq.Result{}, err
	}
	if v.Body != nil && v.BodyBase64 != nil {
		return dueq.Result{}, refused("body", "and body_base64 are both there")
	}
	t.Body = v.Bytes()
	r := dueq.Result{Task: t, Err: v.Error}
	if r.Verdict, err = dueq.ParseVerdict(v.Outcome); err != nil {
		return r, err
	}
	switch {
	case v.DelayMs != nil:
		r.Delay = ms(*v.DelayMs)
	case r.Verdict == dueq.VerdictRetry:
		r.Delay = dueq.ByPolicy
	}
	return r, nil
}

func (s *Server) extend(c *call, in *extendRequest) (*results, error) {
	out, err := many(in.Leases, func(l heldLease) (string, dueq.Lease, error) {
		t, err := parseLease(c.queue, l.Member, l.Lease)
		if err != nil {
			return l.Member, dueq.Lease{}, err
		}
		return l.Member, t.Lease, nil
	}, func(all []dueq.Lease) ([]dueq.Outcome, error) {
		return s.store.Extend(c.r.Context(), c.queue, all, ms(in.LeaseMs))
	})
	if err != nil {
		return nil, err
	}
	for i := range out.Results {
		r := &out.Results[i]
		r.DueAt, r.LeaseEndsAt = view.Instant{}, r.DueAt // of an extended lease the outcome tells the end
	}
	return out, nil
}
