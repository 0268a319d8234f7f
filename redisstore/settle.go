package redisstore

import (
	"context"
	"time"

	"github.com/dueq/dueq"
)

// Settle implements dueq.Store.
func (s *Store) Settle(ctx context.Context, queue string, results []dueq.Result) ([]dueq.Outcome, error) {
	if err := validCall(queue, "results", len(results)); err != nil || len(results) == 0 {
		return nil, err
	}
	outcomes := make([]dueq.Outcome, len(results))
	var good []int
	for i, r := range results {
		if err := r.Validate(); err != nil {
			outcomes[i] = refused(err)
			continue
		}
		good = append(good, i)
	}
	k := s.keysOf(queue)
	ctx, cancel := s.within(ctx)
	defer cancel()
	s.meet(ctx, k)
	for len(good) > 0 {
		in := &invocation{script: settleScript, keys: k, where: once}
		s.setReplicas(in)
		in.args = append([]any{s.wakeChannel(), queue}, settleArgs(results, good)...)
		reply, err := s.invoke(ctx, "settle", in)
		if err != nil {
			return outcomes, err
		}
		n := len(reply)/2 - 1
		for i, at := range good[:n] {
			outcomes[at] = settled(reply[2+2*i].(int64), reply[3+2*i].(int64))
		}
		good = good[n:]
	}
	return outcomes, nil
}

// settled reads the codes of settle.lua.
func settled(code, due int64) dueq.Outcome {
	return inForce([...]dueq.Status{dueq.StatusLeaseLost, dueq.StatusDone, dueq.StatusSuperseded}[code], due)
}

// inForce is an outcome with its due time in ms, -1 for none.
func inForce(status dueq.Status, due int64) dueq.Outcome {
	o := dueq.Outcome{Status: status}
	if due >= 0 {
		o.Due = time.UnixMilli(due)
	}
	return o
}

// settleArgs writes the results of one call, at least one.
func settleArgs(results []dueq.Result, order []int) []any {
	args := make([]any, 0, 2*len(order))
	size := 0
	for n, i := range order {
		if carriesBody(&results[i]) {
			size += len(results[i].Task.Body)
		}
		if n > 0 && size > dueq.MaxBytes || n == perCall {
			break
		}
		args = appendResult(args, &results[i])
	}
	return args
}

// carriesBody: only what was claimed at most once brings its body back.
func carriesBody(r *dueq.Result) bool {
	return r.Task.Lease.Token == onceToken && (r.Verdict == dueq.VerdictAgain || r.Verdict == dueq.VerdictRelease)
}

func validCall(queue, field string, n int) error {
	if err := dueq.ValidateQueue(queue); err != nil {
		return err
	}
	return atMost(field, n)
}

// appendResult writes one task's arguments of settle.lua.
func appendResult(args []any, r *dueq.Result) []any {
	once := r.Task.Lease.Token == onceToken
	letters := "krald"
	if once {
		letters = "KRALD"
	}
	args = append(args, r.Task.Lease.Member, letters[r.Verdict:r.Verdict+1]+itoa(int64(r.Task.Lease.Token)))
	switch r.Verdict {
	case dueq.VerdictRetry:
		return append(args, retryArg(r.Delay), dueq.CutError(r.Err))
	case dueq.VerdictDead:
		return append(args, dueq.CutError(r.Err))
	case dueq.VerdictAgain:
		return appendOnce(append(args, delayArg(r.Delay)), once, r.Task.Round+1, r.Task.Body)
	case dueq.VerdictRelease:
		return appendOnce(append(args, releaseArg(r)), once, r.Task.Round, r.Task.Body)
	}
	return args
}

func retryArg(d time.Duration) string {
	if d < 0 {
		return "p"
	}
	return delayArg(d)
}

func releaseArg(r *dueq.Result) string {
	if r.Delay > 0 {
		return delayArg(r.Delay)
	}
	return itoa(r.Task.Due.UnixMilli())
}

// appendOnce adds what a task that is in no place any more brings back.
func appendOnce(args []any, once bool, rounds int, body []byte) []any {
	switch {
	case !once:
		return args
	case body == nil:
		return append(args, rounds, "0")
	}
	return append(args, rounds, "1", body)
}

// Extend implements dueq.Store.
func (s *Store) Extend(ctx context.Context, queue string, leases []dueq.Lease, d time.Duration) ([]dueq.Outcome, error) {
	if err := validCall(queue, "leases", len(leases)); err != nil {
		return nil, err
	}
	if err := validLease(d); err != nil {
		return nil, err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	args := append(make([]any, 0, 2+2*len(leases)), micros(d))
	for _, l := range leases {
		args = append(args, l.Member, int64(l.Token))
	}
	reply, err := s.timed(ctx, "extend", &invocation{script: extendScript, keys: s.keysOf(queue)}, args...)
	if err != nil {
		return nil, err
	}
	if reply[0].(int64) == 2 {
		return nil, leaseOver(d, reply[2].(int64))
	}
	ends := time.Unix(reply[2].(int64), 0)
	outcomes := make([]dueq.Outcome, len(leases))
	for i, code := range reply[3:] {
		outcomes[i] = dueq.Outcome{Status: dueq.StatusLeaseLost}
		if code.(int64) == 1 {
			outcomes[i] = dueq.Outcome{Status: dueq.StatusDone, Due: ends}
		}
	}
	return outcomes, nil
}
