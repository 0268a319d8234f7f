package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// work handles tasks until the driver ends the input. Time runs from the first
// handler to the last.
func (c *client) work(ctx context.Context) (Result, error) {
	log := &handled{plan: &c.plan, tasks: make([]int, c.plan.Tasks), driftUs: make([]int64, c.plan.Tasks)}
	if err := c.awaitGo(); err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, c.in)
		cancel()
	}()
	var saying sync.WaitGroup
	saying.Go(func() { c.saySeen(ctx, log) })
	m := startMeter()
	err := c.system.Work(ctx, c.plan.Queues, c.plan.Slots, log.note)
	cancel()
	saying.Wait()
	var result Result
	m.stop(&result)
	result.Seconds = log.seconds()
	if counter, ok := c.system.(Counter); ok {
		result.Claims = counter.Claims()
	}
	n := min(int(log.n.Load()), len(log.tasks))
	result.Tasks, result.DriftUs = log.tasks[:n], log.driftUs[:n]
	left, leftErr := c.system.Left(context.WithoutCancel(ctx))
	result.Left = left
	return result, errors.Join(err, leftErr, log.err())
}

// saySeen tells the driver how many tasks were handled, when that changed.
func (c *client) saySeen(ctx context.Context, log *handled) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	said := int64(0)
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if n := log.n.Load(); n != said {
			fmt.Fprintf(c.out, "seen %d\n", n)
			said = n
		}
	}
}

// handled notes what was handled and when, without allocating.
type handled struct {
	plan    *Plan
	n       atomic.Int64
	strange atomic.Int64 // members not ours, and runs beyond the expected number
	tasks   []int
	driftUs []int64
	first   atomic.Int64 // Unix ns
	last    atomic.Int64
}

func (h *handled) note(member string) {
	now := time.Now().UnixNano()
	h.first.CompareAndSwap(0, now)
	i, err := indexOf(member)
	place := int(h.n.Add(1)) - 1
	if err != nil || place >= len(h.tasks) {
		h.strange.Add(1)
		return
	}
	h.tasks[place], h.driftUs[place] = i, (now-h.plan.offsetMs(i)*1e6)/1000
	for last := h.last.Load(); last < now && !h.last.CompareAndSwap(last, now); last = h.last.Load() {
	}
}

func (h *handled) seconds() float64 { return float64(h.last.Load()-h.first.Load()) / 1e9 }

func (h *handled) err() error {
	if n := h.strange.Load(); n > 0 {
		return fmt.Errorf("%d runs more than there are tasks", n)
	}
	return nil
}

// claim times claims of 100 tasks that just came due, one after another. What
// else is scheduled is far ahead.
func (c *client) claim(ctx context.Context) (Result, error) {
	claimer, batcher := c.system.(Claimer), c.system.(Batcher)
	var result Result
	if err := c.awaitGo(); err != nil {
		return result, err
	}
	for round := range c.plan.Rounds {
		tasks := c.plan.tasks(c.plan.First+round*c.plan.Batch, c.plan.Batch)
		if err := batcher.ScheduleAll(ctx, tasks); err != nil {
			return result, err
		}
		began := time.Now()
		claimed, err := claimer.Claim(ctx, c.plan.Batch)
		result.ClaimMs = append(result.ClaimMs, time.Since(began).Seconds()*1000)
		if err == nil && len(claimed.Members) != c.plan.Batch {
			err = fmt.Errorf("claimed %d of %d", len(claimed.Members), c.plan.Batch)
		}
		if err == nil {
			err = claimed.Ack(ctx)
		}
		if err != nil {
			return result, err
		}
	}
	left, err := c.system.Left(ctx)
	result.Left = left
	return result, err
}
