package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dueq/dueq/internal/openstore"
	"github.com/dueq/dueq/internal/view"
)

// onDefault is the file that is used when no store is named, with a data
// directory of its own.
func onDefault(t *testing.T) *cli {
	t.Helper()
	home := t.TempDir()
	path := filepath.Join(home, "dueq", "dueq.db")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	store, err := openstore.Open(t.Context(), "sqlite:"+path, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return &cli{store: store, home: home}
}

// delivery is one line that a dueq work printed.
type delivery struct {
	ID    string `json:"id"`
	Due   string `json:"due_at"`
	Drift int64  `json:"drift_ms"`

	at time.Time // when the line was read
}

// deliveries are what one or more dueq work printed.
type deliveries struct {
	mu  sync.Mutex
	all []delivery
}

// read reads lines until there are no more; half a line, which a kill may
// leave, is none.
func (d *deliveries) read(t *testing.T, r io.Reader) {
	for lines := bufio.NewReader(r); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		one := delivery{at: time.Now()}
		if err := json.Unmarshal(line, &one); err != nil {
			t.Errorf("%v in %q", err, line)
		}
		d.mu.Lock()
		d.all = append(d.all, one)
		d.mu.Unlock()
	}
}

func (d *deliveries) list() []delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all)
}

// working is a dueq work that prints to deliveries.
type working struct {
	*exec.Cmd
	stderr lockedBuffer
	read   chan struct{} // closed when all of its output has been read
}

func (c *cli) startWork(t *testing.T, to *deliveries, queue string) *working {
	t.Helper()
	w := &working{Cmd: c.command(t, "work", queue), read: make(chan struct{})}
	w.Stderr = &w.stderr
	stdout, err := w.StdoutPipe()
	if err == nil {
		err = w.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(w.read)
		to.read(t, stdout)
	}()
	t.Cleanup(w.kill)
	return w
}

func (w *working) kill() { w.end(syscall.SIGKILL) }

// end returns when the process is gone and what it printed has been read.
func (w *working) end(s syscall.Signal) {
	if w.ProcessState != nil {
		return
	}
	_ = w.Process.Signal(s)
	<-w.read
	_ = w.Wait()
}

// TestProcessesOnTheDefaultStore has one process work and others schedule, as
// people do in several terminals without naming a store. What is promised on an
// idle machine is a p99 of 50 ms; the bound here is for a busy one.
func TestProcessesOnTheDefaultStore(t *testing.T) {
	const singles, many, atOnce = 40, 3000, 4
	c := onDefault(t)
	var got deliveries
	work := c.startWork(t, &got, "order:close")
	load := c.startLoad(t, "order:close", many)

	var group sync.WaitGroup
	for lane := range atOnce {
		group.Go(func() {
			for i := lane; i < singles; i += atOnce {
				out, err := c.command(t, "schedule", "order:close", fmt.Sprintf("one_%d:pay_timeout", i), "--in", "300ms").CombinedOutput()
				if err != nil || strings.Count(string(out), "using sqlite:"+c.home) != 1 {
					t.Errorf("%v: %s", err, out)
				}
			}
		})
	}
	group.Wait()
	if out := load(); !strings.Contains(out, fmt.Sprintf("%d scheduled, 0 replaced", many)) {
		t.Errorf("got %s", out)
	}
	eventually(t, func() bool { return len(got.list()) >= singles+many })
	work.end(syscall.SIGTERM)
	if code := work.ProcessState.ExitCode(); code != 0 {
		t.Errorf("work: exit code %d: %s", code, work.stderr.String())
	}
	checkDrift(t, got.list(), singles+many)
}

// startLoad has one process schedule tasks that fall due while it reads, and
// returns what ends its input and tells what it printed.
func (c *cli) startLoad(t *testing.T, queue string, many int) (end func() string) {
	t.Helper()
	cmd := c.command(t, "schedule", queue, "--from", "-", "--format", "ndjson")
	var stdout lockedBuffer
	cmd.Stdout = &stdout
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	written := make(chan struct{})
	go func() {
		defer close(written)
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for i := range many {
			fmt.Fprintf(in, `{"id":"many_%d","kind":"pay_timeout","delay_ms":%d}`+"\n", i, i*7%1500)
			if i%10 == 0 {
				<-pace.C
			}
		}
		in.Close()
	}()
	return func() string {
		<-written
		_ = cmd.Wait()
		return stdout.String()
	}
}

// checkDrift wants every task once, none early by the store's account or by
// that of who read the line.
func checkDrift(t *testing.T, got []delivery, want int) {
	t.Helper()
	ids := map[string]bool{}
	var drifts, read []time.Duration
	for _, d := range got {
		due, err := time.Parse(time.RFC3339, d.Due)
		if err != nil {
			t.Fatal(err)
		}
		ids[d.ID] = true
		drifts, read = append(drifts, time.Duration(d.Drift)*time.Millisecond), append(read, d.at.Sub(due))
		if d.Drift < 0 || d.at.Before(due) {
			t.Errorf("%s is early: due %s, read %s, drift %d ms", d.ID, d.Due, view.Instant(d.at), d.Drift)
		}
	}
	if len(ids) != want || len(got) != want {
		t.Errorf("%d tasks in %d deliveries, want %d", len(ids), len(got), want)
	}
	for what, list := range map[string][]time.Duration{"drift to the start": drifts, "to the line read": read} {
		slices.Sort(list)
		p50, p99 := list[len(list)/2], list[len(list)*99/100]
		t.Logf("%s: p50 %v, p99 %v, most %v", what, p50, p99, list[len(list)-1])
		if p99 > time.Second {
			t.Errorf("%s: p99 %v, want a second at most", what, p99)
		}
	}
}
