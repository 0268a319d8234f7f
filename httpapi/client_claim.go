package httpapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/dueq/dueq"
)

// Claim implements dueq.Store. It does not wait at the server: a worker sleeps
// by Wait and hints, as with every store.
func (c *Client) Claim(ctx context.Context, req dueq.ClaimRequest) (dueq.Claim, error) {
	r := clientRequest{
		op: "claim", queue: req.Queue, method: http.MethodPost, path: queuePath(req.Queue, "/claim"),
		in: claimRequest{Max: &req.Max, LeaseMs: leaseMilli(req.Lease)}, writes: true,
	}
	ctx, end, err := c.begin(ctx, r)
	if err != nil {
		return dueq.Claim{}, err
	}
	defer end()
	if err := validClaim(req); err != nil {
		return dueq.Claim{}, r.failed(err)
	}
	if err := c.probe(ctx, r); err != nil {
		return dueq.Claim{}, err
	}
	var got claimAnswer
	if err := c.do(ctx, r, &got); err != nil {
		p := (*Problem)(nil)
		c.suspect.Store(errors.Is(err, dueq.ErrUnavailable) && !errors.As(err, &p))
		return dueq.Claim{}, err
	}
	claim, err := got.claim(req.Queue)
	if err != nil {
		return dueq.Claim{}, r.unanswered(err, true)
	}
	return claim, nil
}

func validClaim(req dueq.ClaimRequest) error {
	if err := dueq.ValidateQueue(req.Queue); err != nil {
		return err
	}
	if req.Max < 0 || req.Max > dueq.MaxItems {
		return &dueq.FieldError{Field: "max", Reason: fmt.Sprintf("%d is not 0 to %d", req.Max, dueq.MaxItems)}
	}
	if req.Lease != 0 {
		return validLease(req.Lease)
	}
	return nil
}

// probe asks a server that left a claim unanswered whether it is there before
// it is given another: what a stopped one finds in its sockets it may do later.
func (c *Client) probe(ctx context.Context, r clientRequest) error {
	if !c.suspect.Load() {
		return nil
	}
	look := clientRequest{op: r.op, queue: r.queue, method: http.MethodGet, path: "/livez"}
	if err := c.do(ctx, look, &health{}); err != nil {
		return err
	}
	c.suspect.Store(false)
	return nil
}

func (a claimAnswer) claim(queue string) (dueq.Claim, error) {
	claim := dueq.Claim{Now: instantOf(a.Now), Wait: -1, Previous: instantOf(a.PreviousAt), Paused: a.Paused}
	if claim.Now.IsZero() {
		return dueq.Claim{}, errors.New("the answer to a claim has no time")
	}
	if a.NextInMs != nil {
		claim.Wait = waitOf(claim.Now, *a.NextInMs)
	}
	for _, d := range a.Tasks {
		t, err := parseLease(queue, d.Member, d.Lease)
		if err != nil {
			return dueq.Claim{}, fmt.Errorf("a claimed task cannot be read: %w", err)
		}
		t.Due, t.Attempt, t.Round, t.Body = instantOf(d.DueAt), d.Attempt, d.Round, d.Bytes()
		t.Age = claim.Now.Sub(t.Due)
		claim.LeaseEnds = instantOf(d.LeaseEndsAt)
		claim.Tasks = append(claim.Tasks, t)
	}
	return claim, nil
}

// waitOf is the time from now to a millisecond that nextMs, rounded up, leads to.
func waitOf(now time.Time, nextMs int64) time.Duration {
	const longest = math.MaxInt64 / int64(time.Millisecond)
	wait := time.Duration(min(nextMs, longest)) * time.Millisecond
	beyond := time.Duration(now.Nanosecond()) % time.Millisecond
	if nextMs > 0 && nextMs < longest {
		wait -= beyond
	}
	return max(wait, 0)
}
