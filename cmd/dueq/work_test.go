package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

// worker is a dueq work that runs in this process until stop.
type worker struct {
	cancel context.CancelFunc
	result chan result
}

func (c *cli) work(t *testing.T, args ...string) *worker {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &worker{cancel, make(chan result, 1)}
	go func() { w.result <- c.runContext(t, ctx, "", append([]string{"work"}, args...)...) }()
	t.Cleanup(cancel)
	return w
}

func (w *worker) stop() result {
	w.cancel()
	return <-w.result
}

func (c *cli) scheduleBody(t *testing.T, queue, member, body string) {
	t.Helper()
	c.run(t, body, "schedule", queue, member, "--in", "0s", "--body", "-").must(t, 0)
}

func TestWorkCommand(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		t.Run("the command has the task on stdin and in its environment", func(t *testing.T) {
			w := c.work(t, "a", "--", "sh", "-c", `echo "$DUEQ_QUEUE|$DUEQ_ID|$DUEQ_KIND|$DUEQ_ATTEMPT|$DUEQ_ROUND|$DUEQ_DUE|$(cat)"`)
			c.run(t, "the body", "schedule", "a", "o:1:k", "--at", "2020-01-02T03:04:05.678Z", "--body", "-").must(t, 0)
			eventually(t, func() bool { return c.stats(t, "a").Totals.Acked == 1 })
			r := w.stop().must(t, 0)
			if want := "a|o:1|k|1|0|2020-01-02T03:04:05.678Z|the body\n"; r.stdout != want {
				t.Errorf("got %q, want %q", r.stdout, want)
			}
		})
		t.Run("exit 0 is done, also when the body is not read", func(t *testing.T) {
			w := c.work(t, "b", "--", "true")
			c.scheduleBody(t, "b", "m", strings.Repeat("x", 60_000))
			eventually(t, func() bool { return c.stats(t, "b").Totals.Acked == 1 })
			w.stop().must(t, 0)
			if s := c.stats(t, "b"); s.Scheduled+s.Active+s.Dead != 0 {
				t.Errorf("something is left: %+v", s)
			}
		})
		t.Run("exit 75 is again", func(t *testing.T) {
			w := c.work(t, "c", "--again", "1h", "--", "sh", "-c", "echo later >&2; exit 75")
			c.scheduleBody(t, "c", "m", "x")
			eventually(t, func() bool { return c.stats(t, "c").Totals.Again == 1 })
			w.stop().must(t, 0)
			info := c.info(t, "c", "m")
			if in := info.Due.Sub(c.stats(t, "c").Now); info.Round != 1 || info.Failures != 0 || in < 50*time.Minute || in > time.Hour {
				t.Errorf("round %d, %d failures, due in %v; want 1, 0, 1h", info.Round, info.Failures, in)
			}
		})
		t.Run("exit 65 is dead, with the end of stderr", func(t *testing.T) {
			w := c.work(t, "d", "--", "sh", "-c", "head -c 5000 /dev/zero | tr '\\0' x >&2; echo the end >&2; exit 65")
			c.scheduleBody(t, "d", "m", "x")
			eventually(t, func() bool { return c.stats(t, "d").Totals.Died == 1 })
			r := w.stop().must(t, 0)
			r.says(t, strings.Repeat("x", 5000)+"the end\n")
			info := c.info(t, "d", "m")
			if want := strings.Repeat("x", errorKept-len("the end\n")) + "the end"; info.State != dueq.StateDead || info.LastError != want {
				t.Errorf("%v with error %q", info.State, info.LastError)
			}
		})
		t.Run("another exit code is a failure that is tried again", func(t *testing.T) {
			c.run(t, "", "settings", "e", "set", "retry_first=1h").must(t, 0)
			w := c.work(t, "e", "--", "sh", "-c", "exit 3")
			c.scheduleBody(t, "e", "m", "x")
			eventually(t, func() bool { return c.stats(t, "e").Totals.Retried == 1 })
			w.stop().must(t, 0)
			if info := c.info(t, "e", "m"); info.Failures != 1 || info.LastError != "exit status 3" {
				t.Errorf("%d failures, error %q", info.Failures, info.LastError)
			}
		})
		t.Run("a command over its time ends with all of its group", func(t *testing.T) {
			c.run(t, "", "settings", "f", "set", "timeout=100ms", "retries=0").must(t, 0)
			w := c.work(t, "f", "--", "sh", "-c", "trap '' TERM; sleep 600 & echo $!; wait; wait")
			c.scheduleBody(t, "f", "m", "x")
			eventually(t, func() bool { return c.stats(t, "f").Totals.Died == 1 })
			r := w.stop().must(t, 0)
			pid := strings.TrimSpace(r.stdout)
			if pid == "" {
				t.Fatal("the command's child did not say its pid")
			}
			eventually(t, func() bool { return !alive(pid) }) // a kill takes a moment to work
			if text := c.info(t, "f", "m").LastError; !strings.Contains(text, "deadline") || !strings.Contains(text, "signal: killed") {
				t.Errorf("error %q", text)
			}
		})
		t.Run("what exits 0 because of SIGTERM has failed", func(t *testing.T) {
			c.run(t, "", "settings", "g", "set", "timeout=300ms", "retry_first=1h").must(t, 0)
			w := c.work(t, "g", "--", "sh", "-c", "trap 'exit 0' TERM; sleep 600 & wait")
			c.scheduleBody(t, "g", "m", "x")
			eventually(t, func() bool { return c.stats(t, "g").Totals.Retried == 1 })
			w.stop().must(t, 0)
		})
		t.Run("a child left behind does not hold the task", func(t *testing.T) {
			w := c.work(t, "h", "--", "sh", "-c", "sleep 600 & exit 0")
			c.scheduleBody(t, "h", "m", "x")
			eventually(t, func() bool { return c.stats(t, "h").Totals.Acked == 1 })
			w.stop().must(t, 0)
		})
		t.Run("nor makes a command fail that ended in time", func(t *testing.T) {
			c.run(t, "", "settings", "h2", "set", "timeout=2s").must(t, 0)
			w := c.work(t, "h2", "--", "sh", "-c", "sleep 0.5; sleep 600 & exit 0") // waited for until after the timeout
			c.scheduleBody(t, "h2", "m", "x")
			eventually(t, func() bool { s := c.stats(t, "h2").Totals; return s.Acked+s.Retried == 1 })
			w.stop().must(t, 0)
			if got := c.stats(t, "h2").Totals; got.Acked != 1 {
				t.Errorf("got %+v, want one acked", got)
			}
		})
		t.Run("several queues, each with its concurrency", func(t *testing.T) {
			w := c.work(t, "i", "j", "--concurrency", "1", "--", "sh", "-c", `echo "$DUEQ_QUEUE"`)
			c.scheduleBody(t, "i", "m", "x")
			c.scheduleBody(t, "j", "m", "x")
			eventually(t, func() bool { return c.stats(t, "i").Totals.Acked+c.stats(t, "j").Totals.Acked == 2 })
			w.stop().must(t, 0).has(t, "i\n", "j\n")
		})
	})
}

func TestWorkPrints(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		t.Run("one line of JSON a task", func(t *testing.T) {
			w := c.work(t, "a", "--log-format", "json", "--log-level", "debug")
			c.run(t, "text\x1b", "schedule", "a", "o:1:k", "--at", "2020-01-02T03:04:05.678Z", "--body", "-").must(t, 0)
			c.run(t, "", "schedule", "a", "bare", "--in", "0s").must(t, 0)
			c.run(t, "ünï\n", "schedule", "a", "o:2:k", "--in", "0s", "--body", "-").must(t, 0)
			eventually(t, func() bool { return c.stats(t, "a").Totals.Acked == 3 })
			r := w.stop().must(t, 0)
			lines := map[string]map[string]any{}
			scanner := bufio.NewScanner(strings.NewReader(r.stdout))
			for scanner.Scan() {
				var line map[string]any
				if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
					t.Fatalf("%v in %s", err, scanner.Text())
				}
				lines[line["member"].(string)] = line
			}
			first := lines["o:1:k"]
			for key, want := range map[string]any{"queue": "a", "id": "o:1", "kind": "k", "priority": nil, "trace": "", "attempt": 1.0,
				"round": 0.0, "due_at": "2020-01-02T03:04:05.678Z", "body_base64": "dGV4dBs="} {
				if got, ok := first[key]; !ok || got != want {
					t.Errorf("%s is %v, want %v", key, got, want)
				}
			}
			age, drift := first["age_ms"].(float64), first["drift_ms"].(float64)
			if age < 1e11 || drift < age {
				t.Errorf("age %v, drift %v", age, drift)
			}
			if _, ok := lines["bare"]["body"]; ok || lines["o:2:k"]["body"] != "ünï\n" {
				t.Errorf("got %v", lines)
			}
		})
		t.Run("what cannot be written is not done", func(t *testing.T) {
			c.scheduleBody(t, "b", "m", "x")
			a := &app{
				stdin: strings.NewReader(""), stdout: brokenPipe{}, stderr: io.Discard,
				getenv: c.getenv, exit: func(int) {},
				open: func(_ context.Context, url, prefix string) (dueq.Store, error) { return c.open(url, prefix) },
			}
			if code := a.run(t.Context(), append(c.extra, "work", "b")); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			if s := c.stats(t, "b"); s.Totals.Acked != 0 || s.Scheduled != 1 {
				t.Errorf("got %+v, want it scheduled again", s)
			}
		})
		t.Run("stops by itself after --for", func(t *testing.T) {
			c.run(t, "", "work", "c", "--for", "50ms").must(t, 0)
		})
	})
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }
