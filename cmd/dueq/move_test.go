package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
)

func TestMove(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		t.Run("keeps due time, body and spelling", func(t *testing.T) {
			c.run(t, "", "settings", "a2", "set", "priority=on").must(t, 0)
			c.run(t, "", "settings", "a", "set", "priority=on").must(t, 0)
			c.run(t, "", "schedule", "a", "o:1:k:p3", "--at", far, "--body", "b").must(t, 0)
			c.run(t, "", "schedule", "a", "empty", "--at", far, "--body", "").must(t, 0)
			c.schedule(t, "a", "late", past)
			r := c.run(t, "", "move", "a", "a2", "o:1:k:p3", "empty", "late").must(t, 0)
			if r.stdout != "moved 3 tasks from a to a2\n" || r.stderr != "" {
				t.Errorf("got %s%s", r.stdout, r.stderr)
			}
			info := c.info(t, "a2", "o:1:k:p3")
			if info.State != dueq.StateScheduled || view.Instant(info.Due).String() != far || string(info.Body) != "b" || info.Priority != dueq.P(3) {
				t.Errorf("got %+v", info)
			}
			if info := c.info(t, "a2", "late"); info.HasBody || !info.Due.Equal(c.stats(t, "a2").NextDue) {
				t.Errorf("got %+v", info)
			}
			if !c.info(t, "a2", "empty").HasBody || c.stats(t, "a").Scheduled != 0 {
				t.Errorf("got %+v", c.stats(t, "a"))
			}
		})
		t.Run("leaves what runs, is dead or is not there, and says so", func(t *testing.T) {
			c.die(t, "b", "boom", "dead")
			c.schedule(t, "b", "runs", dueq.In(0))
			c.claim(t, "b", 1)
			c.schedule(t, "b", "ok", farWhen)
			r := c.run(t, "", "move", "b", "b2", "dead", "runs", "ok", "nosuch").must(t, 3)
			r.has(t, "dead    dead       task is dead", "runs    running    task is running", "nosuch  not_found  task not found",
				"moved 1 tasks from b to b2, left 1 dead, left 1 not_found, left 1 running")
			r.says(t, "dueq: move: 3 of 4 tasks were left, such as dead: task is dead\n")
			if s := c.stats(t, "b2"); s.Scheduled != 1 {
				t.Errorf("got %+v", s)
			}
		})
		t.Run("all reports the running ones", func(t *testing.T) {
			c.schedule(t, "c", "r1", dueq.In(0))
			c.schedule(t, "c", "r2", dueq.In(0))
			c.claim(t, "c", 2)
			c.schedule(t, "c", "r2", farWhen)
			for i := range 450 {
				c.schedule(t, "c", fmt.Sprint("m", i), farWhen)
			}
			dry := c.run(t, "", "move", "c", "c2", "--all", "--dry-run").must(t, 4)
			dry.has(t, "dry run: would have moved 450 tasks from c to c2, left 2 running")
			if s := c.stats(t, "c2"); s.Scheduled != 0 {
				t.Errorf("got %+v", s)
			}
			v := c.run(t, "", "move", "c", "c2", "--all", "-o", "json").must(t, 4).object(t)
			if fmt.Sprint(v["counts"]) != "map[moved:450 running:2]" || len(v["left"].([]any)) != 2 || v["complete"] != true {
				t.Errorf("got %v", v)
			}
			if from, to := c.stats(t, "c"), c.stats(t, "c2"); from.Scheduled != 1 || to.Scheduled != 450 {
				t.Errorf("%d and %d scheduled, want 1 and 450", from.Scheduled, to.Scheduled)
			}
			c.run(t, "", "move", "empty", "c2", "--all").must(t, 0).has(t, "moved 0 tasks")
		})
		t.Run("what differs in the other queue stays in both", func(t *testing.T) {
			c.schedule(t, "d", "same", farWhen)
			c.schedule(t, "d2", "same", farWhen)
			c.schedule(t, "d", "other", farWhen)
			c.schedule(t, "d2", "other", past)
			for _, flags := range [][]string{{"--dry-run"}, nil} {
				r := c.run(t, "", append([]string{"move", "d", "d2", "--all"}, flags...)...).must(t, 4)
				r.has(t, "moved 1 tasks from d to d2, left 1 differs", "other  differs")
			}
			if c.info(t, "d", "other").State != dueq.StateScheduled || c.info(t, "d", "same").State != dueq.StateNone {
				t.Error("the wrong one was taken away")
			}
			c.run(t, "", "move", "d", "d2", "other", "--if-exists", "later").must(t, 0)
			if info := c.info(t, "d2", "other"); view.Instant(info.Due).String() != far {
				t.Errorf("got %+v", info)
			}
		})
		t.Run("what the other queue refuses is left", func(t *testing.T) {
			c.run(t, "", "settings", "e2", "set", "body_max=1").must(t, 0)
			c.run(t, "", "schedule", "e", "m", "--at", far, "--body", "long").must(t, 0)
			c.run(t, "", "move", "e", "e2", "m").must(t, 4).has(t, "m  refused", "too large")
			if c.zadd == nil {
				return
			}
			c.zadd("e", "bad member", 4e12)
			c.run(t, "", "move", "e", "e3", "--all").must(t, 4).has(t, "bad member  refused", "moved 1 tasks")
			if s := c.stats(t, "e"); s.Scheduled != 1 {
				t.Errorf("got %+v", s)
			}
		})
		t.Run("what changes meanwhile stays as it is", func(t *testing.T) {
			change := map[string]func(){
				"claimed":     func() { c.claim(t, "f", 1) },
				"cancelled":   func() { c.run(t, "", "cancel", "f", "m").must(t, 0) },
				"rescheduled": func() { c.run(t, "", "reschedule", "f", "m", "--at", far).must(t, 0) },
			}
			for what, then := range change {
				c.schedule(t, "f", "m", past)
				racing := &cli{url: c.url, extra: c.extra, open: func(url, prefix string) (dueq.Store, error) {
					return copiedStore{kept{c.store}, then}, nil
				}}
				code := map[bool]int{true: 3, false: 4}[what == "cancelled"]
				r := racing.run(t, "", "move", "f", "f2", "m").must(t, code)
				r.has(t, "moved 0 tasks from f to f2, left 1 "+map[string]string{"claimed": "changed", "cancelled": "not_found", "rescheduled": "changed"}[what])
				if info := c.info(t, "f2", "m"); info.State != dueq.StateNone {
					t.Errorf("%s: the copy is still there: %+v", what, info)
				}
				c.run(t, "", "cancel", "f", "m", "--running")
			}
		})
		t.Run("a call that fails loses nothing, and moving again ends it", func(t *testing.T) {
			for i := range 300 {
				c.schedule(t, "g", fmt.Sprint("m", i), farWhen)
			}
			calls := 0
			failing := &cli{url: c.url, extra: c.extra, open: func(string, string) (dueq.Store, error) {
				return changeFails{kept{c.store}, &calls}, nil
			}}
			r := failing.run(t, "", "move", "g", "g2", "--all", "-o", "json").must(t, 5)
			if v := r.object(t); v["complete"] != false {
				t.Errorf("got %v", v)
			}
			if n := c.stats(t, "g").Scheduled + c.stats(t, "g2").Scheduled; n != 400 {
				t.Errorf("%d are scheduled, want 200 copies beside 100 and 100", n)
			}
			c.run(t, "", "move", "g", "g2", "--all").must(t, 0)
			if a, b := c.stats(t, "g").Scheduled, c.stats(t, "g2").Scheduled; a != 0 || b != 300 {
				t.Errorf("%d and %d are scheduled, want 0 and 300", a, b)
			}
		})
	})
}

// copiedStore does something when a task was copied and before it is deleted.
type copiedStore struct {
	dueq.Store
	then func()
}

func (s copiedStore) Schedule(ctx context.Context, items []dueq.Item) ([]dueq.Outcome, error) {
	outcomes, err := s.Store.Schedule(ctx, items)
	s.then()
	return outcomes, err
}

// changeFails fails at the second call of Change.
type changeFails struct {
	dueq.Store
	calls *int
}

func (s changeFails) Change(ctx context.Context, queue string, op dueq.Op, targets []dueq.Target) ([]dueq.Outcome, error) {
	if *s.calls++; *s.calls == 2 {
		return nil, dueq.Unavailable(context.DeadlineExceeded)
	}
	return s.Store.Change(ctx, queue, op, targets)
}
