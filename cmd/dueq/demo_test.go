package main

import (
	"context"
	"os"
	"testing"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/openstore"
)

func TestDemo(t *testing.T) {
	t.Run("in memory adds up and starts nothing early", func(t *testing.T) {
		t.Parallel()
		c := onMemory(t)
		c.url = "redis://127.0.0.1:1" // DUEQ_STORE, which the demo leaves alone
		r := c.run(t, "", "demo", "-o", "json").must(t, 0)
		r.says(t, "scheduled 241", "drift p99")
		checkDemo(t, r)
	})
	t.Run("alone runs in a file and leaves nothing", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		c := &cli{open: func(url, prefix string) (dueq.Store, error) { return openstore.Open(t.Context(), url, prefix) }}
		r := c.run(t, "", "demo", "-o", "json").must(t, 0)
		checkDemo(t, r)
		if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	t.Run("in Redis has queues of its own and leaves no task", func(t *testing.T) {
		t.Parallel()
		c := onRedis(t)
		r := c.run(t, "", "demo", "--store", c.url).must(t, 0)
		r.has(t, "as the store counts", "What to try next", "early      0 ", "reminders  3 ", "adds up    yes ")
		stats, err := c.store.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range stats {
			if s.Queue == "order:close" || s.Scheduled+s.Active+s.Dead != 0 {
				t.Errorf("left behind: %+v", s)
			}
		}
	})
	t.Run("stops when told", func(t *testing.T) {
		t.Parallel()
		c := onMemory(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan result, 1)
		go func() { done <- c.runContext(t, ctx, "", "demo") }()
		eventually(t, func() bool { return c.stats(t, "order:close").Scheduled > 0 })
		cancel()
		(<-done).must(t, 1).says(t, "dueq: demo: stopped before the end")
		if s := c.stats(t, "order:close"); s.Scheduled+s.Active+s.Dead != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
	t.Run("fails when the store is early", func(t *testing.T) {
		t.Parallel()
		c := onMemory(t)
		c.open = func(string, string) (dueq.Store, error) { return hasty{kept{c.store}}, nil }
		r := c.run(t, "", "demo", "-o", "json").must(t, 1)
		r.says(t, "early starts, want 0")
	})
	t.Run("fails when the store counts otherwise", func(t *testing.T) {
		t.Parallel()
		c := onMemory(t)
		c.open = func(string, string) (dueq.Store, error) { return forgetful{kept{c.store}}, nil }
		r := c.run(t, "", "demo", "-o", "json").must(t, 1)
		r.says(t, "it does not add up")
		if r.object(t)["adds_up"] != false {
			t.Error("it says that it adds up")
		}
	})
}

func checkDemo(t *testing.T, r result) {
	t.Helper()
	v := r.object(t)
	n := func(name string) int { return int(v[name].(float64)) }
	if n("scheduled") != 241 || n("scheduled") != n("handled")+n("cancelled")+n("dead") {
		t.Errorf("%d scheduled, %d handled, %d cancelled, %d dead", n("scheduled"), n("handled"), n("cancelled"), n("dead"))
	}
	if v["adds_up"] != true || n("early") != 0 || n("dead") != 1 || n("reminders") != 3 {
		t.Errorf("got %v", v)
	}
	// 6 fail once, 4 twice, and the dead one is tried again 3 times; there are 3 reminders.
	if retries := 6 + 2*4 + 3; n("retries") != retries || n("starts") < n("handled")+retries+1+2 {
		t.Errorf("%d retries, want %d; %d starts", n("retries"), retries, n("starts"))
	}
	intervals := v["reminder_intervals_ms"].([]any)
	for i, least := range []float64{500, 1000, 2000} {
		if intervals[i].(float64) < least {
			t.Errorf("reminder %d came after %v ms, want %v", i, intervals[i], least)
		}
	}
}

// forgetful loses count of one task.
type forgetful struct{ dueq.Store }

func (s forgetful) Stats(ctx context.Context, queues ...string) ([]dueq.QueueStats, error) {
	stats, err := s.Store.Stats(ctx, queues...)
	for i := range stats {
		stats[i].Totals.Acked--
	}
	return stats, err
}

// hasty makes tasks due a little sooner than it was told.
type hasty struct{ dueq.Store }

func (s hasty) Schedule(ctx context.Context, items []dueq.Item) ([]dueq.Outcome, error) {
	for i := range items {
		items[i].When = dueq.In(items[i].When.Delay() * 9 / 10)
	}
	return s.Store.Schedule(ctx, items)
}
