package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

// TestMemory measures processes that go through a whole queue: they need the
// same memory whatever its length. DUEQ_BULK=1 takes a million tasks.
func TestMemory(t *testing.T) {
	t.Parallel()
	tasks := 50_000
	if os.Getenv("DUEQ_BULK") == "1" {
		tasks = 1_000_000
	}
	c := onRedis(t)
	var names []string
	for i := range tasks {
		names = append(names, fmt.Sprintf("order_%d:pay_timeout", i))
		if len(names) == dueq.MaxItems || i == tasks-1 {
			c.die(t, "q", "the bank did not answer in time", names...)
			names = names[:0]
		}
	}
	for _, step := range []struct{ line, done string }{
		{"dead requeue q --all --dry-run -o json", fmt.Sprintf(`"done": %d`, tasks)},
		{"dead list q --all -o json", `"cursor": ""`},
		{"dead requeue q --all -o json", fmt.Sprintf(`"done": %d`, tasks)},
		{"list q --all", "order_"},
		{"move q r --all -o json", fmt.Sprintf(`"moved": %d`, tasks)},
		{"delete r --yes -o json", fmt.Sprintf(`"scheduled": %d`, tasks)},
	} {
		peak, took, end := c.measure(t, strings.Fields(step.line)...)
		t.Logf("%-40s %d tasks in %v, %d MiB resident", step.line, tasks, took.Round(time.Millisecond), peak)
		if !strings.Contains(end, step.done) {
			t.Errorf("%s ends with %s", step.line, end)
		}
		if peak > memoryMost {
			t.Errorf("%s: %d MiB resident, want %d at most", step.line, peak, memoryMost)
		}
	}
}

const memoryMost = 32 // MiB; 17 are usual

// measure runs a process and returns its peak of resident memory in MiB, how
// long it took and the end of its stdout.
func (c *cli) measure(t *testing.T, args ...string) (peak int, took time.Duration, end string) {
	t.Helper()
	cmd := c.command(t, args...)
	stdout, stderr := &tail{}, &tail{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	peak = peakMemory(cmd.Process.Pid, ended)
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("%v: exit code %d: %s", args, code, stderr)
	}
	return peak, time.Since(began), stdout.String()
}
