package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dueq/dueq"
)

// bench runs the works of one measurement.
type bench struct {
	store  dueq.Store
	plan   benchPlan
	suffix string
}

func (b *bench) queue(work string) string { return work + ":" + b.suffix }

// hourAhead is due in one to two hours, at random: equal due times flatter.
func hourAhead() dueq.When {
	return dueq.In(time.Hour + rand.N(time.Hour))
}

func (b *bench) schedule(ctx context.Context) (benchView, error) {
	client := dueq.NewClient(b.store, dueq.ClientOptions{})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var callers sync.WaitGroup
	timed := startTiming()
	for range b.plan.callers {
		callers.Go(func() {
			for i := next.Add(1); i <= int64(b.plan.tasks) && ctx.Err() == nil; i = next.Add(1) {
				task := dueq.Task{ID: fmt.Sprintf("order_%08d", i), Kind: "pay_timeout"}
				if _, err := client.Schedule(ctx, b.queue("schedule"), task, hourAhead()); err != nil {
					cancel(err)
				}
			}
		})
	}
	callers.Wait()
	view := timed.view("schedule", b.plan.tasks, b.plan.callers, time.Since(timed.began))
	return view, context.Cause(ctx)
}

func (b *bench) drain(ctx context.Context) (benchView, error) {
	queue := b.queue("drain")
	client := dueq.NewClient(b.store, dueq.ClientOptions{})
	items := make([]dueq.Item, b.plan.tasks)
	now := time.Now()
	for i := range items {
		task := dueq.Task{ID: fmt.Sprintf("order_%08d", i), Kind: "pay_timeout"}
		items[i] = dueq.Item{Queue: queue, Task: task, When: dueq.At(now.Add(-rand.N(time.Hour)))}
	}
	if _, err := client.ScheduleAll(ctx, items); err != nil {
		return benchView{}, err
	}
	seen := newSeen(len(items))
	timed := startTiming()
	err := b.work(ctx, queue, dueq.Observer{}, seen)
	view := timed.view("drain", len(items), b.plan.concurrency, seen.last().Sub(timed.began))
	if err != nil {
		return view, err
	}
	return view, b.empty(ctx, queue)
}

// precision schedules tasks that come due at a steady rate, a second ahead.
func (b *bench) precision(ctx context.Context) (benchView, error) {
	queue := b.queue("precision")
	total := b.plan.rate * b.plan.seconds
	var mu sync.Mutex
	drifts := make([]time.Duration, 0, total)
	observer := dueq.Observer{Started: func(_ *dueq.Task, drift time.Duration) {
		mu.Lock()
		drifts = append(drifts, drift)
		mu.Unlock()
	}}
	seen := newSeen(total)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timed := startTiming()
	var producer sync.WaitGroup
	producer.Go(func() {
		if err := b.produce(ctx, queue, total); err != nil {
			cancel(err)
		}
	})
	err := b.work(ctx, queue, observer, seen)
	cancel(nil)
	producer.Wait()
	if cause := context.Cause(ctx); err != nil || !errors.Is(cause, context.Canceled) {
		return benchView{}, errors.Join(err, cause)
	}
	view := timed.view("precision", total, b.plan.concurrency, seen.last().Sub(seen.first()))
	view.drifts(drifts)
	return view, b.empty(context.WithoutCancel(ctx), queue)
}

func (b *bench) produce(ctx context.Context, queue string, total int) error {
	client := dueq.NewClient(b.store, dueq.ClientOptions{})
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	began := time.Now()
	for sent := 0; sent < total; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		for want := min(int(time.Since(began).Seconds()*float64(b.plan.rate)), total); sent < want; sent++ {
			task := dueq.Task{ID: fmt.Sprintf("order_%08d", sent), Kind: "pay_timeout"}
			delay := time.Second + rand.N(time.Second/time.Duration(b.plan.rate))
			if _, err := client.Schedule(ctx, queue, task, dueq.In(delay)); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	return nil
}

// seen notes that each task was handled exactly once.
type seen struct {
	left    atomic.Int64
	twice   atomic.Int64
	tasks   []atomic.Bool
	firstNs atomic.Int64
	lastNs  atomic.Int64
	done    chan struct{}
}

func newSeen(n int) *seen {
	s := &seen{tasks: make([]atomic.Bool, n), done: make(chan struct{})}
	s.left.Store(int64(n))
	return s
}

func (s *seen) first() time.Time { return time.Unix(0, s.firstNs.Load()) }
func (s *seen) last() time.Time  { return time.Unix(0, s.lastNs.Load()) }

func (s *seen) note(t *dueq.Task) {
	s.firstNs.CompareAndSwap(0, time.Now().UnixNano())
	i, err := strconv.Atoi(strings.TrimPrefix(t.ID, "order_"))
	if err != nil || i >= len(s.tasks) || s.tasks[i].Swap(true) {
		s.twice.Add(1)
		return
	}
	if s.left.Add(-1) == 0 {
		s.lastNs.Store(time.Now().UnixNano())
		close(s.done)
	}
}

// work runs a worker until all tasks are seen or ctx ends.
func (b *bench) work(ctx context.Context, queue string, observer dueq.Observer, s *seen) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := dueq.NewWorker(b.store, dueq.WorkerOptions{
		Concurrency: b.plan.concurrency, Observer: observer,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	w.Handle(queue, "pay_timeout", dueq.HandlerFunc(func(_ context.Context, t *dueq.Task) error {
		s.note(t)
		return nil
	}))
	var stopper sync.WaitGroup
	stopper.Go(func() {
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	})
	err := w.Run(ctx)
	cancel()
	stopper.Wait()
	switch {
	case err != nil:
		return err
	case s.twice.Load() > 0:
		return fmt.Errorf("%d tasks were handled twice", s.twice.Load())
	case s.left.Load() > 0:
		return errors.New("stopped before the end")
	}
	return nil
}

// empty checks that a drained queue holds nothing.
func (b *bench) empty(ctx context.Context, queue string) error {
	stats, err := b.store.Stats(ctx, queue)
	if err != nil {
		return err
	}
	if s := stats[0]; s.Scheduled+s.Active+s.Dead > 0 {
		return fmt.Errorf("the drained queue still holds %d scheduled, %d active, %d dead tasks", s.Scheduled, s.Active, s.Dead)
	}
	return nil
}

// cleanUp deletes what a work left scheduled.
func (b *bench) cleanUp(work string) error {
	ctx := context.Background()
	for {
		page, err := b.store.List(ctx, dueq.ListQuery{Queue: b.queue(work), State: dueq.StateScheduled, Limit: dueq.MaxItems})
		if err != nil || len(page.Tasks) == 0 {
			return err
		}
		targets := make([]dueq.Target, len(page.Tasks))
		for i, info := range page.Tasks {
			targets[i].Member = info.Member
		}
		if _, err := b.store.Change(ctx, b.queue(work), dueq.OpDelete, targets); err != nil {
			return err
		}
	}
}
