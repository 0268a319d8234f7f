package chaos

import (
	"context"
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
	c.drain()
	c.stopWorking()
	h := rec.History(c.final())
	return newResult(target.Name, seed, time.Since(began), h)
}

// hurt injects faults for some time.
func (c *crew) hurt(lasts time.Duration) {
	ctx, cancel := context.WithTimeout(c.t.Context(), lasts)
	defer cancel()
	var processes sync.WaitGroup
	if !c.sys.Alone {
		processes.Go(func() { c.hurtProcesses(ctx) })
	}
	c.hurtSystem(ctx)
	processes.Wait()
}

// drain waits until the workers have handled everything.
func (c *crew) drain() {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(drainFor); ; <-tick.C {
		st, err := c.stats()
		if err == nil && st.Scheduled+st.Active == 0 {
			return
		}
		if time.Now().After(end) {
			c.t.Errorf("not drained within %v: %+v, %v", drainFor, st, err)
			return
		}
	}
}

func (c *crew) stats() (dueq.QueueStats, error) {
	all, err := c.store.Stats(c.t.Context(), queue)
	if err != nil {
		return dueq.QueueStats{}, err
	}
	return all[0], all[0].Err
}

// final asks what is left of every task.
func (c *crew) final() history.Final {
	st, err := c.stats()
	if err != nil {
		c.t.Fatal(err)
	}
	final := history.Final{Tasks: map[history.Key]history.Place{}, Queues: []dueq.QueueStats{st}}
	for chunk := range slices.Chunk(c.rec.Tasks(queue), dueq.MaxItems) {
		infos, err := c.store.Get(c.t.Context(), queue, chunk)
		if err != nil {
			c.t.Fatal(err)
		}
		for i, info := range infos {
			final.Tasks[history.Key{Queue: queue, Task: chunk[i]}] = history.Place{State: info.State, Mark: string(info.Body)}
		}
	}
	c.checkList(final)
	return final
}

// checkList compares what List and Get say of dead letters.
func (c *crew) checkList(final history.Final) {
	query := dueq.ListQuery{Queue: queue, State: dueq.StateDead, Limit: dueq.MaxItems}
	listed := 0
	for more := true; more; more = query.Cursor != "" {
		page, err := c.store.List(c.t.Context(), query)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, info := range page.Tasks {
			if got := final.Tasks[history.Key{Queue: queue, Task: info.Member}]; got.State != dueq.StateDead {
				c.t.Errorf("%s is listed as dead, Get says %v", info.Member, got.State)
			}
		}
		listed, query.Cursor = listed+len(page.Tasks), page.Cursor
	}
	if int64(listed) != final.Queues[0].Dead {
		c.t.Errorf("%d are listed as dead, Stats counts %d", listed, final.Queues[0].Dead)
	}
}
