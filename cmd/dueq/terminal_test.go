package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// TestTerminal has a process schedule a file with a terminal as stderr, and
// without one.
func TestTerminal(t *testing.T) {
	t.Parallel()
	c := onSQLite(t)
	file := writeFile(t, "a.csv", "id,delay\n"+strings.Repeat("a,1h\n,1h\n", 3000))
	line := []string{"schedule", "q", "--from", file}
	const data = "q: 1 scheduled, 2999 replaced, 0 kept, 0 running, 3000 bad, in "

	for name, size := range map[string]*pty.Winsize{"a terminal": {Rows: 24, Cols: 80}, "a terminal of no size": {}} {
		t.Run(name+" has a bar, and stdout the data alone", func(t *testing.T) {
			c.run(t, "", "delete", "q", "--yes").must(t, 0)
			r := c.onTerminal(t, size, line...).must(t, 1)
			r.says(t, "scheduling "+file, "tasks", "%", "\r", "line 3: id is empty\r\n", "dueq: schedule: 3000 of 6000 lines are bad\r\n")
			if !strings.HasPrefix(r.stdout, data) || strings.Count(r.stdout, "\n") != 1 {
				t.Errorf("stdout: %q", r.stdout)
			}
		})
	}
	t.Run("a terminal has no bar with -o json", func(t *testing.T) {
		r := c.onTerminal(t, &pty.Winsize{Rows: 24, Cols: 80}, append(line, "-o", "json")...).must(t, 1)
		if r.object(t)["bad"] != 3000.0 || strings.Contains(r.stderr, "scheduling") {
			t.Errorf("stdout: %q\nstderr: %q", r.stdout, r.stderr)
		}
	})
	t.Run("no terminal has no bar and no control bytes", func(t *testing.T) {
		c.run(t, "", "delete", "q", "--yes").must(t, 0)
		cmd := c.command(t, line...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.HasPrefix(stdout.String(), data) {
			t.Errorf("exit code %d, stdout: %q", code, stdout.String())
		}
		if text := stdout.String() + stderr.String(); strings.ContainsAny(text, "\r\x1b") || strings.Contains(text, "scheduling") {
			t.Errorf("got %q", text)
		}
	})
}

// onTerminal runs a process whose stdin and stderr are a terminal.
func (c *cli) onTerminal(t *testing.T, size *pty.Winsize, args ...string) result {
	t.Helper()
	screen, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	if err := pty.Setsize(screen, size); err != nil {
		t.Fatal(err)
	}
	cmd := c.command(t, args...)
	var stdout bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, &stdout, terminal
	err = cmd.Start()
	terminal.Close()
	if err != nil {
		t.Fatal(err)
	}
	shown, err := io.ReadAll(screen)
	if err != nil && !errors.Is(err, syscall.EIO) { // which is how a terminal ends
		t.Error(err)
	}
	_ = cmd.Wait()
	return result{stdout.String(), string(shown), cmd.ProcessState.ExitCode()}
}
