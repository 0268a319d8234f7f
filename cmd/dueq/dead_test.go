package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/dueq/dueq"
)

func TestDead(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		t.Run("list filters by error and fills its page", func(t *testing.T) {
			c.die(t, "a", "time out", "t1", "t2", "t3")
			c.die(t, "a", "boom", "b1", "b2")
			r := c.run(t, "", "dead", "list", "a", "--error", "boom", "--limit", "2", "-o", "json").must(t, 0)
			if got := membersOf(t, r, "tasks"); !slices.Equal(got, []string{"b1", "b2"}) {
				t.Errorf("got %v", got)
			}
			c.run(t, "", "dead", "list", "a").must(t, 0).has(t, "t1", "t2", "t3", "b1", "b2", "time out")
		})
		t.Run("dry run changes nothing", func(t *testing.T) {
			c.die(t, "b", "boom", "m1", "m2")
			for _, line := range []string{"dead delete b --all --dry-run", "dead requeue b --error boom --dry-run", "dead delete b m1 m2 --dry-run"} {
				c.run(t, "", strings.Fields(line)...).must(t, 0).has(t, "dry run of", "2 done", "m1", "m2")
			}
			c.run(t, "", "dead", "delete", "b", "m1", "nosuch", "--dry-run").must(t, 3)
			if n := c.stats(t, "b").Dead; n != 2 {
				t.Errorf("%d dead letters, want 2", n)
			}
		})
		t.Run("requeue by error takes those only", func(t *testing.T) {
			c.die(t, "c", "time out", "t1", "t2")
			c.die(t, "c", "boom", "b1")
			r := c.run(t, "", "dead", "requeue", "c", "--error", "time", "-o", "json").must(t, 0)
			if got := membersOf(t, r, "results"); !slices.Equal(got, []string{"t1", "t2"}) {
				t.Errorf("got %v", got)
			}
			if got := fmt.Sprintln(r.object(t)["counts"], r.object(t)["op"], r.object(t)["dry_run"]); got != "map[done:2] requeue false\n" {
				t.Errorf("got %s", got)
			}
			if s := c.stats(t, "c"); s.Dead != 1 || s.Scheduled != 2 || s.Totals.Requeued != 2 {
				t.Errorf("got %+v", s)
			}
		})
		t.Run("named ones that are not there exit 3, and the rest is done", func(t *testing.T) {
			c.die(t, "d", "boom", "m1", "m2")
			c.schedule(t, "d", "alive", farWhen)
			r := c.run(t, "", "dead", "delete", "d", "m1", "alive", "nosuch").must(t, 3)
			r.has(t, "m1      done", "alive   changed", "nosuch  not_found", "delete d: 1 changed 1 done 1 not_found")
			r.says(t, "dueq: dead delete d: 2 of 3 tasks, such as nosuch: task not found\n")
			c.run(t, "", "dead", "delete", "d", "alive").must(t, 4)
			if s := c.stats(t, "d"); s.Dead != 1 || s.Scheduled != 1 {
				t.Errorf("got %+v", s)
			}
			c.run(t, "", "dead", "requeue", "d", "alive").must(t, 0).has(t, "alive  kept")
		})
		t.Run("all takes more than one page", func(t *testing.T) {
			const n = 2*dueq.MaxItems + 5
			for start := 0; start < n; start += 500 {
				var names []string
				for i := start; i < min(start+500, n); i++ {
					names = append(names, fmt.Sprintf("m%05d", i))
				}
				c.die(t, "e", "boom", names...)
			}
			c.run(t, "", "dead", "requeue", "e", "--all").must(t, 0).has(t, fmt.Sprintf("%d done", n))
			if s := c.stats(t, "e"); s.Dead != 0 || s.Scheduled != n {
				t.Errorf("%d dead, %d scheduled", s.Dead, s.Scheduled)
			}
		})
		t.Run("all of nothing is done", func(t *testing.T) {
			c.run(t, "", "dead", "delete", "f", "--all").must(t, 0).has(t, "delete f: nothing to do")
			v := c.run(t, "", "dead", "delete", "f", "--all", "-o", "json").must(t, 0).object(t)
			if fmt.Sprint(v) != "map[counts:map[] dry_run:false op:delete queue:f results:[]]" {
				t.Errorf("got %v", v)
			}
		})
		t.Run("all ends although requeued tasks die again at once", func(t *testing.T) {
			c.die(t, "g", "boom", "m1", "m2", "m3")
			eventually(t, func() bool { // their death is in the past
				info := c.info(t, "g", "m3")
				return c.stats(t, "g").Now.After(info.DiedAt)
			})
			dying := &cli{url: c.url, extra: c.extra, open: func(url, prefix string) (dueq.Store, error) {
				return dyingStore{kept{c.store}, func(members []string) { c.die(t, "g", "again", members...) }}, nil
			}}
			dying.run(t, "", "dead", "requeue", "g", "--all").must(t, 0).has(t, "m1  done", "m2  done", "m3  done")
		})
		if c.zadd != nil {
			t.Run("nothing raw of a foreign member is printed", func(t *testing.T) {
				evil := "evil\x1b[31m\u202e\u009b\xff:k"
				c.zadd("h", evil, badScore)
				c.claim(t, "h", 0)
				eventually(t, func() bool { return c.stats(t, "h").Dead == 1 })
				for _, args := range [][]string{{"dead", "list", "h"}, {"list", "h", "--state", "dead"}, {"get", "h", evil},
					{"dead", "list", "h", "-o", "json"}, {"cancel", "h", evil}, {"dead", "delete", "h", evil}, {"dead", "delete", "h", evil}} {
					r := c.run(t, "", args...)
					if bad := strings.IndexFunc(r.stdout+r.stderr, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f || r == 0x9b || r == 0x202e }); bad >= 0 {
						t.Errorf("%q prints control bytes: %q", args, r.stdout+r.stderr)
					}
					if !strings.Contains(r.stdout+r.stderr, "evil") {
						t.Errorf("%q does not show the task:\n%s%s", args, r.stdout, r.stderr)
					}
				}
				if n := c.stats(t, "h").Dead; n != 0 {
					t.Errorf("%d dead letters, want it deleted", n)
				}
			})
		}
	})
}

// TestDeadPrintsAsItGoes has every call's results on stdout before the next call
// is made, so that none of them need be kept.
func TestDeadPrintsAsItGoes(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		for _, format := range []string{"table", "json"} {
			var stdout lockedBuffer
			calls, missing := 0, ""
			a := &app{
				stdin: strings.NewReader(""), stdout: &stdout, stderr: io.Discard, getenv: c.getenv,
				open: func(context.Context, string, string) (dueq.Store, error) {
					return hookedStore{kept{c.store}, func() {
						if calls++; calls > 1 && !strings.Contains(stdout.String(), fmt.Sprintf("m%d", calls-1)) {
							missing += fmt.Sprintf("m%d ", calls-1)
						}
					}}, nil
				},
			}
			c.die(t, format, "boom", "m1", "m2", "m3", "m4")
			line := []string{"dead", "requeue", format, "--all", "--rate", "10/s", "-o", format} // one a call
			if code := a.run(t.Context(), append(c.extra, line...)); code != 0 || calls != 4 || missing != "" {
				t.Errorf("%s: exit code %d, %d calls, not printed before the next call: %s\n%s", format, code, calls, missing, stdout.String())
			}
			if format == "json" {
				r := result{stdout: stdout.String()}
				if got, v := membersOf(t, r, "results"), r.object(t); len(got) != 4 || fmt.Sprint(v["counts"]) != "map[done:4]" {
					t.Errorf("got %v", v)
				}
			}
		}
	})
}

func TestDeadStopsWhenItCannotSayWhatItDid(t *testing.T) {
	c := onMemory(t)
	c.die(t, "q", "boom", "m1", "m2", "m3")
	for _, format := range []string{"table", "json"} {
		var stderr lockedBuffer
		a := &app{
			stdin: strings.NewReader(""), stdout: brokenPipe{}, stderr: &stderr, getenv: c.getenv,
			open: func(context.Context, string, string) (dueq.Store, error) { return kept{c.store}, nil },
		}
		before := c.stats(t, "q").Dead
		code := a.run(t.Context(), []string{"dead", "delete", "q", "--all", "--rate", "10/s", "-o", format}) // one a call
		if left := c.stats(t, "q").Dead; code != 1 || left != before-1 || stderr.String() != "dueq: dead delete: broken pipe\n" {
			t.Errorf("%s: exit code %d, %d of %d are left, stderr: %s", format, code, left, before, stderr.String())
		}
	}
}

// dyingStore has every requeued task die before the next page.
type dyingStore struct {
	dueq.Store
	die func(members []string)
}

func (s dyingStore) List(ctx context.Context, q dueq.ListQuery) (dueq.Page, error) {
	q.Limit = 1
	return s.Store.List(ctx, q)
}

func (s dyingStore) Change(ctx context.Context, queue string, op dueq.Op, targets []dueq.Target) ([]dueq.Outcome, error) {
	outcomes, err := s.Store.Change(ctx, queue, op, targets)
	for _, target := range targets {
		s.die([]string{target.Member})
	}
	return outcomes, err
}

func membersOf(t *testing.T, r result, list string) []string {
	t.Helper()
	var names []string
	for _, task := range r.object(t)[list].([]any) {
		names = append(names, task.(map[string]any)["member"].(string))
	}
	return names
}
