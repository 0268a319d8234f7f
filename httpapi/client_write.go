package httpapi

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/item"
	"github.com/dueq/dueq/internal/view"
)

// schedulesAtOnce is how many queues one Schedule writes to at the same time.
const schedulesAtOnce = 8

// Schedule implements dueq.Store. The items of one queue share a request, as far
// as their bodies are 1 MiB together; requests for different queues go at the
// same time. A delay is rounded up to the millisecond.
func (c *Client) Schedule(ctx context.Context, items []dueq.Item) ([]dueq.Outcome, error) {
	r := clientRequest{op: "schedule"}
	ctx, end, err := c.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := countWithin("items", len(items)); err != nil {
		return nil, r.failed(err)
	}
	outcomes := make([]dueq.Outcome, len(items))
	return whatIsKnown(outcomes, c.sendAll(ctx, batchesOf(items, outcomes)))
}

// batchesOf sorts items by queue. What is wrong with one is its outcome.
func batchesOf(items []dueq.Item, outcomes []dueq.Outcome) []*batch[item.Item] {
	var batches []*batch[item.Item]
	byQueue := map[string]*batch[item.Item]{}
	for i, it := range items {
		if err := validItem(it); err != nil {
			outcomes[i] = refusedBecause(err)
			continue
		}
		b := byQueue[it.Queue]
		if b == nil {
			b = &batch[item.Item]{
				request:  clientRequest{op: "schedule", queue: it.Queue, path: queuePath(it.Queue, "/tasks/batch")},
				in:       func(items []item.Item) any { return batchRequest{items} },
				outcomes: outcomes,
			}
			byQueue[it.Queue] = b
			batches = append(batches, b)
		}
		b.add(i, wireItem(it), len(it.Task.Body))
	}
	return batches
}

// sendAll sends the batches of different queues, and returns the first error.
func (c *Client) sendAll(ctx context.Context, batches []*batch[item.Item]) error {
	if len(batches) == 1 {
		return batches[0].send(ctx, c)
	}
	errs := make([]error, len(batches))
	turns := make(chan struct{}, schedulesAtOnce)
	var group sync.WaitGroup
	for i, b := range batches {
		turns <- struct{}{}
		group.Go(func() {
			errs[i] = b.send(ctx, c)
			<-turns
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func validItem(it dueq.Item) error {
	if err := dueq.ValidateQueue(it.Queue); err != nil {
		return err
	}
	if err := it.Task.Validate(dueq.MemberMax); err != nil {
		return err
	}
	if _, err := dueq.ParseIfExists(it.IfExists.String()); err != nil {
		return err
	}
	return it.When.Validate()
}

func wireItem(it dueq.Item) item.Item {
	out := item.Item{
		ID: it.Task.ID, Kind: it.Task.Kind, Priority: view.Level(it.Task.Priority), Trace: it.Task.Trace,
		Payload: view.Payload{BodyBase64: it.Task.Body}, When: item.NewWhen(it.When),
	}
	if it.IfExists != dueq.Replace {
		out.IfExists = it.IfExists.String()
	}
	return out
}

// Change implements dueq.Store. A delay is rounded up to the millisecond.
func (c *Client) Change(ctx context.Context, queue string, op dueq.Op, targets []dueq.Target) ([]dueq.Outcome, error) {
	b := &batch[target]{
		request: clientRequest{op: "change", queue: queue, path: queuePath(queue, "/tasks/change")},
		in:      func(targets []target) any { return changeRequest{op.String(), targets} },
	}
	return runBatch(ctx, c, b, "targets", targets, func() error {
		if op > dueq.OpDelete {
			return &dueq.FieldError{Field: "op", Reason: "is not cancel, stop, reschedule, requeue or delete"}
		}
		return nil
	}, func(t dueq.Target) (target, int, error) {
		wire, err := wireTarget(op, t)
		return wire, len(t.Body), err
	})
}

func wireTarget(op dueq.Op, t dueq.Target) (target, error) {
	out := target{Member: t.Member, IfBodyBase64: t.Body}
	if !utf8.ValidString(t.Member) {
		out.Member, out.MemberBase64 = "", []byte(t.Member)
	}
	if op == dueq.OpReschedule || op == dueq.OpRequeue {
		if err := t.When.Validate(); err != nil {
			return target{}, err
		}
		out.When = item.NewWhen(t.When)
	}
	switch {
	case t.State > dueq.StateDead:
		return target{}, &dueq.FieldError{Field: "state", Reason: "is not scheduled, active or dead"}
	case t.State != dueq.StateNone:
		out.IfState = t.State.String()
	}
	if !t.Due.IsZero() {
		out.IfDueAt = view.Instant(ceilMilli(t.Due)).String()
	}
	return out, nil
}

// ceilMilli rounds up, as a due time is.
func ceilMilli(t time.Time) time.Time {
	if down := t.Truncate(time.Millisecond); down.Before(t) {
		return down.Add(time.Millisecond)
	}
	return t
}

// Settle implements dueq.Store. A delay is rounded up to the millisecond, and an
// error that is not UTF-8 is made so.
func (c *Client) Settle(ctx context.Context, queue string, results []dueq.Result) ([]dueq.Outcome, error) {
	b := &batch[verdict]{
		request: clientRequest{op: "settle", queue: queue, path: queuePath(queue, "/settle")},
		in:      func(verdicts []verdict) any { return settleRequest{verdicts} },
	}
	return runBatch(ctx, c, b, "results", results, nil, func(r dueq.Result) (verdict, int, error) {
		if err := r.Validate(); err != nil {
			return verdict{}, 0, err
		}
		if err := validMember(r.Task.Lease.Member); err != nil {
			return verdict{}, 0, err
		}
		wire := wireVerdict(r)
		return wire, len(wire.BodyBase64), nil
	})
}

// wireVerdict has the body where the store may need it: it keeps none of a task
// that was claimed at most once.
func wireVerdict(r dueq.Result) verdict {
	out := verdict{
		Member: r.Task.Lease.Member, Lease: formatLease(r.Task), Outcome: r.Verdict.String(),
		Error: strings.ToValidUTF8(dueq.CutError(r.Err), "\uFFFD"),
	}
	again := r.Verdict == dueq.VerdictAgain
	release := r.Verdict == dueq.VerdictRelease
	retry := r.Verdict == dueq.VerdictRetry
	if again || release && r.Delay > 0 || retry && r.Delay != dueq.ByPolicy {
		out.DelayMs = item.NewWhen(dueq.In(r.Delay)).DelayMs
	}
	if again || release {
		out.BodyBase64 = r.Task.Body
	}
	return out
}

// Extend implements dueq.Store.
func (c *Client) Extend(ctx context.Context, queue string, leases []dueq.Lease, d time.Duration) ([]dueq.Outcome, error) {
	b := &batch[heldLease]{
		request: clientRequest{op: "extend", queue: queue, path: queuePath(queue, "/extend")},
		in:      func(leases []heldLease) any { return extendRequest{leases, leaseMilli(d)} },
	}
	return runBatch(ctx, c, b, "leases", leases, func() error { return validLease(d) }, func(lease dueq.Lease) (heldLease, int, error) {
		return heldLease{lease.Member, formatLease(&dueq.Task{Lease: lease})}, 0, validMember(lease.Member)
	})
}

// validMember refuses what no claim hands out, as the server does. It cannot
// when a member is not UTF-8: JSON would have made another one of it.
func validMember(member string) error {
	_, err := dueq.ParseMember(member)
	return err
}

// validLease checks what rounding to milliseconds would hide.
func validLease(d time.Duration) error {
	if d < time.Second {
		return &dueq.FieldError{Field: "lease", Reason: fmt.Sprintf("%v is under 1s", d)}
	}
	return nil
}

// leaseMilli rounds up, as a lease is.
func leaseMilli(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// runBatch makes a call about some things of one queue, each of which wire
// writes, with the size of its body. valid checks what they have in common, and
// may be nil.
func runBatch[In, T any](ctx context.Context, c *Client, b *batch[T], what string, all []In, valid func() error, wire func(In) (T, int, error)) ([]dueq.Outcome, error) {
	r := b.request
	ctx, end, err := c.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	defer end()
	if err = dueq.ValidateQueue(r.queue); err == nil {
		err = countWithin(what, len(all))
	}
	if err == nil && valid != nil {
		err = valid()
	}
	if err != nil {
		return nil, r.failed(err)
	}
	b.outcomes = make([]dueq.Outcome, len(all))
	for i, one := range all {
		if sent, bytes, err := wire(one); err != nil {
			b.outcomes[i] = refusedBecause(err)
		} else {
			b.add(i, sent, bytes)
		}
	}
	return whatIsKnown(b.outcomes, b.send(ctx, c))
}

func countWithin(what string, n int) error {
	if n > dueq.MaxItems {
		return &dueq.FieldError{Field: what, Reason: fmt.Sprintf("are %d, the limit is %d", n, dueq.MaxItems)}
	}
	return nil
}

// queuePath needs no escaping: names of queues have only what a path may have.
func queuePath(queue, rest string) string { return "/v1/queues/" + queue + rest }

func refusedBecause(err error) dueq.Outcome {
	return dueq.Outcome{Status: dueq.StatusRefused, Err: err}
}
