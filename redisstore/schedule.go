package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
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

// century is the longest delay that, in us, can be added to the clock exactly.
const century = 100 * 365 * 24 * time.Hour

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
	plain bool // all replace, and have neither body nor priority
	full  bool
}

// batches puts items into one batch a queue, in order, until a queue's call is
// full; the items from there on are left for the next round trip.
func (s *Store) batches(items []dueq.Item, order []int) (out []*batch, left []int) {
	var b *batch
	byQueue := map[string]*batch{}
	for n, i := range order {
		item := &items[i]
		if b == nil || b.in.keys.queue != item.Queue {
			if b = byQueue[item.Queue]; b == nil {
				b = &batch{in: &invocation{script: scheduleScript, keys: s.keysOf(item.Queue), where: always}, plain: true}
				b.items = make([]int, 0, min(perCall, len(order)-n))
				byQueue[item.Queue] = b
				out = append(out, b)
			}
		}
		size := len(item.Task.Body)
		if b.full || len(b.items) == perCall || len(b.items) > 0 && b.bytes+size > dueq.MaxBytes {
			b.full = true
			left = append(left, i)
			continue
		}
		b.bytes += size
		b.items = append(b.items, i)
		b.plain = b.plain && item.IfExists == dueq.Replace && item.Task.Body == nil && item.Task.Priority == 0
	}
	for _, b := range out {
		b.in.args = []any{"0", s.wakeChannel(), b.in.keys.queue, "", ""}
		if b.plain {
			b.encodePlain(items)
		} else {
			b.encode(items)
		}
	}
	return out, left
}

// encodePlain writes when and member of each item. All texts share one string,
// and the arguments point into it: that spares an allocation for each.
func (b *batch) encodePlain(items []dueq.Item) {
	buf := make([]byte, 0, 48*len(b.items))
	ends := make([]int, 0, 2*len(b.items))
	instants, delays, earliest := 0, 0, int64(math.MaxInt64)
	for _, i := range b.items {
		if due, absolute := items[i].When.Absolute(); absolute {
			instants++
			earliest = min(earliest, due)
		} else if items[i].When.Delay() <= century {
			delays++
		}
		buf = appendWhen(buf, items[i].When)
		ends = append(ends, len(buf))
		buf = items[i].Task.AppendMember(buf)
		ends = append(ends, len(buf))
	}
	all, start := string(buf), 0
	texts := make([]string, len(ends))
	args := append(make([]any, 0, 5+len(ends)), b.in.args...)
	args[3], args[4] = "m", earliest
	switch len(b.items) {
	case instants:
		args[3] = "a"
	case delays:
		args[3] = "r"
	}
	for i, end := range ends {
		texts[i] = all[start:end]
		args = append(args, &texts[i])
		start = end
	}
	b.in.args = args
}

func (b *batch) encode(items []dueq.Item) {
	for _, i := range b.items {
		item := &items[i]
		b.in.args = append(b.in.args, whenArg(item.When), item.Task.Member(), modeArg(item))
		if item.Task.Body != nil {
			b.in.args = append(b.in.args, item.Task.Body)
		}
	}
}

func modeArg(item *dueq.Item) string {
	if item.Task.Body != nil {
		return "RKEL"[item.IfExists : item.IfExists+1]
	}
	return "rkel"[item.IfExists : item.IfExists+1]
}

func whenArg(w dueq.When) string { return string(appendWhen(nil, w)) }

func delayArg(d time.Duration) string { return string(appendWhen(nil, dueq.In(d))) }

// appendWhen appends +us for a delay, ms for an instant.
func appendWhen(b []byte, w dueq.When) []byte {
	if due, ok := w.Absolute(); ok {
		return strconv.AppendInt(b, due, 10)
	}
	return strconv.AppendInt(append(b, '+'), delayMicro(w.Delay()), 10)
}

// delayMicro rounds up to microseconds, and above 2^53 of them to what a Lua
// number can hold.
func delayMicro(d time.Duration) int64 {
	us := int64(d / time.Microsecond)
	if d%time.Microsecond != 0 && us < math.MaxInt64 {
		us++
	}
	if us > 1<<53 {
		us += us & 1
	}
	return us
}

// dueOf is when an item is due that was scheduled at a time of the server's
// clock, as the scripts count. Near the year 9999 that clock comes rounded.
func dueOf(w dueq.When, clockMicro int64) int64 {
	if due, ok := w.Absolute(); ok {
		return due
	}
	us := delayMicro(w.Delay())
	return min(clockMicro/1000+us/1000+(clockMicro%1000+us%1000+999)/1000, dueq.MaxDueMilli)
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
				scheduled(b, items, reply, outcomes)
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

// scheduled reads the answer of schedule.lua.
func scheduled(b *batch, items []dueq.Item, reply []any, outcomes []dueq.Outcome) {
	clock, codes, numbers := reply[1].(int64), reply[3].(string), reply[4:]
	number := func() int64 {
		n := numbers[0].(int64)
		numbers = numbers[1:]
		return n
	}
	for n, i := range b.items[:len(codes)] {
		switch when := items[i].When; codes[n] {
		case '1':
			outcomes[i] = dueq.Outcome{Status: dueq.StatusScheduled, Due: time.UnixMilli(dueOf(when, clock))}
		case '2':
			outcomes[i] = dueq.Outcome{Status: dueq.StatusReplaced, Due: time.UnixMilli(dueOf(when, clock))}
		case '3':
			outcomes[i] = dueq.Outcome{Status: dueq.StatusKept, Due: time.UnixMilli(number())}
		case '4':
			outcomes[i] = dueq.Outcome{Status: dueq.StatusRunning, Due: time.UnixMilli(dueOf(when, clock))}
		case '5':
			outcomes[i] = refused(&dueq.FieldError{Field: "priority", Reason: "is given, but the queue's setting priority is off"})
		case '6':
			outcomes[i] = refused(fmt.Errorf("body is %d bytes, body_max of the queue is %d: %w", len(items[i].Task.Body), number(), dueq.ErrTooLarge))
		default:
			outcomes[i] = refused(beyond(when))
		}
	}
	b.items = b.items[len(codes):]
}

// beyond is the error for a due time that only the server's clock could tell
// is out of bounds.
func beyond(w dueq.When) error {
	return &dueq.FieldError{Field: "delay", Reason: fmt.Sprintf("%v from now is after the year 9999", w.Delay())}
}
