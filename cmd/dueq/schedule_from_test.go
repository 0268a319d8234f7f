package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
)

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestScheduleFrom(t *testing.T) {
	const (
		good = "id,kind,due,body\na,k," + far + ",x\nb,k," + far + ",\n"
		some = "id,delay,body\n,1h,\na,1h,\"x\n\"\nb,soon,\nc,1h,\n"
		json = `{"id":"a","kind":"k","due_at":"` + far + `","body":{"n":1}}` + "\n" + `{"id":"b","delay_ms":"5"}` + "\n" + `{"id":"c","delay_ms":60000,"body_base64":"AAE="}`
	)
	on(t, func(t *testing.T, c *cli) {
		t.Run("says what happened", func(t *testing.T) {
			file := writeFile(t, "a.csv", good)
			for _, step := range []struct{ flags, want string }{
				{"", "a:q: 2 scheduled, 0 replaced, 0 kept, 0 running, 0 bad, in "},
				{"--if-exists keep", "a:q: 0 scheduled, 0 replaced, 2 kept, 0 running, 0 bad, in "},
				{"--if-exists replace --strict", "a:q: 0 scheduled, 2 replaced, 0 kept, 0 running, 0 bad, in "},
			} {
				r := c.run(t, "", append([]string{"schedule", "a:q", "--from", file}, strings.Fields(step.flags)...)...).must(t, 0)
				if !strings.HasPrefix(r.stdout, step.want) || r.stderr != "" {
					t.Errorf("%s: got %s%s", step.flags, r.stdout, r.stderr)
				}
			}
			info := c.info(t, "a:q", "a:k")
			if string(info.Body) != "x" || view.Instant(info.Due).String() != far || c.info(t, "a:q", "b:k").HasBody {
				t.Errorf("got %+v", info)
			}
		})
		t.Run("bad lines are reported and do not keep the others", func(t *testing.T) {
			r := c.run(t, some, "schedule", "b", "--from", "-", "--format", "csv").must(t, 1)
			r.has(t, "b: 2 scheduled", "2 bad")
			want := "line 2: id is empty\nline 5: delay \"soon\" is not a duration like 30m, 1.5s or 7d\ndueq: schedule: 2 of 4 lines are bad\n"
			if r.stderr != want {
				t.Errorf("got %s want %s", r.stderr, want)
			}
			r = c.run(t, json, "schedule", "b2", "--from", "-", "--format", "ndjson", "-o", "json").must(t, 1)
			view := r.object(t)
			if view["scheduled"] != 2.0 || view["bad"] != 1.0 || view["tasks"] != 3.0 || view["line"] != 3.0 || view["complete"] != true {
				t.Errorf("got %v", view)
			}
			if got := fmt.Sprint(view["bad_lines"]); got != `[map[line:2 reason:delay_ms "\"5\"" is not a whole number]]` {
				t.Errorf("got %s", got)
			}
			if body := c.info(t, "b2", "a:k").Body; string(body) != `{"n":1}` {
				t.Errorf("got %s", body)
			}
		})
		t.Run("strict schedules nothing unless all are good", func(t *testing.T) {
			for name, file := range map[string]string{"stdin": "-", "a file": writeFile(t, "a.csv", some)} {
				r := c.run(t, some, "schedule", "c", "--from", file, "--format", "csv", "--strict").must(t, 1)
				r.says(t, "line 2: id is empty", "2 of 4 lines are bad: nothing was scheduled")
				if n := c.stats(t, "c").Scheduled; n != 0 {
					t.Errorf("%s: %d are scheduled, want none", name, n)
				}
			}
			c.run(t, good, "schedule", "c", "--from", "-", "--format", "csv", "--strict", "-o", "json").must(t, 0)
			if n := c.stats(t, "c").Scheduled; n != 2 {
				t.Errorf("%d are scheduled, want 2", n)
			}
		})
		t.Run("what only the queue's settings refuse is a bad line too", func(t *testing.T) {
			text := "id,delay,body,priority\na,1h," + strings.Repeat("x", 64<<10+1) + ",\nb,1h,,3\nc,1h,,\n"
			for _, flags := range [][]string{{"--strict"}, nil} {
				r := c.run(t, text, append([]string{"schedule", "d", "--from", "-", "--format", "csv"}, flags...)...).must(t, 1)
				r.says(t, "line 2: ", "body is 65537 bytes, body_max ", "too large", "line 3: priority ")
				if n := c.stats(t, "d").Scheduled; n != int64(1-len(flags)) {
					t.Errorf("%v: %d are scheduled", flags, n)
				}
			}
		})
		t.Run("a bad header refuses the file", func(t *testing.T) {
			for _, flags := range [][]string{{"--strict"}, nil} {
				r := c.run(t, "id,when\na,1h\n", append([]string{"schedule", "e", "--from", "-", "--format", "csv"}, flags...)...).must(t, 2)
				if r.stdout != "" || r.stderr != "dueq: schedule: header has the column \"when\", which is not one of id, kind, priority, delay, due, body\n" {
					t.Errorf("got %s%s", r.stdout, r.stderr)
				}
			}
			c.run(t, "", "schedule", "e", "--from", "-", "--format", "csv").must(t, 2).says(t, "header is missing")
			c.run(t, "", "schedule", "e", "--from", "-", "--format", "ndjson").must(t, 0).has(t, "e: 0 scheduled")
		})
		t.Run("only the first 20 bad lines are reported", func(t *testing.T) {
			r := c.run(t, "id,delay\n"+strings.Repeat(",1h\n", 25), "schedule", "f", "--from", "-", "--format", "csv").must(t, 1)
			r.says(t, "line 21: id", "and 5 more bad lines\n", "25 of 25 lines")
			if strings.Contains(r.stderr, "line 22:") {
				t.Errorf("got %s", r.stderr)
			}
		})
		t.Run("a terminal has a bar", func(t *testing.T) {
			tty := *c
			tty.terminal = true
			file := writeFile(t, "a.csv", "id,delay\n"+strings.Repeat("a,1h\n", 3000))
			tty.run(t, "", "schedule", "g", "--from", file).must(t, 0).says(t, "scheduling "+file, "tasks", "%")
			if r := tty.run(t, "", "schedule", "g", "--from", file, "-o", "json").must(t, 0); r.stderr != "" {
				t.Errorf("got %s", r.stderr)
			}
			tty.run(t, "id,delay\na,1h\n", "schedule", "g", "--from", "-", "--format", "csv").must(t, 0).says(t, "scheduling stdin")
		})
		t.Run("large bodies go in several calls", func(t *testing.T) {
			text := "id,delay,body\n"
			for i := range 100 {
				text += fmt.Sprintf("t%d,1h,%s\n", i, strings.Repeat("x", 60<<10))
			}
			c.run(t, text, "schedule", "h", "--from", "-", "--format", "csv").must(t, 0).has(t, "h: 100 scheduled")
		})
	})
}

// failingStore fails from some call of Schedule on.
type failingStore struct {
	dueq.Store
	left *int
}

func (s failingStore) Schedule(ctx context.Context, items []dueq.Item) ([]dueq.Outcome, error) {
	if *s.left--; *s.left < 0 {
		return nil, dueq.Unavailable(io.ErrUnexpectedEOF)
	}
	return s.Store.Schedule(ctx, items)
}

func TestScheduleFromStopped(t *testing.T) {
	csv := "id,delay\n"
	for i := range 2500 {
		csv += fmt.Sprintf("t%d,1h\n", i)
	}
	t.Run("by a store that fails", func(t *testing.T) {
		c := onMemory(t)
		left := 1
		failing := &cli{url: c.url, open: func(string, string) (dueq.Store, error) { return failingStore{kept{c.store}, &left}, nil }}
		r := failing.run(t, csv, "schedule", "q", "--from", "-", "--format", "csv").must(t, 5)
		r.says(t, "store unavailable", "done up to line 1001; --if-exists keep goes on from there")
		r.has(t, "q: 1000 scheduled")
	})
	t.Run("while it checks, nothing is scheduled and no file is left", func(t *testing.T) {
		c := onMemory(t)
		temp := t.TempDir()
		t.Setenv("TMPDIR", temp)
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		defer w.Close()
		go func() {
			_, _ = io.WriteString(w, csv)
			cancel()
		}()
		var stdout, stderr lockedBuffer
		a := &app{stdin: r, stdout: &stdout, stderr: &stderr, getenv: named("memory:"),
			open: func(context.Context, string, string) (dueq.Store, error) { return kept{c.store}, nil }}
		if code := a.run(ctx, []string{"schedule", "q", "--from", "-", "--format", "csv", "--strict"}); code != 1 {
			t.Errorf("exit code %d, want 1: %s", code, stderr.String())
		}
		left, err := os.ReadDir(temp)
		if err != nil || len(left) > 0 || c.stats(t, "q").Scheduled > 0 {
			t.Errorf("left %v, %v, %d scheduled", left, err, c.stats(t, "q").Scheduled)
		}
	})
	t.Run("a file that changes between the two readings is refused", func(t *testing.T) {
		c := onMemory(t)
		file := writeFile(t, "a.csv", csv)
		changing := &cli{url: c.url, open: func(string, string) (dueq.Store, error) {
			return settingsStore{kept{c.store}, func() { _ = os.WriteFile(file, []byte("id,delay\n"), 0o600) }}, nil
		}}
		changing.run(t, "", "schedule", "q", "--from", file, "--strict").must(t, 2).says(t, "it changed while it was read; nothing was scheduled")
	})
}

// settingsStore does something when the settings are asked for.
type settingsStore struct {
	dueq.Store
	then func()
}

func (s settingsStore) Settings(ctx context.Context, queue string) (dueq.Settings, error) {
	defer s.then()
	return s.Store.Settings(ctx, queue)
}

// TestScheduleFromBulk measures the memory of a process that schedules 20,000
// lines, with DUEQ_BULK=1 a million.
func TestScheduleFromBulk(t *testing.T) {
	lines, bad := 20_000, 0
	if os.Getenv("DUEQ_BULK") == "1" {
		lines = 1_000_000
	}
	c := onRedis(t)
	for _, format := range []string{"csv", "ndjson"} {
		path := filepath.Join(t.TempDir(), "big."+format)
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		bad = 0
		w := io.Writer(file)
		if format == "csv" {
			fmt.Fprintln(w, "id,kind,delay,body")
		}
		var chunk strings.Builder
		for i := range lines {
			id := fmt.Sprintf("order_%d", i)
			if i%9999 == 0 {
				id, bad = "", bad+1
			}
			if format == "csv" {
				fmt.Fprintf(&chunk, "%s,pay_timeout,%ds,\"{\"\"order\"\":%d}\"\n", id, 600+i%3600, i)
			} else {
				fmt.Fprintf(&chunk, `{"id":%q,"kind":"pay_timeout","delay_ms":%d,"body":{"order":%d}}`+"\n", id, 600_000+i%3600, i)
			}
			if chunk.Len() > 1<<20 || i == lines-1 {
				if _, err := io.WriteString(w, chunk.String()); err != nil {
					t.Fatal(err)
				}
				chunk.Reset()
			}
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		cmd := c.command(t, "schedule", format, "--from", path)
		began := time.Now()
		var out lockedBuffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		peak := peakMemory(cmd.Process.Pid, ended)
		if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(out.String(), fmt.Sprintf("%d of %d lines are bad", bad, lines)) {
			t.Errorf("%s: exit code %d, want 1:\n%s", format, code, out.String())
		}
		if n := c.stats(t, format).Scheduled; n != int64(lines-bad) {
			t.Errorf("%s: %d are scheduled, want %d", format, n, lines-bad)
		}
		t.Logf("%s: %d lines in %v, %d MiB resident", format, lines, time.Since(began).Round(time.Millisecond), peak)
		if peak > 200 {
			t.Errorf("%s: %d MiB resident, want at most 200", format, peak)
		}
	}
}

// peakMemory watches a process to its end and returns the most memory it had
// resident, in MiB; zero where there is no /proc. What the system tells of an
// ended process includes what its parent had when it forked.
func peakMemory(pid int, ended <-chan error) (peak int) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if _, line, ok := strings.Cut(string(status), "VmHWM:"); ok {
			var kib int
			_, _ = fmt.Sscan(line, &kib)
			peak = max(peak, kib>>10)
		}
		select {
		case <-ended:
			return peak
		case <-ticker.C:
		}
	}
}
