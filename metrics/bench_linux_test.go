package metrics_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
	"github.com/dueq/dueq/metrics"
)

// One operation is one due task claimed, handled by an instant handler and
// settled on memstore: the difference is what the metrics cost. CPU time says
// more than the clock on a machine that others use.
func BenchmarkWorker(b *testing.B) {
	for _, concurrency := range []int{3, 100} {
		b.Run(fmt.Sprintf("plain/%d", concurrency), func(b *testing.B) {
			benchWorker(b, concurrency, func(s dueq.Store) (dueq.Store, dueq.Observer) { return s, dueq.Observer{} })
		})
		b.Run(fmt.Sprintf("metrics/%d", concurrency), func(b *testing.B) {
			benchWorker(b, concurrency, func(s dueq.Store) (dueq.Store, dueq.Observer) {
				m := metrics.New(s, metrics.Options{})
				return m.Wrap(s), m.Observer()
			})
		})
	}
}

func benchWorker(b *testing.B, concurrency int, watch func(dueq.Store) (dueq.Store, dueq.Observer)) {
	plain := memstore.New(memstore.Options{})
	fill(b, plain, b.N)
	store, observer := watch(plain)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var left atomic.Int64
	left.Store(int64(b.N))
	worker := dueq.NewWorker(store, dueq.WorkerOptions{Concurrency: concurrency, Observer: observer, Logger: slog.New(slog.DiscardHandler)})
	worker.Handle("q", dueq.AnyKind, dueq.HandlerFunc(func(context.Context, *dueq.Task) error {
		if left.Add(-1) == 0 {
			cancel()
		}
		return nil
	}))
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime(b)
	if err := worker.Run(ctx); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
	if left.Load() > 0 {
		b.Fatalf("%d tasks were not handled", left.Load())
	}
}

func cpuTime(b *testing.B) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func fill(b *testing.B, store dueq.Store, n int) {
	items := make([]dueq.Item, n)
	for i := range items {
		items[i] = dueq.Item{Queue: "q", Task: dueq.Task{ID: fmt.Sprintf("order_%010d", i)}, When: dueq.In(0)}
	}
	if _, err := dueq.NewClient(store, dueq.ClientOptions{}).ScheduleAll(b.Context(), items); err != nil {
		b.Fatal(err)
	}
}

// All that is told of one task, from many goroutines at once.
func BenchmarkObserver(b *testing.B) {
	for _, queues := range []int{1, 100} {
		b.Run(fmt.Sprint(queues), func(b *testing.B) {
			o := metrics.New(nil, metrics.Options{}).Observer()
			tasks := make([]*dueq.Task, queues)
			for i := range tasks {
				tasks[i] = &dueq.Task{Queue: fmt.Sprint("queue-", i), Age: time.Millisecond}
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				claim := dueq.Claim{Tasks: make([]*dueq.Task, 1)}
				for i := 0; pb.Next(); i++ {
					t := tasks[i%queues]
					claim.Tasks[0] = t
					o.Claimed(t.Queue, claim)
					o.Started(t, time.Millisecond)
					o.Ended(t, dueq.VerdictAck, time.Microsecond, nil)
					o.Settled(t, dueq.Outcome{Status: dueq.StatusDone})
				}
			})
		})
	}
}

// One scrape of a store with so many queues, after the store was asked.
func BenchmarkScrape(b *testing.B) {
	for _, queues := range []int{1, 200, 2000} {
		b.Run(fmt.Sprint(queues), func(b *testing.B) {
			store := memstore.New(memstore.Options{})
			m := metrics.New(store, metrics.Options{})
			o := m.Observer()
			items := make([]dueq.Item, queues)
			for i := range items {
				items[i] = dueq.Item{Queue: fmt.Sprint("queue-", i), Task: dueq.Task{ID: "x"}, When: dueq.In(time.Hour)}
				o.Overran(&dueq.Task{Queue: items[i].Queue})
			}
			if _, err := dueq.NewClient(store, dueq.ClientOptions{}).ScheduleAll(b.Context(), items); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Registry().Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
