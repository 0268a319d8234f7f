package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dueq/dueq"
)

// Schedule implements dueq.Store.
func (s *Store) Schedule(ctx context.Context, items []dueq.Item) ([]dueq.Outcome, error) {
	if err := atMost("items", len(items)); err != nil {
		return nil, err
	}
	outcomes := make([]dueq.Outcome, len(items))
	good := make([]int, 0, len(items))
	for i := range items {
		if err := validateItem(&items[i]); err != nil {
			outcomes[i] = refused(err)
			continue
		}
		good = append(good, i)
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	var failure error
	for len(good) > 0 {
		round, left := s.batches(items, good)
		failed := map[string]bool{} // queues
		if err := s.scheduleBatches(ctx, items, round, outcomes, failed); failure == nil {
			failure = err
		}
		for _, b := range round {
			left = append(left, b.items...) // what was too much for one call
		}
		good = slices.DeleteFunc(left, func(i int) bool { return failed[items[i].Queue] })
		slices.Sort(good)
	}
	return outcomes, failure
}

// perCall is how many items Schedule sends to a queue at once.
const perCall = 500

func validateItem(item *dueq.Item) error {
	if err := dueq.ValidateQueue(item.Queue); err != nil {
		return err
	}
	if err := item.Task.Validate(dueq.MemberMax); err != nil {
		return err
	}
	if item.IfExists > dueq.Later {
		return &dueq.FieldError{Field: "if_exists", Reason: "is not replace, keep, earlier or later"}
	}
	return item.When.Validate()
}

func refused(err error) dueq.Outcome {
	return dueq.Outcome{Status: dueq.StatusRefused, Err: err}
}

func atMost(field string, n int) error {
	if n > dueq.MaxItems {
		return &dueq.FieldError{Field: field, Reason: fmt.Sprintf("are %d, the limit is %d a call", n, dueq.MaxItems)}
	}
	return nil
}

// batch is one queue's share of a round trip. What was answered leaves items.
type batch struct {
	in    *invocation
	items []int
	bytes int
}

// batches puts items into one batch a queue, in order, until a queue's call is
// full; the items from there on are left for the next round trip.
func (s *Store) batches(items []dueq.Item, order []int) (out []*batch, left []int) {
	var last *batch
	byQueue := map[string]*batch{}
	full := map[string]bool{}
	for _, i := range order {
		item := &items[i]
		if last == nil || last.in.keys.queue != item.Queue {
			if last = byQueue[item.Queue]; last == nil {
				k := s.keysOf(item.Queue)
				last = &batch{in: &invocation{script: scheduleScript, keys: k, where: always}}
				last.in.args = append(make([]any, 0, 3+4*len(order)), "0", s.wakeChannel(), item.Queue)
				byQueue[item.Queue] = last
				out = append(out, last)
			}
		}
		size := len(item.Task.Body)
		if full[item.Queue] || len(last.items) == perCall || len(last.items) > 0 && last.bytes+size > dueq.MaxBytes {
			full[item.Queue] = true
			left = append(left, i)
			continue
		}
		last.bytes += size
		last.items = append(last.items, i)
		last.in.args = append(last.in.args, item.Task.Member(), whenArg(item.When), modeArg(item))
		if item.Task.Body != nil {
			last.in.args = append(last.in.args, item.Task.Body)
		}
	}
	return out, left
}

func modeArg(item *dueq.Item) string {
	if item.Task.Body != nil {
		return "RKEL"[item.IfExists : item.IfExists+1]
	}
	return "rkel"[item.IfExists : item.IfExists+1]
}

// whenArg is +us for a delay, ms for an instant.
func whenArg(w dueq.When) string {
	if due, ok := w.Absolute(); ok {
		return itoa(due)
	}
	return delayArg(w.Delay())
}

// delayArg rounds up to microseconds, and above 2^53 of them to what a Lua
// number can hold.
func delayArg(d time.Duration) string {
	us := int64(d / time.Microsecond)
	if d%time.Microsecond != 0 && us < math.MaxInt64 {
		us++
	}
	if us > 1<<53 {
		us += us & 1
	}
	return "+" + itoa(us)
}

// scheduleBatches makes one round trip. It returns the first error and notes
// the queues that failed; they do not keep the others.
func (s *Store) scheduleBatches(ctx context.Context, items []dueq.Item, rounds []*batch, outcomes []dueq.Outcome, failed map[string]bool) (failure error) {
	queues := make([]*keys, len(rounds))
	for i, b := range rounds {
		queues[i] = b.in.keys
	}
	s.meet(ctx, queues...)
	for try := 0; len(rounds) > 0; try++ {
		ins := make([]*invocation, len(rounds))
		for i, b := range rounds {
			b.in.args[0] = s.deadline(ctx, b.in.keys)
			s.setReplicas(b.in)
			ins[i] = b.in
		}
		s.run(ctx, ins)
		var late []*batch
		for _, b := range rounds {
			reply, err := s.answer(ctx, "schedule", b.in)
			if err == nil {
				err = s.checkReplicas(ctx, "schedule", b.in, reply[2].(int64))
			}
			switch {
			case err == nil:
				scheduled(b, items, reply[3:], outcomes)
			case errors.Is(err, errLate) && try == 0 && ctx.Err() == nil:
				late = append(late, b)
			default:
				failed[b.in.keys.queue] = true
				failure = cmp.Or(failure, err)
			}
		}
		rounds = late
	}
	return failure
}

// scheduled reads the codes of schedule.lua.
func scheduled(b *batch, items []dueq.Item, reply []any, outcomes []dueq.Outcome) {
	answered := len(reply) / 2
	for n, i := range b.items[:answered] {
		code, due := reply[2*n].(int64), reply[2*n+1].(int64)
		switch code {
		case 1, 2, 3, 4:
			status := [...]dueq.Status{dueq.StatusScheduled, dueq.StatusReplaced, dueq.StatusKept, dueq.StatusRunning}[code-1]
			outcomes[i] = dueq.Outcome{Status: status, Due: time.UnixMilli(due)}
		case 5:
			outcomes[i] = refused(&dueq.FieldError{Field: "priority", Reason: "is given, but the queue's setting priority is off"})
		case 6:
			outcomes[i] = refused(fmt.Errorf("body is %d bytes, body_max of the queue is %d: %w", len(items[i].Task.Body), due, dueq.ErrTooLarge))
		default:
			outcomes[i] = refused(beyond(items[i].When))
		}
	}
	b.items = b.items[answered:]
}

// beyond is the error for a due time that only the server's clock could tell
// is out of bounds.
func beyond(w dueq.When) error {
	return &dueq.FieldError{Field: "delay", Reason: fmt.Sprintf("%v from now is after the year 9999", w.Delay())}
}
