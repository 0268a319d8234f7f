package httpapi

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

// gate holds back the first answer to op until the returned function is called.
func (b *pollTest) gate(op string) (open func()) {
	gate, first := make(chan struct{}), make(chan struct{}, 1)
	first <- struct{}{}
	wait := func(what string) {
		if what != op {
			return
		}
		select {
		case <-first:
			<-gate
		default:
		}
	}
	b.tap.hold(func(op, _ string) { wait(op) })
	if op == "stats" {
		b.tap.spoil(func(op, _ string) pollFault { wait(op); return pollFault{} })
	}
	return func() { close(gate); b.pass(0) }
}

// What is announced while an answer is on its way is not forgotten over it:
// it is met before the next scan.
func TestPollsHeedWhatTheirAnswersMissed(t *testing.T) {
	pollBubble(t, "a claim under way as a task is announced", func(b *pollTest) {
		open := b.gate("claim")
		got := b.poll(20 * time.Second)
		b.schedule("q", dueq.In(33*time.Millisecond), "a")
		b.pass(2 * time.Millisecond)
		open()
		b.pass(38 * time.Millisecond)
		b.want(got, "a")
	})
	pollBubble(t, "a scan under way as a task is announced", func(b *pollTest) {
		got := b.poll(20 * time.Second)
		b.pass(4999 * time.Millisecond)
		open := b.gate("stats")
		b.pass(2 * time.Millisecond)
		b.schedule("q", dueq.In(33*time.Millisecond), "a")
		b.pass(time.Millisecond)
		open()
		b.pass(37 * time.Millisecond)
		b.want(got, "a")
	})
	pollBubble(t, "a scan under way as a claim learns more", func(b *pollTest) {
		first, second := b.poll(20*time.Second), b.poll(20*time.Second)
		b.pass(4999 * time.Millisecond)
		open := b.gate("stats")
		b.pass(2 * time.Millisecond)
		b.schedule("q", dueq.In(0), "a")
		b.schedule("q", dueq.In(45*time.Millisecond), "b")
		b.pass(time.Millisecond)
		b.want(first, "a")
		b.pass(25 * time.Millisecond)
		open()
		b.pass(20 * time.Millisecond)
		b.want(second, "b")
	})
}

func TestPollsNeedNoHints(t *testing.T) {
	pollBubble(t, "to deliver within the scan cap", func(b *pollTest) {
		b.tap.deaf = true
		got := b.poll(20 * time.Second)
		b.pass(5 * time.Second)
		b.schedule("q", dueq.In(0), "a")
		b.pass(maxScan)
		b.want(got, "a")
	})
	pollBubble(t, "to pass on what was released", func(b *pollTest) {
		b.tap.deaf = true
		ctx, cancel := context.WithCancel(b.Context())
		b.schedule("q", dueq.In(time.Second), "a")
		b.pollWith(ctx, b.p, dueq.ClaimRequest{Queue: "q", Max: 1}, 20*time.Second)
		other := b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: "q", Max: 1, Lease: time.Hour}, 20*time.Second)
		open := b.gateClaims()
		b.pass(time.Second)
		cancel()
		open()
		b.pass(time.Millisecond)
		b.want(other, "a")
	})
}

func TestPollsClaimForMany(t *testing.T) {
	pollBubble(t, "one lease after another, without a pause", func(b *pollTest) {
		var got []<-chan polled
		for i := range 10 {
			req := dueq.ClaimRequest{Queue: "q", Max: 1, Lease: time.Duration(i+1) * time.Minute}
			got = append(got, b.pollWith(b.Context(), b.p, req, 20*time.Second))
		}
		var ids []string
		for i := range 10 {
			ids = append(ids, fmt.Sprint("t", i))
		}
		b.schedule("q", dueq.In(time.Second), ids...)
		b.pass(1001 * time.Millisecond)
		for i, g := range got {
			b.want(g, ids[i])
		}
	})
	pollBubble(t, "of more tasks than a claim may ask for", func(b *pollTest) {
		var got []<-chan polled
		for range 3 {
			got = append(got, b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: "q", Max: dueq.MaxItems - 1}, 20*time.Second))
		}
		for i := range 3 * dueq.MaxItems {
			b.mem.Add("q", fmt.Sprint("t", i), float64(time.Now().UnixMilli()))
		}
		b.pass(2 * maxScan)
		for i, g := range got {
			if a := b.answer(g); a.err != nil || len(a.Tasks) == 0 {
				b.Errorf("poll %d: %d tasks, %v", i, len(a.Tasks), a.err)
			}
		}
	})
	pollBubble(t, "idle on five hundred queues with a round trip a second", func(b *pollTest) {
		for i := range 1000 {
			b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: fmt.Sprint("q", i%500), Max: 1}, time.Hour)
			b.pass(time.Millisecond)
		}
		b.pass(5 * time.Second)
		began := time.Now()
		b.pass(time.Minute)
		if n := b.tap.count(began, "claim", "stats", "settle"); n < 60 || n > 61 {
			b.Errorf("%d round trips in a minute, want 60", n)
		}
		if err := b.p.moving(); err != nil {
			b.Errorf("moving: %v", err)
		}
	})
	pollBubble(t, "with few claims under way, however many queues have tasks", func(b *pollTest) {
		gate := make(chan struct{})
		b.tap.hold(func(op, _ string) {
			if op == "claim" {
				<-gate
			}
		})
		var got []<-chan polled
		for i := range 20 {
			queue := fmt.Sprint("q", i)
			b.schedule(queue, dueq.In(0), "a")
			got = append(got, b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: queue, Max: 1}, time.Hour))
		}
		b.pass(time.Second)
		if n := b.tap.count(time.Time{}, "claim"); n != claimsAtOnce {
			b.Errorf("%d claims under way, want %d", n, claimsAtOnce)
		}
		close(gate)
		for _, g := range got {
			b.want(g, "a")
		}
	})
	pollBubble(t, "without a pause for longer than a queue may stand still", func(b *pollTest) {
		got := b.poll(time.Minute)
		for i := range int(2*stuckAfter/time.Second) * 50 {
			next := b.poll(time.Minute)
			b.schedule("q", dueq.In(0), fmt.Sprint("t", i))
			b.pass(20 * time.Millisecond)
			b.want(got, fmt.Sprint("t", i))
			got = next
			if err := b.p.moving(); err != nil {
				b.Fatalf("moving: %v", err)
			}
		}
	})
	pollBubble(t, "and set aside what can never run", func(b *pollTest) {
		got := b.poll(time.Minute)
		b.pass(5 * time.Second)
		for member, score := range map[string]float64{"beyond": 1e18, "seconds": 1.7e9} {
			b.mem.Add("q", member, score)
			b.pass(2 * maxScan)
			if state := b.get("q", member).State; state != dueq.StateDead {
				b.Errorf("%s is %v, want it dead", member, state)
			}
		}
		b.still(got)
	})
}

func TestPollsDoNotCountARaceThatTheyAreNotIn(t *testing.T) {
	t.Parallel()
	head := time.Now()
	p := linePlan{head: head}
	p.after(dueq.ClaimRequest{}, dueq.Claim{Previous: head, Now: head, Wait: -1}, head)
	if p.losses != 0 {
		t.Error("a claim of none has lost")
	}
	p = linePlan{head: head}
	p.after(dueq.ClaimRequest{Max: 1}, dueq.Claim{Previous: head, Now: head, Wait: -1}, head)
	if p.losses != 1 {
		t.Error("a claim in vain, after somebody else's, has not lost")
	}
}

func TestPollsWhoseWaitEndsDuringAClaim(t *testing.T) {
	pollBubble(t, "that brings nothing", func(b *pollTest) {
		open := b.gate("claim")
		got := b.poll(time.Second)
		b.pass(2 * time.Second)
		b.still(got)
		open()
		b.want(got, "")
	})
	pollBubble(t, "that has not begun, however short the wait", func(b *pollTest) {
		b.schedule("q", dueq.In(0), "a")
		b.pass(time.Second)
		for _, want := range []int{1, 0} {
			w := b.p.join(dueq.ClaimRequest{Queue: "q", Max: 1})
			b.p.expire(w)
			<-w.ready
			if w.err != nil || len(w.claim.Tasks) != want {
				b.Errorf("%d tasks, %v, want %d", len(w.claim.Tasks), w.err, want)
			}
		}
	})
	pollBubble(t, "that could not begin: they hear that nobody looked", func(b *pollTest) {
		gate := make(chan struct{})
		b.tap.spoil(func(op, queue string) pollFault {
			if op == "claim" && queue != "q" {
				<-gate
			}
			return pollFault{}
		})
		for i := range claimsAtOnce {
			b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: fmt.Sprint("hangs", i), Max: 1}, time.Hour)
		}
		short, long := b.poll(100*time.Millisecond), b.poll(time.Hour)
		b.pass(2 * maxScan)
		if a := b.answer(short); !errors.Is(a.err, dueq.ErrUnavailable) || mayHaveHappened(a.err) {
			b.Errorf("answered %q, %v, want ErrUnavailable, and that no claim was made", a.members(), a.err)
		}
		b.schedule("q", dueq.In(0), "a")
		close(gate)
		b.pass(time.Millisecond)
		b.want(long, "a")
	})
	pollBubble(t, "that could not begin before all is closed", func(b *pollTest) {
		gate := make(chan struct{})
		b.tap.spoil(func(op, queue string) pollFault { <-gate; return pollFault{} })
		for i := range claimsAtOnce {
			b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: fmt.Sprint("hangs", i), Max: 1}, time.Hour)
		}
		got := b.poll(time.Hour)
		go b.p.close()
		b.pass(time.Second)
		close(gate)
		b.pass(time.Second)
		if a := b.answer(got); len(a.Tasks) > 0 || a.err != nil && !errors.Is(a.err, dueq.ErrUnavailable) {
			b.Errorf("answered %q, %v", a.members(), a.err)
		}
	})
	pollBubble(t, "that fails after it may have happened", func(b *pollTest) {
		b.outage(1500 * time.Millisecond)
		got := b.poll(time.Second)
		b.pass(1499 * time.Millisecond)
		b.still(got)
		b.pass(time.Millisecond)
		if a := b.answer(got); !mayHaveHappened(a.err) {
			b.Errorf("answered %q, %v, want that it may have happened", a.members(), a.err)
		}
	})
	pollBubble(t, "who vanish then get nothing and cost nothing", func(b *pollTest) {
		ctx, cancel := context.WithCancel(b.Context())
		b.schedule("q", dueq.In(0), "a")
		b.pass(time.Second)
		open := b.gateClaims()
		got := b.pollWith(ctx, b.p, dueq.ClaimRequest{Queue: "q", Max: 1}, time.Second)
		b.pass(2 * time.Second)
		cancel()
		if a := b.answer(got); !errors.Is(a.err, context.Canceled) {
			b.Errorf("answered %q, %v", a.members(), a.err)
		}
		open()
		b.untouched("q", "a")
	})
}

func TestPollsInAnOutage(t *testing.T) {
	pollBubble(t, "are not moving, however short the polls are", func(b *pollTest) {
		b.outage(0)
		for range 2 * stuckAfter / time.Second {
			b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: "q", Max: 1}, time.Second)
			b.pass(time.Second + 1)
		}
		got := b.poll(time.Second)
		if err := b.p.moving(); !errors.Is(err, dueq.ErrUnavailable) {
			b.Errorf("moving: %v, want ErrUnavailable", err)
		}
		b.pass(2 * time.Second)
		if a := b.answer(got); !errors.Is(a.err, dueq.ErrUnavailable) {
			b.Errorf("answered %v, want ErrUnavailable", a.err)
		}
		if err := b.p.moving(); err != nil {
			b.Errorf("nobody waits: %v", err)
		}
		if n := b.tap.count(time.Time{}, "claim"); n > 1 {
			b.Errorf("%d claims of a store that is away", n)
		}
	})
	pollBubble(t, "ask a store that is away seldom, though ever new queues are polled", func(b *pollTest) {
		b.outage(0)
		for i := range 250 {
			b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: fmt.Sprint("q", i), Max: 1}, time.Hour)
			b.pass(20 * time.Millisecond)
		}
		if n := b.tap.count(time.Time{}, "stats"); n < 5 || n > 51 {
			b.Errorf("%d round trips in 5 s, want at most ten a second", n)
		}
		b.tap.mend()
		b.pass(2 * time.Second)
		if n := b.logs.count("INFO"); n != 1 {
			b.Errorf("said %d times that the store is back", n)
		}
		if err := b.p.moving(); err != nil {
			b.Error(err)
		}
	})
	pollBubble(t, "forget queues that nobody polls any more", func(b *pollTest) {
		b.outage(0)
		for i := range 100 {
			b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: fmt.Sprint("q", i), Max: 1}, time.Second)
		}
		b.pass(forgetAfter + 5*time.Second)
		b.p.mu.Lock()
		defer b.p.mu.Unlock()
		if n := len(b.p.lines); n != 0 {
			b.Errorf("%d queues are kept", n)
		}
	})
	pollBubble(t, "are moving when one queue alone is broken", func(b *pollTest) {
		b.tap.spoil(func(_, queue string) pollFault { return pollFault{err: errors.New("WRONGTYPE " + queue)} })
		for range 20 {
			b.poll(20 * time.Second)
			b.pass(time.Second)
		}
		if b.p.waiting() == 0 {
			b.poll(20 * time.Second)
		}
		if err := b.p.moving(); err != nil {
			b.Errorf("moving: %v", err)
		}
	})
}
