//go:build unix

package sqlitestore_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/sqlitestore"
)

// The test binary is also the other processes: DUEQ_CHILD says which.
func TestMain(m *testing.M) {
	roles := map[string]func(store *sqlitestore.Store) error{
		"commit": childCommit, "write": childWrite, "work": childWork, "idle": childIdle,
	}
	role, ok := roles[os.Getenv("DUEQ_CHILD")]
	if !ok {
		if raced {
			_ = flag.Set("rapid.checks", "15")
		}
		os.Exit(m.Run())
	}
	store, err := sqlitestore.Open(os.Getenv("DUEQ_FILE"), sqlitestore.Options{})
	if err == nil {
		err = role(store)
	}
	if err == nil {
		err = store.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child is another process of this binary. Its lines come one by one.
type child struct {
	cmd   *exec.Cmd
	lines chan string // closed at the end of its output
}

func startChild(t *testing.T, role, file string, stdin io.Reader, env ...string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0]), lines: make(chan string, 1<<16)}
	c.cmd.Env = append(append(os.Environ(), "DUEQ_CHILD="+role, "DUEQ_FILE="+file), env...)
	c.cmd.Stdin, c.cmd.Stderr = stdin, os.Stderr
	out, err := c.cmd.StdoutPipe()
	must(t, err)
	must(t, c.cmd.Start())
	t.Cleanup(func() { c.cmd.Process.Kill() })
	go func() {
		defer close(c.lines)
		r := bufio.NewReader(out)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return // half a line says nothing
			}
			c.lines <- line[:len(line)-1]
		}
	}()
	return c
}

// end waits for the process, which has been told to end, and returns what it
// still says.
func (c *child) end(t *testing.T, killed bool) (lines []string) {
	t.Helper()
	for line := range c.lines {
		lines = append(lines, line)
	}
	if err := c.cmd.Wait(); err != nil && !killed {
		t.Error(err)
	}
	return lines
}

// childCommit commits one task after the other for some time, and prints how
// many it were and how long 99 % took at most.
func childCommit(store *sqlitestore.Store) error {
	lasts, err := time.ParseDuration(os.Getenv("DUEQ_LASTS"))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return err
	}
	var took []time.Duration
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		began := time.Now()
		item := dueq.Item{Queue: "q", Task: dueq.Task{ID: fmt.Sprintf("%d-%d", os.Getpid(), len(took))}, When: dueq.In(time.Hour)}
		if _, err := store.Schedule(context.Background(), []dueq.Item{item}); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	fmt.Println(len(took), took[len(took)*99/100].Milliseconds(), took[len(took)-1].Milliseconds())
	return nil
}

// childWrite schedules tasks until it is killed, and prints each that was
// acknowledged.
func childWrite(store *sqlitestore.Store) error {
	client := dueq.NewClient(store, dueq.ClientOptions{})
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%s-%d-%d", os.Getenv("DUEQ_ROUND"), worker, i)
				if _, err := client.Schedule(context.Background(), "q", dueq.Task{ID: id}, dueq.In(0)); err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				fmt.Println("scheduled " + id)
			}
		})
	}
	group.Wait()
	return nil
}

// childWork handles tasks until it is killed, and prints each.
func childWork(store *sqlitestore.Store) error {
	return work(context.Background(), store, func(task *dueq.Task) { fmt.Println("handled " + task.ID) }, dueq.Observer{})
}

func work(ctx context.Context, store dueq.Store, handle func(*dueq.Task), observer dueq.Observer) error {
	worker := dueq.NewWorker(store, dueq.WorkerOptions{Observer: observer, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	worker.Handle("q", "", dueq.HandlerFunc(func(_ context.Context, task *dueq.Task) error {
		handle(task)
		return nil
	}))
	return worker.Run(ctx)
}

// childIdle runs a worker with nothing to do, and prints what share of a core
// it takes, in millionths.
func childIdle(store *sqlitestore.Store) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- work(ctx, store, func(*dueq.Task) {}, dueq.Observer{}) }()
	time.Sleep(time.Second) // its start is not idling
	const lasts = 3 * time.Second
	before := cpuTime()
	time.Sleep(lasts)
	fmt.Println(int64((cpuTime() - before) * 1_000_000 / lasts))
	stop()
	return <-ended
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
