package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// chunk bounds how many tasks are made ahead of being scheduled.
const chunk = 500_000

// schedule has so many callers schedule the tasks of the plan. Making them is
// not counted.
func (c *client) schedule(ctx context.Context) (Result, error) {
	var result Result
	for done := 0; done < c.plan.Tasks; done += chunk {
		tasks := c.plan.tasks(c.plan.First+done, min(chunk, c.plan.Tasks-done))
		if done == 0 {
			if err := c.awaitGo(); err != nil {
				return result, err
			}
		}
		m := startMeter()
		err := c.send(ctx, tasks)
		m.stop(&result)
		if err != nil {
			return result, err
		}
	}
	left, err := c.system.Left(ctx)
	result.Left = left
	return result, err
}

// send schedules tasks with all callers; the first error ends it.
func (c *client) send(ctx context.Context, tasks []*Task) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	size := max(c.plan.Batch, 1)
	var next atomic.Int64
	var callers sync.WaitGroup
	for range c.plan.Callers {
		callers.Go(func() {
			for ctx.Err() == nil {
				start := (int(next.Add(1)) - 1) * size
				if start >= len(tasks) {
					return
				}
				if err := c.sendOne(ctx, start, tasks[start:min(start+size, len(tasks))]); err != nil {
					cancel(err)
				}
			}
		})
	}
	callers.Wait()
	return context.Cause(ctx)
}

// sendOne makes one call, at its time if the plan is paced.
func (c *client) sendOne(ctx context.Context, start int, tasks []*Task) error {
	if c.plan.LeadMs > 0 {
		sleepUntil(ctx, c.plan.sendAt(c.plan.First+start))
	}
	if c.plan.Batch == 0 {
		return c.system.Schedule(ctx, tasks[0])
	}
	batcher, ok := c.system.(Batcher)
	if !ok {
		return errors.New("the system has no batch form")
	}
	return batcher.ScheduleAll(ctx, tasks)
}

func sleepUntil(ctx context.Context, at time.Time) {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
