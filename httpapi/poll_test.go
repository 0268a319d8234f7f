package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

func TestPollsDeliver(t *testing.T) {
	pollBubble(t, "a task at its due time, not before", func(b *pollTest) {
		got := b.poll(20 * time.Second)
		b.pass(3 * time.Second)
		due := time.Now().Add(5500 * time.Millisecond)
		b.schedule("q", dueq.At(due), "a")
		b.pass(5500*time.Millisecond - 1)
		b.still(got)
		b.pass(time.Millisecond)
		if a := b.want(got, "a"); a.at.Sub(due) > time.Millisecond || a.Tasks[0].Age < 0 || a.Tasks[0].Attempt != 1 {
			b.Errorf("delivered %v after its due time, age %v, attempt %d", a.at.Sub(due), a.Tasks[0].Age, a.Tasks[0].Attempt)
		}
	})
	pollBubble(t, "an earlier task that arrives while a later one is waited for", func(b *pollTest) {
		b.schedule("q", dueq.In(15*time.Second), "late")
		first, second := b.poll(20*time.Second), b.poll(20*time.Second)
		b.pass(time.Second)
		b.schedule("q", dueq.In(time.Second), "early")
		b.pass(time.Second)
		b.want(first, "early")
		b.pass(13 * time.Second)
		b.want(second, "late")
	})
	pollBubble(t, "a task that nobody announces, within the scan cap", func(b *pollTest) {
		got := b.poll(20 * time.Second)
		b.pass(7777 * time.Millisecond) // scans have become rare
		began := time.Now()
		b.mem.Add("q", "zadded", float64(began.Add(1500*time.Millisecond).UnixMilli()))
		b.pass(1499 * time.Millisecond)
		b.still(got)
		b.pass(2 * time.Millisecond)
		b.want(got, "zadded")
		got = b.poll(20 * time.Second)
		b.pass(7777 * time.Millisecond)
		b.mem.Add("q", "overdue", float64(began.UnixMilli()))
		b.pass(maxScan)
		b.want(got, "overdue")
	})
	pollBubble(t, "what is due already to the first poll, at once", func(b *pollTest) {
		b.schedule("q", dueq.In(0), "a")
		b.pass(time.Minute)
		b.want(b.poll(20*time.Second), "a")
	})
	pollBubble(t, "with a wait of zero what is due, and nothing otherwise", func(b *pollTest) {
		b.want(b.poll(0), "")
		b.schedule("q", dueq.In(0), "a")
		b.pass(time.Millisecond)
		b.want(b.poll(0), "a")
	})
	pollBubble(t, "to those who came first, as many as they asked for", func(b *pollTest) {
		var got []<-chan polled
		for i := range 5 {
			got = append(got, b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: "q", Max: i + 1}, 20*time.Second))
		}
		b.schedule("q", dueq.In(time.Second), "a", "b", "c", "d", "e", "f", "g", "h")
		b.pass(2 * time.Second)
		b.want(got[0], "a")
		b.want(got[1], "b c")
		b.want(got[2], "d e f")
		b.want(got[3], "g h")
		b.still(got[4])
		if n := b.tap.count(time.Time{}, "claim"); n > 4 {
			b.Errorf("%d claims, want one for all who wait", n)
		}
	})
	pollBubble(t, "one after another in the order of the line", func(b *pollTest) {
		var got []<-chan polled
		for range 20 {
			got = append(got, b.poll(20*time.Second))
		}
		for i, g := range got {
			b.schedule("q", dueq.In(10*time.Millisecond), fmt.Sprint("t", i))
			b.pass(20 * time.Millisecond)
			b.want(g, fmt.Sprint("t", i))
		}
	})
	pollBubble(t, "each with the lease that it asked for, the first first", func(b *pollTest) {
		lease := func(d time.Duration) <-chan polled {
			return b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: "q", Max: 1, Lease: d}, 20*time.Second)
		}
		leases := []time.Duration{10 * time.Second, time.Hour, 10 * time.Second}
		var got []<-chan polled
		for _, d := range leases {
			got = append(got, lease(d))
		}
		for i, id := range []string{"a", "b", "c"} {
			b.schedule("q", dueq.In(0), id)
			b.pass(time.Millisecond)
			a := b.want(got[i], id)
			if d := a.LeaseEnds.Sub(a.Now); d < leases[i] || d >= leases[i]+time.Second {
				b.Errorf("lease of %v, want %v", d, leases[i])
			}
		}
	})
}

func TestPollsEndTheirWait(t *testing.T) {
	pollBubble(t, "with no tasks", func(b *pollTest) {
		b.schedule("q", dueq.In(time.Minute), "later")
		began := time.Now()
		got := b.poll(20 * time.Second)
		b.pass(20*time.Second - 1)
		b.still(got)
		b.pass(1)
		a := b.want(got, "")
		if wait := a.Wait.Round(time.Millisecond); wait != 40*time.Second || !a.Now.Equal(began.Add(20*time.Second)) {
			b.Errorf("Wait is %v and Now %v, want 40s at %v", wait, a.Now, began.Add(20*time.Second))
		}
		if n := b.p.waiting(); n != 0 {
			b.Errorf("%d wait, want none", n)
		}
		b.pass(1) // what began at this instant
		began = time.Now()
		b.pass(time.Minute)
		if n := b.tap.count(began, "claim", "stats", "settle"); n != 0 {
			b.Errorf("%d calls while nobody waits and nothing is leased", n)
		}
	})
	pollBubble(t, "while the queue is paused, and not before it is resumed", func(b *pollTest) {
		b.set("q", "paused", "on")
		b.schedule("q", dueq.In(0), "a")
		short, long := b.poll(5*time.Second), b.poll(20*time.Second)
		b.pass(5 * time.Second)
		if a := b.want(short, ""); !a.Paused {
			b.Error("the answer does not say that the queue is paused")
		}
		b.pass(5 * time.Second)
		b.still(long)
		if n := b.tap.count(time.Time{}, "claim"); n > 1 {
			b.Errorf("%d claims from a paused queue", n)
		}
		b.set("q", "paused", "off")
		b.pass(maxScan)
		b.want(long, "a")
		b.schedule("q", dueq.In(time.Second), "b")
		long = b.poll(20 * time.Second)
		b.set("q", "paused", "on")
		b.pass(5 * time.Second)
		b.still(long)
		b.set("q", "paused", "off")
		b.pass(maxScan)
		b.want(long, "b")
	})
	pollBubble(t, "at once when draining, and later ones do not wait", func(b *pollTest) {
		b.schedule("q", dueq.In(time.Minute), "a")
		var got []<-chan polled
		for range 100 {
			got = append(got, b.poll(20*time.Second))
		}
		b.pass(time.Second)
		b.p.drain()
		for _, g := range got {
			b.want(g, "")
		}
		b.want(b.poll(20*time.Second), "")
		b.pass(time.Minute)
		b.want(b.poll(20*time.Second), "a")
	})
	pollBubble(t, "when closed, however often, and later ones fail", func(b *pollTest) {
		got := b.poll(20 * time.Second)
		b.pass(time.Second)
		b.p.close()
		b.p.close()
		b.want(got, "")
		for _, wait := range []time.Duration{0, time.Second} {
			if a := b.answer(b.poll(wait)); !errors.Is(a.err, dueq.ErrClosed) {
				b.Errorf("after close: %v, want ErrClosed", a.err)
			}
		}
		newPolls(b.tap, slog.New(&b.logs)).close() // never used
	})
	pollBubble(t, "with an error at once if the store will refuse it, and hold up nobody", func(b *pollTest) {
		b.set("q", "lease_max", "1m")
		good := b.poll(20 * time.Second)
		for _, req := range []dueq.ClaimRequest{
			{Queue: "", Max: 1},
			{Queue: "q", Max: -1},
			{Queue: "q", Max: dueq.MaxItems + 1},
			{Queue: "q", Max: 1, Lease: time.Millisecond},
			{Queue: "q", Max: 1, Lease: time.Hour},
		} {
			if a := b.answer(b.pollWith(b.Context(), b.p, req, 20*time.Second)); !errors.Is(a.err, dueq.ErrInvalid) {
				b.Errorf("%+v: %v, want ErrInvalid", req, a.err)
			}
		}
		minute := b.pollWith(b.Context(), b.p, dueq.ClaimRequest{Queue: "q", Max: 1, Lease: time.Minute}, 20*time.Second)
		last := b.poll(20 * time.Second)
		b.set("q", "lease_max", "30s")
		b.schedule("q", dueq.In(0), "a", "b")
		b.pass(time.Second)
		b.want(good, "a")
		if a := b.answer(minute); !errors.Is(a.err, dueq.ErrInvalid) {
			b.Errorf("lease over a lease_max that was lowered: %v, want ErrInvalid", a.err)
		}
		b.want(last, "b")
		if n := b.logs.count("WARN"); n > 0 {
			b.Errorf("%d warnings of what is wrong with requests", n)
		}
		if err := b.p.moving(); err != nil {
			b.Errorf("moving: %v", err)
		}
	})
}
