package history

import (
	"context"
	"time"

	"github.com/dueq/dueq"
)

// Watch returns store as one worker sees it: what it claims, settles and
// extends is recorded. The worker's handlers are recorded by Recorder.Handler.
func Watch(rec *Recorder, store dueq.Store) dueq.Store {
	return &watched{Store: store, rec: rec}
}

type watched struct {
	dueq.Store
	rec *Recorder
}

func (w *watched) Claim(ctx context.Context, req dueq.ClaimRequest) (dueq.Claim, error) {
	asked := Now()
	claim, err := w.Store.Claim(ctx, req)
	answered := Now()
	for _, t := range claim.Tasks {
		w.rec.add(event{Delivered: &Delivery{
			Process: w.rec.process, Key: Key{req.Queue, t.Lease.Member}, Mark: string(t.Body), Token: t.Lease.Token,
			Attempt: t.Attempt, Due: t.Due, Now: claim.Now, LeaseEnds: claim.LeaseEnds, Asked: asked, Answered: answered,
		}})
	}
	return claim, err
}

func (w *watched) Settle(ctx context.Context, queue string, results []dueq.Result) ([]dueq.Outcome, error) {
	calls := make([]*Call, len(results))
	for i, r := range results {
		lease := r.Task.Lease
		calls[i] = w.rec.asked(Call{Do: Settle, Key: Key{queue, lease.Member}, Token: lease.Token, Verdict: r.Verdict, Delay: r.Delay})
	}
	outcomes, err := w.Store.Settle(ctx, queue, results)
	w.answered(calls, outcomes, err)
	return outcomes, err
}

func (w *watched) Extend(ctx context.Context, queue string, leases []dueq.Lease, d time.Duration) ([]dueq.Outcome, error) {
	calls := make([]*Call, len(leases))
	for i, l := range leases {
		calls[i] = w.rec.asked(Call{Do: Extend, Key: Key{queue, l.Member}, Token: l.Token, Delay: d})
	}
	outcomes, err := w.Store.Extend(ctx, queue, leases, d)
	w.answered(calls, outcomes, err)
	return outcomes, err
}

func (w *watched) answered(calls []*Call, outcomes []dueq.Outcome, err error) {
	for i, c := range calls {
		var o dueq.Outcome
		if i < len(outcomes) {
			o = outcomes[i]
		}
		w.rec.answered(c, o, err)
	}
}

// Handler wraps a worker's handler, outermost, so that its runs are recorded.
func (r *Recorder) Handler(next dueq.Handler) dueq.Handler {
	return dueq.HandlerFunc(func(ctx context.Context, t *dueq.Task) error {
		run := runInstant{Process: r.process, Key: Key{t.Queue, t.Lease.Member}, Token: t.Lease.Token, At: Now()}
		r.add(event{Started: &run})
		err := next.Handle(ctx, t)
		end := run
		end.At = Now()
		end.Verdict, _, _ = dueq.VerdictOf(err)
		r.add(event{Ended: &end})
		return err
	})
}

func milliTime(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
