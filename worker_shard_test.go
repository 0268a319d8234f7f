package dueq_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
)

// What one queue does to the others of its worker.
func TestWorkerSparesOtherQueues(t *testing.T) {
	for hung, lease := range map[int]string{2: "3s", 20: "30s", 40: "30s"} {
		bubble(t, fmt.Sprintf("leases hold while the calls of %d other queues hang", hung), func(t *testing.T) {
			testHungQueues(t, hung, lease)
		})
	}
	bubble(t, "a kind handled in batches does not make it hoard slow tasks of another", func(t *testing.T) {
		store, _ := newTap()
		set(t, store, "q", dueq.SettingsPatch{"timeout": "5m"})
		var j journal
		both := func(name string) {
			start(t, store, dueq.WorkerOptions{Concurrency: 1}, func(w *dueq.Worker) {
				w.Handle("q", "slow", j.takes(time.Minute, name))
				w.HandleBatch("q", "many", 50, func(context.Context, []*dueq.Task) []error { return nil })
			})
		}
		both("1")
		for i := range 10 {
			scheduleKind(t, store, fmt.Sprint("s", i), "slow", dueq.In(0))
		}
		pass(2 * time.Second)
		both("2")
		pass(9 * time.Minute)
		if by := j.byWorker(); by["2"] < 4 {
			t.Errorf("runs by worker: %v, want about half each", by)
		}
	})
	bubble(t, "batches are large where most tasks are for them", func(t *testing.T) {
		store, _ := newTap()
		most := 0
		start(t, store, dueq.WorkerOptions{Concurrency: 1}, func(w *dueq.Worker) {
			w.Handle("q", "single", dueq.HandlerFunc(func(context.Context, *dueq.Task) error { return nil }))
			w.HandleBatch("q", "", 20, func(ctx context.Context, tasks []*dueq.Task) []error {
				most = max(most, len(tasks))
				_ = sleep(ctx, 500*time.Millisecond) // slow enough to claim nothing ahead by pace
				return nil
			})
		})
		scheduleMany(t, store, "q", 300, dueq.In(0))
		pass(5 * time.Minute)
		if st := stats(t, store, "q"); most < 10 || st.Totals.Acked != 300 {
			t.Errorf("largest batch %d of 20, %d acked of 300", most, st.Totals.Acked)
		}
	})
}

// testHungQueues has two workers hold a long run on each of some queues, then
// every call about all but one of them hang for a second and fail.
func testHungQueues(t *testing.T, hung int, lease string) {
	store := &tap{Store: memstore.New(memstore.Options{})}
	var down atomic.Bool
	store.before = func(op, queue string) error {
		if down.Load() && strings.HasPrefix(queue, "hung") {
			time.Sleep(time.Second)
			return unavailable(op, true)
		}
		return nil
	}
	queues := []string{"good"}
	for i := range hung {
		queues = append(queues, fmt.Sprint("hung", i))
	}
	for _, queue := range queues {
		set(t, store, queue, dueq.SettingsPatch{"lease": lease, "timeout": "1h"})
	}
	var j journal
	for _, name := range []string{"1", "2"} {
		start(t, store, dueq.WorkerOptions{}, func(w *dueq.Worker) {
			for _, queue := range queues {
				w.Handle(queue, "", j.takes(5*time.Minute, name))
			}
		})
	}
	for _, queue := range queues {
		schedule(t, store, queue, "of_"+queue, dueq.In(0))
	}
	pass(10 * time.Second)
	down.Store(true)
	pass(2 * time.Minute)
	if st := stats(t, store, "good"); st.Totals.Ended != 0 || len(j.of("of_good")) != 1 {
		t.Errorf("the healthy queue: %d leases ended, %d runs; want none and 1", st.Totals.Ended, len(j.of("of_good")))
	}
	down.Store(false)
}
