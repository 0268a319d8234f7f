package httpapi

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

// claims lists how many tasks the claims since then asked for.
func (s *pollTap) claims(since time.Time) (asked []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.op == "claim" && !c.at.Before(since) {
			asked = append(asked, c.max)
		}
	}
	return asked
}

func TestPollsLookAfterLeases(t *testing.T) {
	for _, wait := range []time.Duration{0, 20 * time.Second} {
		pollBubble(t, fmt.Sprintf("that they gave out, though nobody polls: wait %v", wait), func(b *pollTest) {
			b.schedule("q", dueq.In(0), "a")
			b.pass(time.Second)
			a := b.want(b.poll(wait), "a")
			b.pass(1)
			began := time.Now()
			for b.get("q", "a").State == dueq.StateActive {
				if time.Since(began) > time.Minute {
					b.Fatal("the task of a consumer that died is still active")
				}
				b.pass(100 * time.Millisecond)
			}
			took := time.Since(began)
			if lease := a.LeaseEnds.Sub(a.Now); took < lease || took > 36*time.Second {
				b.Errorf("it came back after %v, want %v to 36s", took, lease)
			}
			claims, scans := b.tap.count(began, "claim"), b.tap.count(began, "stats")
			if most := int(took/time.Second) + 1; claims > most || scans > most {
				b.Errorf("%d claims and %d scans in %v, want one a second", claims, scans, took)
			}
			for _, n := range b.tap.claims(began) {
				if n != 0 {
					b.Errorf("a claim for nobody asked for %d tasks", n)
				}
			}
			b.pass(2 * time.Second)
			began = time.Now()
			b.pass(time.Minute)
			if n := b.tap.count(began, "claim", "stats"); n != 0 {
				b.Errorf("%d calls in a minute without leases", n)
			}
		})
	}
	pollBubble(t, "again when the store is back", func(b *pollTest) {
		b.schedule("q", dueq.In(0), "a")
		b.pass(time.Second)
		b.want(b.poll(20*time.Second), "a")
		b.outage(0)
		b.pass(10 * time.Second)
		b.tap.mend()
		b.pass(35 * time.Second)
		b.untouchedBut("q", "a", 1)
	})
	for _, wait := range []time.Duration{0, time.Second} {
		pollBubble(t, fmt.Sprintf("of claims whose answers were lost: wait %v", wait), func(b *pollTest) {
			b.schedule("q", dueq.In(0), "a")
			b.pass(time.Second)
			b.tap.spoil(func(op, _ string) pollFault {
				return pollFault{err: unavailableCall(op, true), happened: true}
			})
			got := b.poll(wait)
			b.pass(time.Second)
			if a := b.answer(got); !mayHaveHappened(a.err) {
				b.Errorf("answered %q, %v, want that it may have happened", a.members(), a.err)
			}
			b.tap.mend()
			b.pass(37 * time.Second)
			b.untouchedBut("q", "a", 1)
		})
	}
	pollBubble(t, "of what was handed on from one who vanished", func(b *pollTest) {
		b.schedule("q", dueq.In(0), "a")
		b.pass(time.Second)
		open := b.gateClaims()
		ctx, cancel := context.WithCancel(b.Context())
		b.pollWith(ctx, b.p, dueq.ClaimRequest{Queue: "q", Max: 1}, 0)
		next := b.poll(20 * time.Second)
		cancel()
		open()
		b.want(next, "a")
		b.pass(36 * time.Second)
		b.untouchedBut("q", "a", 1)
	})
	pollBubble(t, "until they are settled", func(b *pollTest) {
		b.schedule("q", dueq.In(0), "a")
		b.pass(time.Second)
		a := b.want(b.poll(20*time.Second), "a")
		b.pass(10 * time.Second)
		if _, err := b.mem.Settle(b.Context(), "q", []dueq.Result{{Task: a.Tasks[0]}}); err != nil {
			b.Fatal(err)
		}
		b.pass(2 * time.Second)
		began := time.Now()
		b.pass(time.Minute)
		if n := b.tap.count(began, "claim", "stats"); n != 0 {
			b.Errorf("%d calls in a minute without leases", n)
		}
	})
	pollBubble(t, "beside a worker without disturbing it", func(b *pollTest) {
		b.schedule("q", dueq.In(0), "a")
		b.pass(time.Second)
		b.want(b.poll(20*time.Second), "a")
		ages := make(chan time.Duration, 20)
		w := dueq.NewWorker(b.mem, dueq.WorkerOptions{Logger: slog.New(&b.logs)})
		w.Handle("q", dueq.AnyKind, dueq.HandlerFunc(func(_ context.Context, task *dueq.Task) error {
			ages <- task.Age
			return nil
		}))
		ctx, stop := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		b.pass(5 * time.Second)
		for i := range 20 {
			b.schedule("q", dueq.In(time.Second), fmt.Sprint("t", i))
		}
		began := time.Now()
		b.pass(10 * time.Second)
		if n := b.tap.count(began, "claim"); n > 11 {
			b.Errorf("%d claims in 10 s beside a worker, want one a second at most", n)
		}
		if n := b.tap.count(began, "stats"); n > 11 {
			b.Errorf("%d scans in 10 s", n)
		}
		if len(ages) != 20 {
			b.Fatalf("the worker ran %d of 20 tasks", len(ages))
		}
		for range 20 {
			if age := <-ages; age > time.Millisecond {
				b.Errorf("a task was claimed %v late", age)
			}
		}
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	pollBubble(t, "of a consumer that died while others go on waiting", func(b *pollTest) {
		b.schedule("q", dueq.In(0), "a")
		b.pass(time.Second)
		b.want(b.poll(20*time.Second), "a")
		got := b.poll(time.Minute)
		b.pass(36 * time.Second)
		if a := b.want(got, "a"); a.Tasks[0].Attempt != 2 {
			b.Errorf("attempt %d, want 2", a.Tasks[0].Attempt)
		}
	})
}

func TestPollsOfTwoProcesses(t *testing.T) {
	pollBubble(t, "share a queue without costing a claim each for every task", func(b *pollTest) {
		hubs := []*polls{b.p, b.hub()}
		const tasks = 300
		got := make(chan *dueq.Task, 2*tasks)
		ctx, stop := context.WithCancel(b.Context())
		for _, p := range hubs {
			for range 5 {
				go func() {
					for ctx.Err() == nil {
						c, _ := p.claim(ctx, dueq.ClaimRequest{Queue: "q", Max: 1}, 20*time.Second)
						for _, task := range c.Tasks {
							got <- task
							time.Sleep(20 * time.Millisecond)
							_, _ = b.mem.Settle(ctx, "q", []dueq.Result{{Task: task}})
						}
					}
				}()
			}
		}
		b.pass(5 * time.Second)
		began := time.Now()
		for i := range tasks {
			b.schedule("q", dueq.In(time.Duration(i)*50*time.Millisecond+time.Second), fmt.Sprint("t", i))
		}
		b.pass(tasks*50*time.Millisecond + 2*time.Second)
		stop()
		worst, seen := time.Duration(0), map[string]bool{}
		for range len(got) {
			task := <-got
			worst, seen[task.ID] = max(worst, task.Age), true
			if task.Attempt != 1 {
				b.Errorf("%s was delivered for the %dth time", task.ID, task.Attempt)
			}
		}
		if len(seen) != tasks {
			b.Fatalf("%d of %d tasks were delivered", len(seen), tasks)
		}
		if worst > 2*maxBack {
			b.Errorf("a task was %v late", worst)
		}
		empty := b.tap.count(began, "claim") - tasks
		b.Logf("%d claims beside those that brought tasks, worst lateness %v", empty, worst)
		if empty > tasks/2 {
			b.Errorf("%d claims in vain for %d tasks", empty, tasks)
		}
	})
	pollBubble(t, "help each other: who is left to wait is called when the other has nobody", func(b *pollTest) {
		other := b.hub()
		busy := b.poll(time.Hour)
		waits := b.pollWith(b.Context(), other, dueq.ClaimRequest{Queue: "q", Max: 1}, time.Hour)
		b.pass(5 * time.Second)
		b.p.mu.Lock()
		b.p.line("q").plan.scanAt = time.Now().Add(time.Hour)
		b.p.mu.Unlock()
		other.mu.Lock()
		l := other.line("q")
		l.plan.losses, l.plan.next, l.plan.scanAt = deepAfter, time.Time{}, time.Now().Add(time.Hour) // it always loses
		other.mu.Unlock()
		began := time.Now()
		b.schedule("q", dueq.In(time.Second), "a")
		b.schedule("q", dueq.In(1100*time.Millisecond), "b")
		b.pass(1050 * time.Millisecond)
		b.want(busy, "a")
		b.still(waits)
		if n := b.tap.count(began, "claim"); n != 1 {
			b.Errorf("%d claims for one task", n)
		}
		b.pass(50*time.Millisecond + helpAfter + time.Millisecond)
		b.want(waits, "b")
		waits = b.pollWith(b.Context(), other, dueq.ClaimRequest{Queue: "q", Max: 1}, time.Hour)
		b.schedule("q", dueq.In(777*time.Millisecond), "c")
		b.pass(778 * time.Millisecond)
		b.want(waits, "c") // it won, so it comes for heads again
	})
}

func TestPollsLeaveNoGoroutines(t *testing.T) {
	for _, delivery := range deliveries {
		pollBubble(t, "when a thousand vanish at random as a thousand tasks become due, "+delivery, func(b *pollTest) {
			b.set("q", "delivery", delivery)
			r := rand.New(rand.NewPCG(7, 7))
			late := time.Now().Add(time.Second + 10*time.Millisecond)
			b.tap.hold(func(string, string) { // so that some vanish meanwhile, and at last all
				time.Sleep(3 * time.Millisecond)
				if time.Now().After(late) {
					time.Sleep(20 * time.Millisecond)
				}
			})
			got, gone := make(chan *dueq.Task, 1000), new(sync.WaitGroup)
			for i := range 1000 {
				ctx, cancel := context.WithTimeout(b.Context(), time.Second+time.Duration(r.IntN(20))*time.Millisecond)
				gone.Go(func() {
					defer cancel()
					c, _ := b.p.claim(ctx, dueq.ClaimRequest{Queue: "q", Max: 1 + i%3}, time.Minute)
					for _, task := range c.Tasks {
						got <- task
					}
				})
			}
			for i := range 1000 {
				b.schedule("q", dueq.In(time.Second+time.Duration(r.IntN(20))*time.Millisecond), fmt.Sprint("t", i))
			}
			gone.Wait()
			b.pass(time.Second)
			close(got)
			seen := map[string]bool{}
			for task := range got {
				if seen[task.ID] || task.Attempt != 1 {
					b.Errorf("%s was delivered before, or is at attempt %d", task.ID, task.Attempt)
				}
				seen[task.ID] = true
			}
			for i := range 1000 {
				if id := fmt.Sprint("t", i); !seen[id] {
					b.untouched("q", id)
				}
			}
			stats, err := b.mem.Stats(b.Context(), "q")
			if err != nil {
				b.Fatal(err)
			}
			b.Logf("%d were delivered, %d released", len(seen), stats[0].Totals.Released)
			if n := stats[0].Totals.Released; n == 0 || len(seen) == 0 {
				b.Errorf("%d were delivered and %d released, so this tested little", len(seen), n)
			}
		})
	}
}
