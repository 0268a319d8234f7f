package httpapi

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dueq/dueq"
)

// gateClaims holds back the answers of claims that brought tasks until the
// returned function is called.
func (b *pollTest) gateClaims() (open func()) {
	gate := make(chan struct{})
	b.tap.hold(func(op, queue string) {
		if op == "claim" && b.get(queue, "a").State != dueq.StateScheduled {
			<-gate
		}
	})
	return func() { close(gate); synctest.Wait() }
}

var deliveries = []string{"at_least_once", "at_most_once"}

func TestPollsThatVanish(t *testing.T) {
	pollBubble(t, "while they wait are claimed nothing for", func(b *pollTest) {
		ctx, cancel := context.WithCancel(b.Context())
		got := b.pollWith(ctx, b.p, dueq.ClaimRequest{Queue: "q", Max: 1}, 20*time.Second)
		b.pass(time.Second)
		cancel()
		if a := b.answer(got); !errors.Is(a.err, context.Canceled) || len(a.Tasks) > 0 {
			b.Errorf("got %q, %v, want the error of the context", a.members(), a.err)
		}
		b.schedule("q", dueq.In(0), "a")
		b.pass(time.Minute)
		b.untouched("q", "a")
		if b.p.waiting() != 0 {
			b.Errorf("%d wait", b.p.waiting())
		}
		if a := b.answer(b.pollWith(ctx, b.p, dueq.ClaimRequest{Queue: "q", Max: 1}, 0)); !errors.Is(a.err, context.Canceled) {
			b.Errorf("plain claim of who has gone: %q, %v", a.members(), a.err)
		}
		b.untouched("q", "a")
	})
	for _, delivery := range deliveries {
		pollBubble(t, "while a claim is under way leave the tasks to the next, "+delivery, func(b *pollTest) {
			b.set("q", "delivery", delivery)
			ctx, cancel := context.WithCancel(b.Context())
			gone := b.pollWith(ctx, b.p, dueq.ClaimRequest{Queue: "q", Max: 2}, 20*time.Second)
			next := b.poll(20 * time.Second)
			open := b.gateClaims()
			b.schedule("q", dueq.In(time.Second), "a")
			b.pass(time.Second)
			cancel()
			if a := b.answer(gone); !errors.Is(a.err, context.Canceled) {
				b.Errorf("got %q, %v, want the error of the context", a.members(), a.err)
			}
			b.still(next)
			open()
			if a := b.want(next, "a"); a.Tasks[0].Attempt != 1 {
				b.Errorf("attempt %d", a.Tasks[0].Attempt)
			}
		})
		pollBubble(t, "while a claim is under way leave the tasks to nobody: they go back, "+delivery, func(b *pollTest) {
			b.set("q", "delivery", delivery)
			ctx, cancel := context.WithCancel(b.Context())
			b.pollWith(ctx, b.p, dueq.ClaimRequest{Queue: "q", Max: 10}, 20*time.Second)
			open := b.gateClaims()
			due := time.Now().Add(time.Second)
			b.schedule("q", dueq.At(due), "a", "b", "c")
			b.pass(time.Second)
			cancel()
			open()
			for _, id := range []string{"a", "b", "c"} {
				b.untouched("q", id)
			}
			b.want(b.poll(time.Second), "a")
			if n := b.tap.count(time.Time{}, "settle"); n != 1 {
				b.Errorf("%d calls to release three tasks", n)
			}
		})
		pollBubble(t, "during a plain claim leave the tasks to who waits, "+delivery, func(b *pollTest) {
			b.set("q", "delivery", delivery)
			b.schedule("q", dueq.In(0), "a")
			b.pass(time.Second)
			open := b.gateClaims()
			ctx, cancel := context.WithCancel(b.Context())
			gone := b.pollWith(ctx, b.p, dueq.ClaimRequest{Queue: "q", Max: 1}, 0)
			cancel()
			next := b.poll(20 * time.Second)
			b.still(gone)
			open()
			b.want(next, "a")
			if a := b.answer(gone); !errors.Is(a.err, context.Canceled) {
				b.Errorf("got %q, %v, want the error of the context", a.members(), a.err)
			}
		})
		pollBubble(t, "when they were just answered leave the tasks to the next, "+delivery, func(b *pollTest) {
			b.set("q", "delivery", delivery)
			w := b.p.join(dueq.ClaimRequest{Queue: "q", Max: 5})
			next := b.poll(20 * time.Second)
			b.schedule("q", dueq.In(time.Second), "a", "b")
			b.pass(time.Second)
			<-w.ready
			b.p.abandon(w)
			b.want(next, "a")
			b.pass(time.Millisecond)
			b.untouched("q", "b")
		})
		pollBubble(t, "before the answer was written give all back, "+delivery, func(b *pollTest) {
			b.set("q", "delivery", delivery)
			b.schedule("q", dueq.In(0), "a", "b")
			b.pass(time.Second)
			first := b.answer(b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: "q", Max: 5}, 20*time.Second))
			next := b.poll(20 * time.Second)
			b.p.giveBack("q", first.Claim)
			b.pass(10 * time.Millisecond)
			a := b.want(next, "a")
			b.p.giveBack("q", a.Claim)
			b.pass(time.Second)
			b.untouched("q", "a")
			b.untouched("q", "b")
			b.p.close()
			b.p.giveBack("q", b.claim(5)) // a handler that outlived the server
			b.untouched("q", "a")
		})
	}
	pollBubble(t, "leave tasks to the next that asked for the same lease", func(b *pollTest) {
		ctx, cancel := context.WithCancel(b.Context())
		b.pollWith(ctx, b.p, dueq.ClaimRequest{Queue: "q", Max: 1}, 20*time.Second)
		other := b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: "q", Max: 1, Lease: time.Hour}, 20*time.Second)
		same := b.poll(20 * time.Second)
		open := b.gateClaims()
		b.schedule("q", dueq.In(time.Second), "a")
		b.pass(time.Second)
		cancel()
		open()
		b.want(same, "a")
		b.still(other)
	})
	pollBubble(t, "leave what nobody asked for with that lease to a claim of its own", func(b *pollTest) {
		ctx, cancel := context.WithCancel(b.Context())
		b.pollWith(ctx, b.p, dueq.ClaimRequest{Queue: "q", Max: 1}, 20*time.Second)
		other := b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: "q", Max: 1, Lease: time.Hour}, 20*time.Second)
		open := b.gateClaims()
		b.schedule("q", dueq.In(time.Second), "a")
		b.pass(time.Second)
		cancel()
		open()
		b.pass(10 * time.Millisecond)
		if a := b.want(other, "a"); a.LeaseEnds.Sub(a.Now) < time.Hour {
			b.Errorf("lease of %v", a.LeaseEnds.Sub(a.Now))
		}
	})
	pollBubble(t, "leave what was claimed at most once to the next, whatever lease that asked for", func(b *pollTest) {
		b.set("q", "delivery", "at_most_once")
		ctx, cancel := context.WithCancel(b.Context())
		b.pollWith(ctx, b.p, dueq.ClaimRequest{Queue: "q", Max: 1}, 20*time.Second)
		other := b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: "q", Max: 1, Lease: time.Hour}, 20*time.Second)
		open := b.gateClaims()
		b.schedule("q", dueq.In(time.Second), "a")
		b.pass(time.Second)
		cancel()
		open()
		b.want(other, "a")
		if n := b.tap.count(time.Time{}, "settle"); n > 0 {
			b.Errorf("%d calls to release it", n)
		}
	})
	pollBubble(t, "when the wait ended with a claim under way get its answer", func(b *pollTest) {
		got := b.poll(5 * time.Second)
		open := b.gateClaims()
		b.schedule("q", dueq.In(5*time.Second-time.Millisecond), "a")
		b.pass(6 * time.Second)
		b.still(got)
		open()
		b.want(got, "a")
	})
	pollBubble(t, "when draining with a claim under way get its answer", func(b *pollTest) {
		got := b.poll(20 * time.Second)
		open := b.gateClaims()
		b.schedule("q", dueq.In(time.Second), "a")
		b.pass(time.Second)
		b.p.drain()
		b.still(got)
		open()
		b.want(got, "a")
	})
	for _, delivery := range deliveries {
		pollBubble(t, "while the store is away: what they leave is released when it is back, "+delivery, func(b *pollTest) {
			b.set("q", "delivery", delivery)
			b.schedule("q", dueq.In(0), "a")
			b.pass(time.Second)
			c := b.answer(b.poll(time.Second)).Claim
			b.outage(0)
			b.p.giveBack("q", c)
			b.pass(10 * time.Second)
			if got := b.get("q", "a").State; got == dueq.StateScheduled {
				b.Error("it was released by a store that is away")
			}
			b.tap.mend()
			b.pass(2 * time.Second)
			b.untouched("q", "a")
		})
		pollBubble(t, "are released at the latest by close, "+delivery, func(b *pollTest) {
			b.set("q", "delivery", delivery)
			b.schedule("q", dueq.In(0), "a")
			b.pass(time.Second)
			c := b.answer(b.poll(time.Second)).Claim
			b.outage(0)
			b.p.giveBack("q", c)
			synctest.Wait()
			b.tap.mend()
			b.p.close()
			b.untouched("q", "a")
			if n := b.logs.count("ERROR"); n > 0 {
				b.Errorf("%d errors logged", n)
			}
		})
	}
	pollBubble(t, "are not released twice if that would make two of one", func(b *pollTest) {
		b.set("q", "delivery", "at_most_once")
		b.schedule("q", dueq.In(0), "a")
		b.pass(time.Second)
		c := b.answer(b.poll(time.Second)).Claim
		b.tap.spoil(func(op, _ string) pollFault {
			if op == "settle" {
				return pollFault{err: unavailableCall(op, true), happened: true}
			}
			return pollFault{}
		})
		b.p.giveBack("q", c)
		b.pass(time.Second)
		b.claim(1) // somebody takes it
		b.pass(time.Minute)
		if got := b.get("q", "a").State; got != dueq.StateNone {
			b.Errorf("the task is %v again", got)
		}
	})
}

// claim claims past the polls.
func (b *pollTest) claim(n int) dueq.Claim {
	b.Helper()
	c, err := b.mem.Claim(b.Context(), dueq.ClaimRequest{Queue: "q", Max: n})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// outage makes every call fail after so long a time.
func (b *pollTest) outage(takes time.Duration) {
	b.tap.spoil(func(op, _ string) pollFault {
		return pollFault{err: unavailableCall(op, takes > 0), takes: takes}
	})
}

func TestPollsOfAStoreThatIsAway(t *testing.T) {
	for _, hangs := range []time.Duration{0, time.Second} {
		pollBubble(t, fmt.Sprintf("wait for it, each call taking %v", hangs), func(b *pollTest) {
			waits := b.poll(60 * time.Second)
			b.pass(time.Second)
			b.schedule("q", dueq.In(5*time.Second), "a")
			began := time.Now()
			b.outage(hangs)
			early := b.poll(4 * time.Second)
			b.pass(30 * time.Second)
			if a := b.answer(early); !errors.Is(a.err, dueq.ErrUnavailable) || mayHaveHappened(a.err) {
				b.Errorf("answered %q, %v, want ErrUnavailable, and that no claim was made", a.members(), a.err)
			}
			b.still(waits)
			if err := b.p.moving(); !errors.Is(err, dueq.ErrUnavailable) {
				b.Errorf("moving: %v, want ErrUnavailable", err)
			}
			if n := b.tap.count(began, "claim", "stats", "settle"); n < 10 || n > 100 {
				b.Errorf("%d calls in 30 s, want some", n)
			}
			if n := b.tap.count(began, "claim"); n > 1 {
				b.Errorf("%d claims of a store that is away", n)
			}
			if n := b.logs.count("WARN"); n < 1 || n > 4 {
				b.Errorf("%d warnings in 30 s, want one in ten", n)
			}
			b.tap.mend()
			b.pass(3 * time.Second)
			b.want(waits, "a")
			if err := b.p.moving(); err != nil {
				b.Errorf("moving: %v", err)
			}
			if n := b.logs.count("INFO store available again"); n != 1 {
				b.Errorf("said %d times that the store is back", n)
			}
		})
	}
	pollBubble(t, "hear that a claim for them may have happened, unless a later one brings tasks", func(b *pollTest) {
		b.schedule("q", dueq.In(time.Second), "a")
		b.schedule("q", dueq.In(10*time.Second), "b")
		first, second := b.poll(20*time.Second), b.poll(20*time.Second)
		b.tap.spoil(func(op, _ string) pollFault {
			if op == "claim" {
				return pollFault{err: unavailableCall(op, true), happened: true}
			}
			return pollFault{}
		})
		b.pass(time.Second)
		b.tap.mend()
		b.pass(4 * time.Second)
		b.still(first)
		late := b.poll(10 * time.Second)
		b.pass(6 * time.Second)
		b.want(first, "b")
		b.pass(10 * time.Second)
		if a := b.answer(second); !errors.Is(a.err, dueq.ErrUnavailable) || !mayHaveHappened(a.err) {
			b.Errorf("answered %q, %v, want that it may have happened", a.members(), a.err)
		}
		b.want(late, "")
		if got := b.get("q", "a").State; got != dueq.StateActive {
			b.Errorf("a is %v, so this tested nothing", got)
		}
		b.pass(20 * time.Second)
		if info := b.get("q", "a"); info.State != dueq.StateScheduled || info.Failures != 1 {
			b.Errorf("36 s later a is %v with %d failures, want it back as its lease ended", info.State, info.Failures)
		}
	})
	pollBubble(t, "hear at once what waiting does not mend", func(b *pollTest) {
		b.tap.spoil(func(_, queue string) pollFault {
			if queue == "q" {
				return pollFault{err: errors.New("WRONGTYPE")}
			}
			return pollFault{}
		})
		for range 3 {
			got := b.poll(20 * time.Second)
			b.pass(1500 * time.Millisecond)
			if a := b.answer(got); a.err == nil || errors.Is(a.err, dueq.ErrUnavailable) {
				b.Errorf("answered %q, %v, want the store's error", a.members(), a.err)
			}
		}
		b.tap.mend()
		got := b.poll(20 * time.Second)
		b.schedule("q", dueq.In(0), "a")
		b.pass(2 * time.Second)
		b.want(got, "a")
	})
	pollBubble(t, "hold up no other queue, be there a hundred that hang", func(b *pollTest) {
		b.tap.spoil(func(op, queue string) pollFault {
			if queue != "q" {
				return pollFault{err: unavailableCall(op, false), takes: time.Second}
			}
			return pollFault{}
		})
		for i := range 100 {
			b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: fmt.Sprint("hangs", i), Max: 1}, 5*time.Minute)
		}
		b.pass(time.Minute) // each had to find out
		for i := range 20 {
			got := b.poll(20 * time.Second)
			b.pass(333 * time.Millisecond)
			b.schedule("q", dueq.In(0), fmt.Sprint("t", i))
			b.pass(time.Millisecond)
			b.want(got, fmt.Sprint("t", i))
		}
		if err := b.p.moving(); err == nil {
			b.Error("a hundred queues hang, and all is well")
		}
	})
	pollBubble(t, "are told of by moving when a call never returns", func(b *pollTest) {
		if err := b.p.moving(); err != nil {
			b.Errorf("nobody waits: %v", err)
		}
		gate := make(chan struct{})
		b.tap.spoil(func(string, string) pollFault {
			<-gate
			return pollFault{}
		})
		got := b.poll(time.Hour)
		b.pass(stuckAfter)
		if err := b.p.moving(); err != nil {
			b.Errorf("after %v: %v", stuckAfter, err)
		}
		b.pass(stuckAfter)
		if err := b.p.moving(); !errors.Is(err, errHangs) {
			b.Errorf("after %v: %v, want that it hangs", 2*stuckAfter, err)
		}
		close(gate)
		b.pass(time.Second)
		if err := b.p.moving(); err != nil {
			b.Errorf("after it returned: %v", err)
		}
		b.still(got)
	})
}
