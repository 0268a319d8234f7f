package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

func TestStatsWatch(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		c.schedule(t, "a", "m1", farWhen)
		watch := func(c *cli, args ...string) result {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			return c.runContext(t, ctx, "", append([]string{"stats", "--watch", "--interval", "100ms"}, args...)...).must(t, 0)
		}
		r := watch(c)
		r.has(t, "QUEUE  SCHEDULED", "a      1", "SCHEDULED/S")
		if n := strings.Count(r.stdout, "QUEUE"); n < 2 || strings.Contains(r.stdout, "\x1b") || !strings.Contains(r.stdout, "\n\n") {
			t.Errorf("%d blocks:\n%q", n, r.stdout)
		}
		decoder, n := json.NewDecoder(bytes.NewBufferString(watch(c, "a", "-o", "json").stdout)), 0
		for ; decoder.More(); n++ {
			var v struct{ Queues []struct{ Scheduled int } }
			if err := decoder.Decode(&v); err != nil || len(v.Queues) != 1 || v.Queues[0].Scheduled != 1 {
				t.Fatal(v, err)
			}
		}
		if n < 2 {
			t.Errorf("%d objects, want several", n)
		}
		tty := *c
		tty.terminal = true
		if r := watch(&tty); strings.Count(r.stdout, clearScreen) < 2 {
			t.Errorf("it is not drawn again: %q", r.stdout)
		}
		tty.run(t, "", "stats", "--watch", "--store", "redis://127.0.0.1:1", "a/b").must(t, 2)
	})
	t.Run("goes on when the store is away for a while", func(t *testing.T) {
		c := onMemory(t)
		calls := 0
		shaky := &cli{url: c.url, open: func(string, string) (dueq.Store, error) {
			return statsStore{kept{c.store}, func(stats []dueq.QueueStats) ([]dueq.QueueStats, error) {
				if calls++; calls == 2 {
					return nil, dueq.Unavailable(errors.New("away"))
				}
				return stats, nil
			}}, nil
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
		defer cancel()
		r := shaky.runContext(t, ctx, "", "stats", "--watch", "--interval", "100ms").must(t, 0)
		r.says(t, "store unavailable: away")
		if calls < 3 {
			t.Errorf("%d calls, want more", calls)
		}
		calls = 1
		shaky.run(t, "", "stats", "--watch").must(t, 5)
	})
	t.Run("a queue that cannot be read is told beside the others", func(t *testing.T) {
		c := onMemory(t)
		c.schedule(t, "a", "m", farWhen)
		c.schedule(t, "b", "m", farWhen)
		broken := &cli{url: c.url, open: func(string, string) (dueq.Store, error) {
			return statsStore{kept{c.store}, func(stats []dueq.QueueStats) ([]dueq.QueueStats, error) {
				stats[1] = dueq.QueueStats{Queue: "b", Err: errors.New("WRONGTYPE")}
				return stats, nil
			}}, nil
		}}
		broken.run(t, "", "stats").must(t, 1).has(t, "queue           a", "error  WRONGTYPE")
		r := broken.run(t, "", "queues").must(t, 1)
		r.has(t, "b      error: WRONGTYPE")
		r.says(t, "dueq: queues: b cannot be read: WRONGTYPE")
	})
	t.Run("ends by a signal with 0", func(t *testing.T) {
		c := onRedis(t)
		p := c.start(t, "stats", "--watch")
		p.line(t)
		p.signal(t, syscall.SIGINT)
		if code := p.exit(t); code != 0 || p.stderr.Len() > 0 {
			t.Errorf("exit code %d, want 0: %s", code, p.stderr.String())
		}
	})
}

// statsStore changes what Stats answers.
type statsStore struct {
	dueq.Store
	then func([]dueq.QueueStats) ([]dueq.QueueStats, error)
}

func (s statsStore) Stats(ctx context.Context, queues ...string) ([]dueq.QueueStats, error) {
	stats, err := s.Store.Stats(ctx, queues...)
	if err != nil {
		return nil, err
	}
	return s.then(stats)
}

func TestDrain(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		t.Run("waits for overdue and active tasks", func(t *testing.T) {
			c.schedule(t, "a", "later", farWhen)
			c.schedule(t, "a", "m", past)
			ended := make(chan result, 1)
			go func() { ended <- c.run(t, "", "drain", "a") }()
			tasks := c.claim(t, "a", 1)
			select {
			case r := <-ended:
				t.Fatalf("it ended while a task ran: %+v", r)
			case <-time.After(2 * drainEvery):
			}
			if _, err := c.store.Settle(t.Context(), "a", []dueq.Result{{Task: tasks[0]}}); err != nil {
				t.Fatal(err)
			}
			r := (<-ended).must(t, 0)
			r.has(t, "drained a: 0 overdue, 0 active, 1 due later, 0 dead, after ")
		})
		t.Run("gives up after the timeout", func(t *testing.T) {
			c.schedule(t, "b", "m", past)
			c.run(t, "", "pause", "b").must(t, 0)
			r := c.run(t, "", "drain", "b", "--timeout", "300ms").must(t, 1)
			r.has(t, "not drained b: 1 overdue, 0 active")
			r.says(t, "b is paused: its 1 overdue tasks wait for dueq resume\n", "dueq: drain: not drained within 300ms: 1 overdue, 0 active\n")
			v := c.run(t, "", "drain", "b", "--timeout", "1ms", "-o", "json").must(t, 1).object(t)
			if v["drained"] != false || v["overdue"] != 1.0 || v["queue"] != "b" {
				t.Errorf("got %v", v)
			}
			tty := *c
			tty.terminal = true
			tty.run(t, "", "drain", "b", "--timeout", "1ms").must(t, 1)
			tty.run(t, "", "drain", "b", "--timeout", "250ms").must(t, 1).says(t, clearLine+"b: 1 overdue, 0 active")
		})
		t.Run("does not call a queue drained that the store has never heard of", func(t *testing.T) {
			for _, format := range []string{"table", "json"} {
				r := c.run(t, "", "drain", "nosuch", "-o", format).must(t, 3)
				if r.stdout != "" || r.stderr != "dueq: drain: queue nosuch is not known to this store\n" {
					t.Errorf("%s: got %s%s", format, r.stdout, r.stderr)
				}
			}
			c.run(t, "", "settings", "known", "set", "retries=1").must(t, 0)
			c.run(t, "", "drain", "known").must(t, 0).has(t, "drained known: 0 overdue")
			c.schedule(t, "emptied", "m", farWhen)
			c.run(t, "", "cancel", "emptied", "m").must(t, 0)
			c.run(t, "", "drain", "emptied").must(t, 0).has(t, "drained emptied: 0 overdue")
			if c.zadd != nil {
				c.zadd("zadded", "m", 4e12)
				c.run(t, "", "drain", "zadded").must(t, 0).has(t, "drained zadded: 0 overdue, 0 active, 1 due later")
			}
		})
		t.Run("ends by a signal with 1", func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			c.schedule(t, "c", "m", past)
			c.runContext(t, ctx, "", "drain", "c").must(t, 1).says(t, "dueq: drain: interrupted\n")
		})
	})
}

// TestRate has commands take their time, and say what they did when they are
// interrupted.
func TestRate(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		var names []string
		for i := range 40 {
			names = append(names, fmt.Sprintf("m%02d", i))
		}
		c.die(t, "a", "boom", names...)
		began := time.Now()
		c.run(t, "", "dead", "requeue", "a", "--all", "--rate", "100/s").must(t, 0).has(t, "requeue a: 40 done")
		if took := time.Since(began); took < 300*time.Millisecond {
			t.Errorf("40 at 100/s took %v", took)
		}
		for queue, line := range map[string]string{"b": "dead delete b --all", "c": "delete c --yes --state dead", "d": "move d d2 --all"} {
			if queue == "d" {
				for _, name := range names {
					c.schedule(t, queue, name, farWhen)
				}
			} else {
				c.die(t, queue, "boom", names...)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			r := c.runContext(t, ctx, "", append(strings.Fields(line), "--rate", "10", "-o", "json")...).must(t, 1)
			cancel()
			r.says(t, ": interrupted\n")
			left := c.stats(t, queue)
			n := int(left.Dead + left.Scheduled)
			if n >= 40 || n < 30 {
				t.Errorf("%s: %d of 40 are left, want about 35", line, n)
			}
			v := r.object(t)
			counts, _ := v["counts"].(map[string]any)
			done := fmt.Sprint(v["dead"], counts["done"], counts["moved"])
			if !strings.Contains(done, fmt.Sprint(40-n)) {
				t.Errorf("%s: it says %s, %d are left of 40", line, done, n)
			}
		}
	})
}

func TestDeadByKind(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		c.die(t, "a", "boom", "m1:x", "m2:x", "m3:y", "m4")
		if got := fmt.Sprint(membersOf(t, c.run(t, "", "dead", "list", "a", "--kind", "x", "-o", "json").must(t, 0), "tasks")); got != "[m1:x m2:x]" {
			t.Errorf("got %s", got)
		}
		c.run(t, "", "dead", "requeue", "a", "--kind", "x", "--error", "boom", "--dry-run").must(t, 0).has(t, "dry run of requeue a: 2 done")
		c.run(t, "", "dead", "delete", "a", "--kind", "x").must(t, 0).has(t, "delete a: 2 done")
		c.run(t, "", "dead", "delete", "a", "--kind=").must(t, 0).has(t, "m4  done")
		c.run(t, "", "dead", "list", "a", "--all", "-o", "json").must(t, 0).has(t, "m3:y")
	})
}
