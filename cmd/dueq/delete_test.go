package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/dueq/dueq"
)

func TestDelete(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		fill := func(queue string) {
			c.die(t, queue, "time out", "d1", "d2")
			c.die(t, queue, "boom", "d3")
			c.schedule(t, queue, "run", dueq.In(0))
			c.claim(t, queue, 1)
			for i := range 5 {
				c.schedule(t, queue, fmt.Sprint("s", i), farWhen)
			}
		}
		t.Run("counts in a dry run", func(t *testing.T) {
			fill("a")
			for flags, want := range map[string]string{
				"":                            "5 scheduled, 3 dead; 1 are running and left",
				"--state dead":                "0 scheduled, 3 dead",
				"--state scheduled":           "5 scheduled, 0 dead; 1 are running and left",
				"--error time":                "0 scheduled, 2 dead",
				"--state scheduled --error x": "0 scheduled, 0 dead",
			} {
				r := c.run(t, "", append([]string{"delete", "a", "--dry-run"}, strings.Fields(flags)...)...).must(t, 0)
				if r.stdout != "dry run of deleting from a: "+want+"\n" {
					t.Errorf("%s: got %s", flags, r.stdout)
				}
			}
			if s := c.stats(t, "a"); s.Scheduled != 5 || s.Dead != 3 {
				t.Errorf("got %+v", s)
			}
		})
		t.Run("deletes by state and error", func(t *testing.T) {
			fill("b")
			c.run(t, "", "delete", "b", "--state", "dead", "--error", "time", "--yes").must(t, 0).has(t, "deleted from b: 0 scheduled, 2 dead\n")
			v := c.run(t, "", "delete", "b", "--yes", "-o", "json").must(t, 0).object(t)
			if fmt.Sprint(v) != "map[complete:true dead:1 dry_run:false queue:b running:1 scheduled:5]" {
				t.Errorf("got %v", v)
			}
			if s := c.stats(t, "b"); s.Scheduled != 0 || s.Dead != 0 || s.Active != 1 {
				t.Errorf("got %+v", s)
			}
		})
		t.Run("leaves a dead letter that was scheduled again since it was listed", func(t *testing.T) {
			c.die(t, "again", "boom", "m")
			racing := &cli{url: c.url, extra: c.extra, open: func(string, string) (dueq.Store, error) {
				return hookedStore{kept{c.store}, func() { c.schedule(t, "again", "m", farWhen) }}, nil
			}}
			racing.run(t, "", "delete", "again", "--state", "dead", "--yes").must(t, 0).has(t, "deleted from again: 0 scheduled, 0 dead")
			if s := c.stats(t, "again"); s.Scheduled != 1 {
				t.Errorf("got %+v", s)
			}
		})
		t.Run("interrupted, it finishes the call it is in", func(t *testing.T) {
			for i := range 5 {
				c.schedule(t, "cut", fmt.Sprint("s", i), farWhen)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cut := &cli{url: c.url, extra: c.extra, open: func(string, string) (dueq.Store, error) {
				return hookedStore{kept{c.store}, cancel}, nil
			}}
			v := cut.runContext(t, ctx, "", "delete", "cut", "--yes", "-o", "json").must(t, 1)
			v.says(t, "dueq: delete: interrupted\n")
			if n := c.stats(t, "cut").Scheduled; n != 0 || v.object(t)["scheduled"] != 5.0 || v.object(t)["complete"] != false {
				t.Errorf("%d are left of 5, it says %s", n, v.stdout)
			}
		})
		t.Run("asks on a terminal", func(t *testing.T) {
			fill("c")
			tty := *c
			tty.terminal = true
			for _, no := range []string{"", "\n", "n\n", "nope\n"} {
				r := tty.run(t, no, "delete", "c").must(t, 1)
				r.says(t, "Delete 5 scheduled and 3 dead tasks of c? [y/N] ", "not confirmed: nothing was deleted")
			}
			tty.run(t, "", "delete", "c", "--state", "dead", "--error", "x\x1b").must(t, 1).says(t, `Delete of the 3 dead tasks of c those whose last error contains "x\x1b"?`)
			if s := c.stats(t, "c"); s.Scheduled != 5 || s.Dead != 3 {
				t.Errorf("got %+v", s)
			}
			tty.run(t, "y\n", "delete", "c").must(t, 0)
			if s := c.stats(t, "c"); s.Scheduled != 0 || s.Dead != 0 {
				t.Errorf("got %+v", s)
			}
		})
	})
}

// hookedStore does something before every Change.
type hookedStore struct {
	dueq.Store
	then func()
}

func (s hookedStore) Change(ctx context.Context, queue string, op dueq.Op, targets []dueq.Target) ([]dueq.Outcome, error) {
	s.then()
	return s.Store.Change(ctx, queue, op, targets)
}
