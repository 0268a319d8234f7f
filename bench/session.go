package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// clientPatience bounds how long a client process may take to get ready, and
// to end.
const clientPatience = 60 * time.Second

// session is one system on a fresh server, for one measurement.
type session struct {
	peer   *Peer
	server Server
	sizes  Sizes
}

// newSession starts the server; the caller stops it.
func newSession(p *Peer, sizes Sizes) (*session, error) {
	server, err := p.start()
	if err != nil {
		return nil, err
	}
	return &session{p, server, sizes}, nil
}

// handle is a client process under way.
type handle struct {
	process *process
	stdin   io.WriteCloser
	seen    atomic.Int64
	ready   chan struct{}
	result  chan Result // gets one, unless the process ends without
}

// start starts a client process and returns when it is prepared.
func (s *session) start(plan Plan) (*handle, error) {
	plan.System, plan.Addr = s.peer.Name, s.server.Addr()
	cmd, err := s.command()
	if err != nil {
		return nil, err
	}
	h := &handle{ready: make(chan struct{}), result: make(chan Result, 1)}
	if h.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	cmd.Stdout, cmd.Stderr = write, os.Stderr
	if h.process, err = startProcess(cmd); err != nil {
		return nil, err
	}
	go h.listen(out)
	if err := json.NewEncoder(h.stdin).Encode(plan); err != nil {
		h.process.kill()
		return nil, err
	}
	return h, h.awaitReady()
}

func (s *session) command() (*exec.Cmd, error) {
	if s.peer.program != nil {
		return exec.Command(s.peer.program[0], s.peer.program[1:]...), nil
	}
	self, err := os.Executable()
	return exec.Command(self, "client"), err
}

// listen reads what the client says until it ends.
func (h *handle) listen(out io.ReadCloser) {
	defer out.Close()
	defer close(h.result)
	var once sync.Once
	lines := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "ready":
			once.Do(func() { close(h.ready) })
		case "seen":
			h.seen.Store(int64(number(rest)))
		case "result":
			var r Result
			if err := json.Unmarshal([]byte(rest), &r); err != nil {
				r.Err = err.Error()
			}
			h.result <- r
		}
	}
}

func (h *handle) awaitReady() error {
	timer := time.NewTimer(clientPatience)
	defer timer.Stop()
	select {
	case <-h.ready:
		return nil
	case r := <-h.result:
		h.process.kill()
		return fmt.Errorf("the client ended before it was ready: %s", r.Err)
	case <-timer.C:
		h.process.kill()
		return errors.New("the client does not get ready")
	}
}

// release tells a client to go, and when the first task is due.
func (h *handle) release(fromMs int64) { fmt.Fprintf(h.stdin, "go %d\n", fromMs) }

// end tells a client that works to stop, and returns its result.
func (h *handle) end(ctx context.Context, patience time.Duration) (Result, error) {
	h.stdin.Close()
	return h.await(ctx, patience)
}

// await waits for the result of a client, at most so long.
func (h *handle) await(ctx context.Context, patience time.Duration) (Result, error) {
	defer h.process.kill()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r, ok := <-h.result:
		if !ok {
			return r, errors.New("the client ended without a result")
		}
		if r.Err != "" {
			return r, errors.New(r.Err)
		}
		return r, nil
	case <-timer.C:
		return Result{}, errors.New("the client does not end")
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
}

// do runs one client to its end and returns what it and the server did.
func (s *session) do(ctx context.Context, plan Plan) (Result, Usage, error) {
	h, err := s.start(plan)
	if err != nil {
		return Result{}, Usage{}, err
	}
	before, err := s.server.Usage(ctx)
	if err != nil {
		h.process.kill()
		return Result{}, Usage{}, err
	}
	h.release(plan.FromMs)
	r, err := h.await(ctx, 10*time.Minute)
	if err != nil {
		return r, Usage{}, err
	}
	after, err := s.server.Usage(ctx)
	return r, after.since(before), err
}

func (u Usage) since(before Usage) Usage {
	micros := maps.Clone(u.Micros)
	for part, us := range before.Micros {
		micros[part] -= us
	}
	return Usage{CPU: u.CPU - before.CPU, Commands: u.Commands - before.Commands, Memory: u.Memory - before.Memory, Micros: micros}
}

// workers are client processes that handle tasks side by side.
type workers []*handle

func (s *session) startWorkers(n int, plan Plan) (workers, error) {
	plan.Job = "work"
	all := make(workers, n)
	errs := make([]error, n)
	var starting sync.WaitGroup
	for i := range all {
		starting.Go(func() { all[i], errs[i] = s.start(plan) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		all.kill()
		return nil, err
	}
	return all, nil
}

func (ws workers) kill() {
	for _, h := range ws {
		if h != nil && h.process != nil {
			h.process.kill()
		}
	}
}

func (ws workers) release(fromMs int64) {
	for _, h := range ws {
		h.release(fromMs)
	}
}

// finish waits until n tasks were handled, or the deadline, and ends the
// workers.
func (ws workers) finish(ctx context.Context, n int, deadline time.Time) ([]Result, error) {
	for ws.seen() < int64(n) && time.Now().Before(deadline) && ctx.Err() == nil {
		sleepUntil(ctx, time.Now().Add(10*time.Millisecond))
	}
	results, errs := make([]Result, len(ws)), make([]error, len(ws))
	var ending sync.WaitGroup
	for i, h := range ws {
		ending.Go(func() { results[i], errs[i] = h.end(ctx, clientPatience) })
	}
	ending.Wait()
	return results, errors.Join(errs...)
}

func (ws workers) seen() int64 {
	var n int64
	for _, h := range ws {
		n += h.seen.Load()
	}
	return n
}

// due are the tasks that workers have to handle, n from index first on, and
// how many others stay behind.
type due struct {
	first, n int
	behind   int64
}

// check reports tasks that were handled not exactly once, and what is left.
func (d due) check(results []Result) error {
	times := make([]int, d.n)
	handled, twice := 0, 0
	for _, r := range results {
		for _, i := range r.Tasks {
			i -= d.first
			if i < 0 || i >= d.n {
				return fmt.Errorf("task %d was handled and is not due", i+d.first)
			}
			if times[i]++; times[i] > 1 {
				twice++
			} else {
				handled++
			}
		}
	}
	left := results[0].Left
	for _, r := range results {
		left = min(left, r.Left)
	}
	if handled != d.n || twice > 0 || left != d.behind {
		return fmt.Errorf("of %d tasks %d were handled, and %d runs were repeats; %d are left of %d", d.n, handled, twice, left, d.behind)
	}
	return nil
}
