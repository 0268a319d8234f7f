package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
)

// onList is a command line on a server, and a client that reads lists there.
func onList(t *testing.T) (*cli, *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	client := server.Client(t)
	return onServer(t, server.URL(), client), client
}

// forwarding is a dueq forward that runs in this process until stop.
func (c *cli) forwarding(t *testing.T, args ...string) *worker {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &worker{cancel, make(chan result, 1)}
	go func() { w.result <- c.runContext(t, ctx, "", append([]string{"forward"}, args...)...) }()
	t.Cleanup(cancel)
	return w
}

func TestForward(t *testing.T) {
	c, client := onList(t)
	length := func(key string) int64 { return client.LLen(t.Context(), key).Val() }
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run("moves tasks until "+s.String(), func(t *testing.T) {
			queue := map[syscall.Signal]string{syscall.SIGTERM: "a", syscall.SIGINT: "b"}[s]
			key := "{test:" + queue + "}:out"
			p := c.start(t, "forward", queue, "--to", "list")
			c.scheduleBody(t, queue, "m:k", "the\nbody")
			c.schedule(t, queue, "plain", dueq.In(10*time.Millisecond))
			eventually(t, func() bool { return length(key) == 2 })
			p.signal(t, s)
			if got := p.line(t); !strings.HasPrefix(got, "forwarded 2 tasks of "+queue+" in ") {
				t.Errorf("got %q", got)
			}
			if code := p.exit(t); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			if got := client.LRange(t.Context(), key, 0, -1).Val(); got[0] != "m:k\nthe\nbody" || got[1] != "plain" {
				t.Errorf("got %q", got)
			}
			if s := c.stats(t, queue); s.Scheduled != 0 || s.Totals.Forwarded != 2 {
				t.Errorf("got %+v", s)
			}
		})
	}
	t.Run("in JSON", func(t *testing.T) {
		f := c.forwarding(t, "c", "--to", "stream:jobs", "-o", "json")
		c.scheduleBody(t, "c", "m:k", "x")
		eventually(t, func() bool { return client.XLen(t.Context(), "jobs").Val() == 1 })
		r := f.stop().must(t, 0)
		if got, want := fieldsOf(t, r.stdout), "forwarded queue to took_ms"; got != want {
			t.Errorf("got fields %s, want %s", got, want)
		}
		if o := r.object(t); o["forwarded"] != 1.0 || o["to"] != "stream:jobs" || o["queue"] != "c" {
			t.Errorf("got %v", o)
		}
	})
	t.Run("follows the setting", func(t *testing.T) {
		c.run(t, "", "forward", "d").must(t, 2).says(t, "destination is missing", "forward is off")
		c.run(t, "", "settings", "d", "set", "forward=list:one").must(t, 0)
		f := c.forwarding(t, "d")
		c.schedule(t, "d", "m1", dueq.In(0))
		eventually(t, func() bool { return length("one") == 1 })
		c.run(t, "", "settings", "d", "set", "forward=list:two").must(t, 0)
		eventually(t, func() bool {
			c.schedule(t, "d", "m2", dueq.In(0))
			return length("two") > 0
		})
		f.stop().must(t, 0)
	})
	t.Run("shows its count", func(t *testing.T) {
		c.run(t, "", "stats", "a").must(t, 0).has(t, "  forwarded")
		var all struct {
			Queues []struct{ Totals map[string]int64 }
		}
		if err := json.Unmarshal([]byte(c.run(t, "", "stats", "a", "-o", "json").must(t, 0).stdout), &all); err != nil || all.Queues[0].Totals["forwarded"] != 2 {
			t.Errorf("got %+v, %v", all, err)
		}
	})
	t.Run("says what is wrong with a destination", func(t *testing.T) {
		if err := client.Set(t.Context(), "text", "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		for to, want := range map[string]string{
			"list:text": "text is a string, not a list", "stream:text": "text is a string, not a stream",
			"list:test:e": "take list:{test:e}:out", "list:": "name a key", "set:x": "is not list, stream",
		} {
			c.run(t, "", "forward", "e", "--to", to).must(t, 2).says(t, want)
		}
		c.run(t, "", "forward").must(t, 2).says(t, "QUEUE")
		c.run(t, "", "forward", "bad queue", "--to", "list").must(t, 2)
	})
	t.Run("is not there without Redis", func(t *testing.T) {
		onMemory(t).run(t, "", "forward", "q", "--to", "list").must(t, 2).says(t, "store is a", "no lists and streams")
		onSQLite(t).run(t, "", "forward", "q", "--to", "list").must(t, 2).says(t, "store is a *sqlitestore.Store, which has no lists and streams to forward to")
	})
}

func TestForwardTellsHowManyNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var moved atomic.Int64
		var log lockedBuffer
		stop := tellForwarded(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), &moved)
		time.Sleep(500 * time.Millisecond) // between the lines
		for i := range 60 {
			if i < 12 {
				moved.Add(100)
			}
			time.Sleep(time.Second)
		}
		stop()
		got := log.String()
		if n := strings.Count(got, "\n"); n != 3 || !strings.Contains(got, "tasks=500") || !strings.Contains(got, "tasks=1200") {
			t.Errorf("a line per %v while tasks are moved, got\n%s", progressEvery, got)
		}
	})
}
