package redisstore

import (
	"cmp"
	"context"
	"slices"
	"strings"
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
		in := &invocation{script: settleScript, keys: k, where: once, args: s.settleArgs(queue, results, good)}
		s.setReplicas(in)
		reply, err := s.invoke(ctx, "settle", in)
		if err != nil {
			return outcomes, err
		}
		good = settled(good, reply, outcomes)
	}
	return outcomes, nil
}

// settled reads the answer of settle.lua: a letter each, small where a due time
// follows. It returns those that are left.
func settled(order []int, reply []any, outcomes []dueq.Outcome) (left []int) {
	codes, dues := reply[2].(string), reply[3:]
	for i := range len(codes) {
		due := int64(-1)
		if codes[i] >= 'a' {
			due, dues = dues[0].(int64), dues[1:]
		}
		outcomes[order[i]] = inForce(settledStatus[codes[i]&^0x20-'A'], due)
	}
	return order[len(codes):]
}

// settledStatus are what the letters A, B and C mean.
var settledStatus = [...]dueq.Status{dueq.StatusLeaseLost, dueq.StatusDone, dueq.StatusSuperseded}

// inForce is an outcome with its due time in ms, -1 for none.
func inForce(status dueq.Status, due int64) dueq.Outcome {
	o := dueq.Outcome{Status: status}
	if due >= 0 {
		o.Due = time.UnixMilli(due)
	}
	return o
}

// settleArgs writes the results of one call, at least one.
func (s *Store) settleArgs(queue string, results []dueq.Result, order []int) []any {
	order = order[:min(len(order), perCall)]
	if !slices.ContainsFunc(order, func(i int) bool { return !plainAck(&results[i]) }) {
		return s.ackArgs(queue, results, order)
	}
	args := append(make([]any, 0, 3+2*len(order)), s.wakeChannel(), queue, "")
	size := 0
	for n, i := range order {
		if carriesBody(&results[i]) {
			size += len(results[i].Task.Body)
		}
		if n > 0 && size > dueq.MaxBytes {
			break
		}
		args = appendResult(args, &results[i])
	}
	return args
}

func plainAck(r *dueq.Result) bool {
	lease := &r.Task.Lease
	return r.Verdict == dueq.VerdictAck && lease.Token != onceToken && lease.Member != "" && !strings.Contains(lease.Member, " ")
}

// ackArgs writes acks by claims, in the order of the active set: those of one
// claim share a token, and where all that are left of it are acked the script
// need not look at each.
func (s *Store) ackArgs(queue string, results []dueq.Result, order []int) []any {
	slices.SortFunc(order, func(i, j int) int {
		a, b := &results[i].Task.Lease, &results[j].Task.Lease
		return cmp.Or(cmp.Compare(a.Token, b.Token), strings.Compare(a.Member, b.Member))
	})
	args := []any{s.wakeChannel(), queue, "k"}
	for len(order) > 0 {
		token := results[order[0]].Task.Lease.Token
		var members []byte
		n := 0
		for ; n < len(order) && results[order[n]].Task.Lease.Token == token; n++ {
			members = append(append(members, results[order[n]].Task.Lease.Member...), ' ')
		}
		args = append(args, int64(token), n, members[:len(members)-1])
		order = order[n:]
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
	args = append(args, r.Task.Lease.Member, letters[r.Verdict:r.Verdict+1]+itoa(numberOf(r.Task.Lease.Token)))
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
		args = append(args, l.Member, numberOf(l.Token))
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
