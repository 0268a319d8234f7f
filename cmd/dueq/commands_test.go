package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

const (
	far      = "2099-01-02T03:04:05.678Z"
	farOther = "2099-01-02T04:04:05.679+01:00"
)

var (
	farWhen = dueq.At(time.Date(2099, 1, 2, 3, 4, 5, 678e6, time.UTC))
	past    = dueq.At(time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC))
)

func TestSchedule(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		t.Run("says what happened and when it is due", func(t *testing.T) {
			for _, step := range []struct{ line, want string }{
				{"schedule a:q o_1:k --at " + far, "scheduled o_1:k on a:q, due " + far + "\n"},
				{"schedule a:q o_1:k --at " + farOther + " --if-exists keep", "kept o_1:k on a:q, due " + far + "\n"},
				{"schedule a:q o_1:k --at " + farOther + " --if-exists earlier", "kept o_1:k on a:q, due " + far + "\n"},
				{"schedule a:q o_1:k --at " + farOther + " --if-exists later", "replaced o_1:k on a:q, due 2099-01-02T03:04:05.679Z\n"},
				{"schedule a:q o_1:k --at 4070905445678", "replaced o_1:k on a:q, due 2098-12-31T23:04:05.678Z\n"},
			} {
				if r := c.run(t, "", strings.Fields(step.line)...).must(t, 0); r.stdout != step.want {
					t.Errorf("%s\ngot  %swant %s", step.line, r.stdout, step.want)
				}
			}
		})
		t.Run("in JSON", func(t *testing.T) {
			r := c.run(t, "", "schedule", "b", "o_1:k", "--at", far, "-o", "json").must(t, 0)
			want := `{
  "queue": "b",
  "member": "o_1:k",
  "status": "scheduled",
  "due_at": "` + far + `"
}
`
			if r.stdout != want {
				t.Errorf("got %s want %s", r.stdout, want)
			}
		})
		t.Run("counts --in from now and takes days", func(t *testing.T) {
			before := c.stats(t, "c").Now
			c.run(t, "", "schedule", "c", "m", "--in", "1d12h").must(t, 0)
			if got := c.info(t, "c", "m").Due.Sub(before); got < 36*time.Hour || got > 36*time.Hour+time.Minute {
				t.Errorf("due %v after the call, want 36 h", got)
			}
		})
		t.Run("takes a body as text, from a file and from stdin", func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "body")
			if err := os.WriteFile(file, []byte("from\x00file"), 0o600); err != nil {
				t.Fatal(err)
			}
			for flag, want := range map[string]string{"--body=text": "text", "--body=@" + file: "from\x00file", "--body=-": "from stdin\n", "--body=": ""} {
				c.run(t, "from stdin\n", "schedule", "d", "m", "--in", "1h", flag).must(t, 0)
				if info := c.info(t, "d", "m"); string(info.Body) != want || !info.HasBody {
					t.Errorf("%s: body %q, %v; want %q", flag, info.Body, info.HasBody, want)
				}
			}
			c.run(t, "", "schedule", "d", "m", "--in", "1h").must(t, 0)
			if c.info(t, "d", "m").HasBody {
				t.Error("without --body there is a body")
			}
		})
		t.Run("refuses a body over the limit", func(t *testing.T) {
			c.run(t, strings.Repeat("x", 64<<10+1), "schedule", "e", "m", "--in", "1h", "--body", "-").must(t, 2).says(t, "too large")
			c.run(t, strings.Repeat("x", bodyMost+1), "schedule", "e", "m", "--in", "1h", "--body", "-").must(t, 2).says(t, "too large")
		})
		t.Run("takes longer members when told", func(t *testing.T) {
			long := strings.Repeat("m", 512)
			c.run(t, "", "schedule", "f", long, "--in", "1h").must(t, 2).says(t, "member is 512 bytes, the limit is 64")
			c.run(t, "", "schedule", "f", long, "--in", "1h", "--member-max", "512").must(t, 0)
		})
		t.Run("of a running task runs it once more", func(t *testing.T) {
			c.schedule(t, "g", "m", dueq.In(0))
			c.claim(t, "g", 1)
			c.run(t, "", "schedule", "g", "m", "--at", far).must(t, 0).has(t, "running m on g, runs once more, due "+far)
		})
		t.Run("takes a priority where it is on", func(t *testing.T) {
			c.run(t, "", "settings", "h", "set", "priority=on").must(t, 0)
			c.run(t, "", "schedule", "h", "m:p7", "--in", "1h").must(t, 0)
			if p := c.run(t, "", "get", "h", "m", "-o", "json").must(t, 0).object(t)["priority"]; p != 7.0 {
				t.Errorf("priority %v, want 7", p)
			}
		})
	})
}

func TestChanges(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		t.Run("cancel takes a task away", func(t *testing.T) {
			c.schedule(t, "a", "m:k", farWhen)
			if r := c.run(t, "", "cancel", "a", "m:k").must(t, 0); r.stdout != "cancelled m:k on a\n" {
				t.Errorf("got %q", r.stdout)
			}
			c.run(t, "", "cancel", "a", "m:k").must(t, 3).says(t, "dueq: cancel a: m:k: task not found\n")
		})
		t.Run("cancel of a running task says so and makes the run its last", func(t *testing.T) {
			c.schedule(t, "b", "m", dueq.In(0))
			c.claim(t, "b", 1)
			c.run(t, "", "cancel", "b", "m").must(t, 4).says(t, "dueq: cancel b: m: task is running; its later schedule is taken away and this run is its last; use --running to end it\n")
			c.run(t, "", "get", "b", "m").must(t, 0).has(t, "active, cancelled: this run is its last")
			r := c.run(t, "", "cancel", "b", "m", "--running", "-o", "json").must(t, 0).object(t)
			if r["status"] != "done" || r["due_at"] != nil {
				t.Errorf("got %v", r)
			}
			c.run(t, "", "get", "b", "m").must(t, 3).says(t, "dueq: get b: m: task not found\n")
		})
		t.Run("cancel of a dead letter points to the other commands", func(t *testing.T) {
			c.die(t, "c", "boom", "m")
			c.run(t, "", "cancel", "c", "m").must(t, 4).says(t, "task is dead; use dead requeue or dead delete")
		})
		t.Run("reschedule moves the due time only", func(t *testing.T) {
			c.run(t, "", "schedule", "d", "m", "--in", "1h", "--body", "b").must(t, 0)
			c.run(t, "", "reschedule", "d", "m", "--at", far).must(t, 0).has(t, "rescheduled m on d, due "+far+"\n")
			if body := c.info(t, "d", "m").Body; string(body) != "b" {
				t.Errorf("the body is %q, want b", body)
			}
			c.run(t, "", "reschedule", "d", "other", "--in", "1h").must(t, 3)
		})
		t.Run("reschedule of a running task is a conflict", func(t *testing.T) {
			c.schedule(t, "e", "m", dueq.In(0))
			c.claim(t, "e", 1)
			c.run(t, "", "reschedule", "e", "m", "--in", "1h").must(t, 4).says(t, "dueq: reschedule e: m: task is running\n")
		})
		t.Run("run-now makes it due", func(t *testing.T) {
			c.schedule(t, "f", "m", farWhen)
			c.run(t, "", "run-now", "f", "m").must(t, 0).has(t, "rescheduled m on f, due ")
			if tasks := c.claim(t, "f", 1); tasks[0].ID != "m" {
				t.Errorf("claimed %v", tasks[0])
			}
			c.run(t, "", "run-now", "f", "other").must(t, 3)
		})
	})
}

func TestGet(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		t.Run("prints everything", func(t *testing.T) {
			c.run(t, "", "schedule", "a", "o:1:k#tr", "--at", far, "--body", "line\nnext").must(t, 0)
			c.run(t, "", "get", "a", "o:1:k#tr").must(t, 0).has(t, "id          o:1\n", "kind        k\n", "trace       tr\n",
				"state       scheduled\n", "due         "+far+"\n", `"line\nnext"`)
			got := c.run(t, "", "get", "a", "o:1:k#tr", "-o", "json").must(t, 0).stdout
			want := `{
  "queue": "a",
  "member": "o:1:k#tr",
  "id": "o:1",
  "kind": "k",
  "priority": null,
  "trace": "tr",
  "state": "scheduled",
  "due_at": "` + far + `",
  "scheduled_again": false,
  "cancelled": false,
  "lease_ends_at": null,
  "died_at": null,
  "failures": 0,
  "round": 0,
  "last_error": "",
  "malformed": "",
  "has_body": true,
  "body": "line\nnext"
}
`
			if got != want {
				t.Errorf("got %s want %s", got, want)
			}
		})
		t.Run("prints bytes as base64 and never raw", func(t *testing.T) {
			c.run(t, "\x1b[31m\xff", "schedule", "b", "m", "--in", "1h", "--body", "-").must(t, 0)
			got := c.run(t, "", "get", "b", "m", "-o", "json").must(t, 0).object(t)
			if want := base64.StdEncoding.EncodeToString([]byte("\x1b[31m\xff")); got["body_base64"] != want || got["body"] != nil {
				t.Errorf("body_base64 %v, want %s", got["body_base64"], want)
			}
			c.run(t, "", "get", "b", "m").must(t, 0).has(t, `6 bytes: "\x1b[31m\xff"`)
		})
		t.Run("shows a lease and a death", func(t *testing.T) {
			c.schedule(t, "c", "m", dueq.In(0))
			c.claim(t, "c", 1)
			c.run(t, "", "schedule", "c", "m", "--at", far).must(t, 0)
			got := c.run(t, "", "get", "c", "m", "-o", "json").must(t, 0).object(t)
			if got["state"] != "active" || got["lease_ends_at"] == nil || got["scheduled_again"] != true || got["due_at"] != far {
				t.Errorf("got %v", got)
			}
			c.run(t, "", "get", "c", "m").must(t, 0).has(t, "active, scheduled again", "lease ends")
			c.die(t, "d", "why\x1b", "m")
			got = c.run(t, "", "get", "d", "m", "-o", "json").must(t, 0).object(t)
			if got["state"] != "dead" || got["died_at"] == nil || got["failures"] != 1.0 || got["last_error"] != "why\x1b" {
				t.Errorf("got %v", got)
			}
		})
	})
}

func TestList(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		for i := range 5 {
			c.run(t, "", "schedule", "q", fmt.Sprintf("m%d", i), "--at", fmt.Sprint(4070905445678+int64(i))).must(t, 0)
		}
		c.schedule(t, "q", "late", dueq.In(0))

		t.Run("pages to the end", func(t *testing.T) {
			var got []string
			cursor := ""
			for {
				page := c.run(t, "", "list", "q", "--limit", "2", "--cursor", cursor, "-o", "json").must(t, 0)
				for _, task := range page.object(t)["tasks"].([]any) {
					got = append(got, task.(map[string]any)["member"].(string))
				}
				next, _ := page.object(t)["cursor"].(string)
				if (next == "") != (page.stderr == "") {
					t.Errorf("cursor %q, stderr %q", next, page.stderr)
				}
				if cursor = next; cursor == "" {
					break
				}
			}
			if want := []string{"late", "m0", "m1", "m2", "m3", "m4"}; !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
		t.Run("all pages to the end, as one list", func(t *testing.T) {
			one := c.run(t, "", "list", "q", "-o", "json").must(t, 0)
			all := c.run(t, "", "list", "q", "--all", "-o", "json").must(t, 0)
			if all.stdout != one.stdout || all.stderr != "" {
				t.Errorf("got %s%s\nwant %s", all.stdout, all.stderr, one.stdout)
			}
			if r := c.run(t, "", "list", "q", "--all").must(t, 0); strings.Count(r.stdout, "\n") != 7 || strings.Count(r.stdout, "MEMBER") != 1 {
				t.Errorf("got %s", r.stdout)
			}
			empty := c.run(t, "", "list", "nosuch", "-o", "json").must(t, 0).stdout
			if r := c.run(t, "", "list", "nosuch", "--all", "-o", "json").must(t, 0); r.stdout != empty {
				t.Errorf("got %s\nwant %s", r.stdout, empty)
			}
			var items []dueq.Item
			for i := range 2500 {
				items = append(items, dueq.Item{Queue: "long", Task: dueq.Task{ID: fmt.Sprintf("m%d", i), Kind: fmt.Sprint("k", i%2)}, When: farWhen})
			}
			if _, err := dueq.NewClient(c.store, dueq.ClientOptions{}).ScheduleAll(t.Context(), items); err != nil {
				t.Fatal(err)
			}
			if n := len(c.run(t, "", "list", "long", "--all", "-o", "json").must(t, 0).object(t)["tasks"].([]any)); n != 2500 {
				t.Errorf("%d tasks, want 2500", n)
			}
			r := c.run(t, "", "list", "long", "--limit", "700", "--kind", "k1", "-o", "json").must(t, 0)
			if n := len(membersOf(t, r, "tasks")); n != 700 || strings.Contains(r.stdout, `"k0"`) {
				t.Errorf("%d tasks, want 700 of k1", n)
			}
			if r := c.run(t, "", "list", "long", "--kind=", "--all").must(t, 0); strings.Count(r.stdout, "\n") != 1 {
				t.Errorf("got %s", r.stdout)
			}
		})
		t.Run("filters by state", func(t *testing.T) {
			c.die(t, "r", "boom", "d1")
			c.schedule(t, "r", "a1", dueq.In(0))
			c.claim(t, "r", 1)
			c.schedule(t, "r", "s1", farWhen)
			c.schedule(t, "r", "o1", past)
			for state, want := range map[string][]string{"scheduled": {"o1", "s1", far}, "overdue": {"o1"}, "active": {"a1", "LEASE ENDS"}, "dead": {"d1", "DIED", "boom"}} {
				r := c.run(t, "", "list", "r", "--state", state).must(t, 0)
				r.has(t, want...)
				if lines := strings.Count(r.stdout, "\n"); state != "scheduled" && lines != 2 {
					t.Errorf("%s has %d lines, want 2:\n%s", state, lines, r.stdout)
				}
			}
		})
		t.Run("of an unknown queue is empty", func(t *testing.T) {
			if tasks := c.run(t, "", "list", "nosuch", "-o", "json").must(t, 0).object(t)["tasks"]; len(tasks.([]any)) != 0 {
				t.Errorf("got %v", tasks)
			}
		})
		t.Run("refuses a cursor that is none", func(t *testing.T) {
			c.run(t, "", "list", "q", "--cursor", "\x1bxyz").must(t, 2)
		})
	})
}

func TestStats(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		c.schedule(t, "a", "m1", farWhen)
		c.schedule(t, "a", "m2", past)
		c.die(t, "b", "boom", "d")

		r := c.run(t, "", "queues").must(t, 0)
		r.has(t, "QUEUE", "NEXT DUE")
		lines := strings.Split(r.stdout, "\n")
		if a := strings.Fields(lines[1]); !slices.Equal(a[:6], []string{"a", "2", "1", "0", "0", "no"}) {
			t.Errorf("got %v", a)
		}
		queues := c.run(t, "", "stats", "-o", "json").must(t, 0).object(t)["queues"].([]any)
		if len(queues) != 2 {
			t.Fatalf("got %v", queues)
		}
		b := queues[1].(map[string]any)
		if b["queue"] != "b" || b["dead"] != 1.0 || b["next_due_at"] != nil || b["totals"].(map[string]any)["died"] != 1.0 {
			t.Errorf("got %v", b)
		}
		c.run(t, "", "stats", "b").must(t, 0).has(t, "queue           b\n", "dead            1\n", "  died         1\n")
	})
}

func TestSettings(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		t.Run("shows every setting, with what is the default", func(t *testing.T) {
			r := c.run(t, "", "settings", "a").must(t, 0)
			view := c.run(t, "", "settings", "a", "get", "-o", "json").must(t, 0).object(t)
			inJSON := view["settings"].(map[string]any)
			for _, name := range dueq.SettingNames() {
				r.has(t, name)
				_, plain := inJSON[name]
				_, inMs := inJSON[name+"_ms"]
				_, percent := inJSON[name+"_percent"]
				if !plain && !inMs && !percent {
					t.Errorf("JSON lacks %s", name)
				}
			}
			if len(inJSON) != len(dueq.SettingNames()) || len(view["changed"].([]any)) != 0 {
				t.Errorf("got %v", view)
			}
		})
		t.Run("sets several at once and takes the default again", func(t *testing.T) {
			c.run(t, "", "settings", "b", "set", "retries=7", "timeout=1m30s", "retry_jitter=29%", "max_late=2h").must(t, 0).has(t, "timeout        1m30s")
			view := c.run(t, "", "settings", "b", "-o", "json").must(t, 0).object(t)
			set := view["settings"].(map[string]any)
			if set["retries"] != 7.0 || set["timeout_ms"] != 90000.0 || set["retry_jitter_percent"] != 29.0 || set["max_late_ms"] != 7200000.0 {
				t.Errorf("got %v", set)
			}
			if got := fmt.Sprint(view["changed"]); got != "[timeout retries retry_jitter max_late]" {
				t.Errorf("changed: %s", got)
			}
			c.run(t, "", "settings", "b", "set", "retries=default", "max_late=off").must(t, 0)
			if got := fmt.Sprint(c.run(t, "", "settings", "b", "-o", "json").object(t)["changed"]); got != "[timeout retry_jitter]" {
				t.Errorf("changed: %s", got)
			}
		})
		t.Run("changes nothing when one is wrong", func(t *testing.T) {
			c.run(t, "", "settings", "c", "set", "retries=7", "batch=0").must(t, 2).says(t, "batch")
			if s, err := c.store.Settings(t.Context(), "c"); err != nil || s.Retries != 3 {
				t.Errorf("retries %d, %v; want 3", s.Retries, err)
			}
		})
		t.Run("pause and resume", func(t *testing.T) {
			c.run(t, "", "pause", "d").must(t, 0).has(t, "paused d\n")
			if !c.stats(t, "d").Paused {
				t.Error("it is not paused")
			}
			if v := c.run(t, "", "resume", "d", "-o", "json").must(t, 0).object(t); v["paused"] != false || v["queue"] != "d" {
				t.Errorf("got %v", v)
			}
			if c.stats(t, "d").Paused {
				t.Error("it is still paused")
			}
		})
	})
}

func TestVersion(t *testing.T) {
	c := &cli{}
	c.run(t, "", "version").must(t, 0).has(t, "dueq", "go1.")
	if v := c.run(t, "", "version", "-o", "json").must(t, 0).object(t); v["go"] == "" || v["version"] == "" {
		t.Errorf("got %v", v)
	}
}

func TestBenchTakesNames(t *testing.T) {
	c := onMemory(t)
	c.run(t, "", "bench", "schedule", "--tasks", "10").must(t, 0).has(t, "schedule  10")
	c.run(t, "", "bench", "nosuch").must(t, 2).says(t, `work "nosuch" is not one of schedule, drain, precision`)
}
