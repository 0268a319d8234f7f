package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
)

// againTasks are those of the file that is scheduled again: line n+2 is task n.
const againTasks = 5000

// againLines are the lines of tasks from up to, but without, to.
func againLines(from, to int) string {
	var b strings.Builder
	if from == 0 {
		b.WriteString("id,kind,due,body\n")
	}
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "t%d,k,%d,body %d\n", i, 4070905445678+i%7, i)
	}
	return b.String()
}

// TestScheduleFromAgain interrupts a process that schedules a file, and runs it
// again with keep: then the queue is as after one run without interruption.
func TestScheduleFromAgain(t *testing.T) {
	t.Parallel()
	for store, open := range map[string]func(*testing.T) *cli{"sqlite": onSQLite, "redis": onRedis} {
		t.Run(store, func(t *testing.T) {
			c, file := open(t), againLines(0, againTasks)
			c.run(t, file, "schedule", "whole", "--from", "-", "--format", "csv").must(t, 0)
			want := c.contents(t, "whole")
			for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
				queue := fmt.Sprint("cut", int(s))
				stored := c.scheduleCut(t, queue, s)
				if stored == 0 || stored == againTasks {
					t.Fatalf("%v: %d of %d are stored, want it cut", s, stored, againTasks)
				}
				r := c.run(t, file, "schedule", queue, "--from", "-", "--format", "csv", "--if-exists", "keep").must(t, 0)
				r.has(t, fmt.Sprintf("%s: %d scheduled, 0 replaced, %d kept, 0 running, 0 bad", queue, againTasks-stored, stored))
				if got := c.contents(t, queue); !slices.Equal(got, want) {
					t.Errorf("%v: %d tasks, want %d, or they differ", s, len(got), len(want))
				}
			}
		})
	}
}

// scheduleCut has a process schedule the file, sends it a signal when it has
// stored a part and reads on, and returns how many tasks it stored.
func (c *cli) scheduleCut(t *testing.T, queue string, s syscall.Signal) int {
	t.Helper()
	cmd := c.command(t, "schedule", queue, "--from", "-", "--format", "csv", "-o", "json")
	var stdout, stderr lockedBuffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	send := func(from, to int) {
		if _, err := io.WriteString(in, againLines(from, to)); err != nil {
			t.Fatal(err)
		}
	}
	send(0, 1500)
	eventually(t, func() bool { return c.stats(t, queue).Scheduled == 1500 })
	send(1500, 3600)
	_ = cmd.Process.Signal(s)
	_ = cmd.Wait()
	stored := int(c.stats(t, queue).Scheduled)
	r := result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	if s == syscall.SIGKILL {
		if r.must(t, -1); r.stdout != "" {
			t.Errorf("it was killed and says %s", r.stdout)
		}
		return stored
	}
	r.must(t, 1).says(t, fmt.Sprintf("interrupted: done up to line %d", stored+1))
	if v := r.object(t); v["scheduled"] != float64(stored) || v["complete"] != false || v["line"] != float64(stored+1) {
		t.Errorf("%d are stored, it says %v", stored, v)
	}
	return stored
}

// contents are all tasks of a queue with all that the store has of them.
func (c *cli) contents(t *testing.T, queue string) []string {
	t.Helper()
	var all []string
	query := dueq.ListQuery{Queue: queue, State: dueq.StateScheduled}
	err := eachPage(t.Context(), c.store, query, func(tasks []dueq.Info) error {
		infos, err := c.store.Get(t.Context(), queue, members(tasks))
		for _, i := range infos {
			all = append(all, fmt.Sprintf("%s %v %s %q %v %d %d %q", i.Member, i.State, view.Instant(i.Due), i.Body, i.Again, i.Failures, i.Round, i.LastError))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
