package chaos

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/history"
)

// drainFor is how long everything left may take once the faults are over: a
// dead worker's leases come back after two of them and the grace.
const drainFor = 90 * time.Second

// Run puts a target under load and faults for some time, drains it and judges
// what happened. Faults and workload follow from the seed.
func Run(t testing.TB, target Target, seed uint64, lasts time.Duration) *Result {
	t.Helper()
	rec := history.NewRecorder("test")
	c := newCrew(t, target, target.Start(t), rec, seed)
	began := time.Now()
	c.start()
	c.hurt(lasts)
	c.stopProducing()
	if last := c.sys.Last; last != nil {
		c.inject(t.Context(), *last, last.Hold)
	}
	c.drain()
	c.stopWorking()
	c.watchMasters(false)
	h := rec.History(c.final())
	return newResult(target.Name, seed, time.Since(began), h)
}

// hurt injects faults for some time.
func (c *crew) hurt(lasts time.Duration) {
	ctx, cancel := context.WithTimeout(c.t.Context(), lasts)
	var processes sync.WaitGroup
	defer processes.Wait() // also when a fault fails the test
	defer cancel()
	if !c.sys.Alone {
		processes.Go(func() { c.hurtProcesses(ctx) })
	}
	c.hurtSystem(ctx)
}

// drain waits until the workers have handled everything, and until no call
// that was given up can add to it.
func (c *crew) drain() {
	pass(c.t.Context(), history.Patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(drainFor); ; <-tick.C {
		stats, err := c.stats()
		if err == nil && left(stats) == 0 {
			return
		}
		if time.Now().After(end) {
			c.t.Errorf("not drained within %v: %+v, %v", drainFor, stats, err)
			return
		}
	}
}

func left(stats []dueq.QueueStats) (tasks int64) {
	for _, st := range stats {
		tasks += st.Scheduled + st.Active
	}
	return tasks
}

func (c *crew) stats() ([]dueq.QueueStats, error) {
	stats, err := c.store.Stats(c.t.Context(), queues...)
	for _, st := range stats {
		err = errors.Join(err, st.Err)
	}
	return stats, err
}

// final asks what is left of every task.
func (c *crew) final() history.Final {
	stats := patiently(c, c.stats)
	final := history.Final{Tasks: map[history.Key]history.Place{}, Queues: stats}
	for _, st := range stats {
		c.look(st, final.Tasks)
	}
	return final
}

// patiently repeats what a busy machine may let time out.
func patiently[T any](c *crew, read func() (T, error)) T {
	c.t.Helper()
	for end := time.Now().Add(drainFor); ; pass(c.t.Context(), 50*time.Millisecond) {
		got, err := read()
		if err == nil {
			return got
		}
		if !errors.Is(err, dueq.ErrUnavailable) || time.Now().After(end) {
			c.t.Fatal(err)
		}
	}
}

// look asks for every task of one queue, and compares what Get, List and Stats
// say of dead letters.
func (c *crew) look(st dueq.QueueStats, tasks map[history.Key]history.Place) {
	for chunk := range slices.Chunk(c.rec.Tasks(st.Queue), dueq.MaxItems) {
		infos := patiently(c, func() ([]dueq.Info, error) { return c.store.Get(c.t.Context(), st.Queue, chunk) })
		for i, info := range infos {
			tasks[history.Key{Queue: st.Queue, Task: chunk[i]}] = history.Place{State: info.State, Mark: string(info.Body)}
		}
	}
	listed := c.listDead(st.Queue)
	for _, member := range listed {
		if got := tasks[history.Key{Queue: st.Queue, Task: member}].State; got != dueq.StateDead {
			c.t.Errorf("%s is listed as dead, Get says %v", member, got)
		}
	}
	if int64(len(listed)) != st.Dead {
		c.t.Errorf("%d of %s are listed as dead, Stats counts %d", len(listed), st.Queue, st.Dead)
	}
}

func (c *crew) listDead(queue string) (members []string) {
	query := dueq.ListQuery{Queue: queue, State: dueq.StateDead, Limit: dueq.MaxItems}
	for more := true; more; more = query.Cursor != "" {
		page := patiently(c, func() (dueq.Page, error) { return c.store.List(c.t.Context(), query) })
		for _, info := range page.Tasks {
			members = append(members, info.Member)
		}
		query.Cursor = page.Cursor
	}
	return members
}
