package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"time"
)

// A client is a process of its own: the driver again, or BullMQ's script. It
// reads a plan, says "ready", does it after "go", says "seen N" now and then,
// stops working when its input ends, and says "result" last.
type client struct {
	plan   Plan
	system System
	in     *bufio.Reader
	out    io.Writer
}

// runClient is the main function of a client process.
func runClient(in io.Reader, out io.Writer) error {
	c := &client{in: bufio.NewReader(in), out: out}
	line, err := c.in.ReadBytes('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &c.plan); err != nil {
		return err
	}
	peer, err := findPeer(c.plan.System)
	if err != nil {
		return err
	}
	if c.system, err = peer.open(c.plan.Addr); err != nil {
		return err
	}
	defer c.system.Close()
	result, err := c.do(context.Background())
	if err != nil {
		result.Err = err.Error()
	}
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "result %s\n", text)
	return err
}

func (c *client) do(ctx context.Context) (Result, error) {
	jobs := map[string]func(context.Context) (Result, error){
		"schedule": c.schedule, "work": c.work, "claim": c.claim, "left": c.left,
	}
	job, ok := jobs[c.plan.Job]
	if !ok {
		return Result{}, fmt.Errorf("job %q is unknown", c.plan.Job)
	}
	return job(ctx)
}

// awaitGo says that all is prepared and waits for the driver, who says when the
// first task is due.
func (c *client) awaitGo() error {
	fmt.Fprintln(c.out, "ready")
	_, err := fmt.Fscanf(c.in, "go %d\n", &c.plan.FromMs)
	return err
}

// left only counts what is there.
func (c *client) left(ctx context.Context) (Result, error) {
	if err := c.awaitGo(); err != nil {
		return Result{}, err
	}
	n, err := c.system.Left(ctx)
	return Result{Left: n}, err
}

// meter takes what a stretch of work cost this process.
type meter struct {
	began  time.Time
	cpu    float64
	allocs uint64
}

func startMeter() meter {
	runtime.GC()
	return meter{allocs: mallocs(), cpu: ownCPU(), began: time.Now()}
}

// stop adds what the stretch cost to a result.
func (m meter) stop(r *Result) {
	r.Seconds += time.Since(m.began).Seconds()
	r.CPU += ownCPU() - m.cpu
	r.Allocs += float64(mallocs() - m.allocs)
}

func mallocs() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.Mallocs
}

func ownCPU() float64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}
