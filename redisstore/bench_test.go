package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// One operation is one task scheduled through a client.
func BenchmarkSchedule(b *testing.B) {
	for _, callers := range []int{1, 16, 128} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			srv, store := benchStore(b)
			client := dueq.NewClient(store, dueq.ClientOptions{})
			var next atomic.Int64
			var group sync.WaitGroup
			done := measure(b, srv)
			for range callers {
				group.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						_, err := client.Schedule(context.Background(), "q", benchTask(int(i)), dueq.In(time.Hour+rand.N(time.Hour)))
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			group.Wait()
			done()
		})
	}
}

// One operation is one task scheduled with 999 others in one call.
func BenchmarkScheduleAll(b *testing.B) {
	srv, store := benchStore(b)
	client := dueq.NewClient(store, dueq.ClientOptions{})
	items := benchItems(b.N, time.Hour)
	done := measure(b, srv)
	if _, err := client.ScheduleAll(context.Background(), items); err != nil {
		b.Fatal(err)
	}
	done()
}

// One operation is one due task claimed, handled and acknowledged by a worker.
func BenchmarkDrain(b *testing.B) {
	for _, concurrency := range []int{3, 16, 100} {
		b.Run(fmt.Sprint(concurrency), func(b *testing.B) {
			srv, store := benchStore(b)
			client := dueq.NewClient(store, dueq.ClientOptions{})
			if _, err := client.ScheduleAll(context.Background(), benchItems(b.N, -time.Hour)); err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			worker := dueq.NewWorker(store, dueq.WorkerOptions{Concurrency: concurrency, Logger: slog.New(slog.DiscardHandler)})
			var left atomic.Int64
			left.Store(int64(b.N))
			worker.Handle("q", dueq.AnyKind, dueq.HandlerFunc(func(context.Context, *dueq.Task) error {
				if left.Add(-1) == 0 {
					cancel()
				}
				return nil
			}))
			done := measure(b, srv)
			if err := worker.Run(ctx); err != nil {
				b.Fatal(err)
			}
			done()
		})
	}
}

func benchStore(b *testing.B) (*redistest.Server, *redisstore.Store) {
	srv := redistest.Start(b)
	store, err := redisstore.Open(srv.URL(), redisstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	return srv, store
}

func benchTask(i int) dueq.Task {
	return dueq.Task{ID: fmt.Sprintf("order_%08d", i), Kind: "pay_timeout"}
}

// benchItems are due at random within an hour after from.
func benchItems(n int, from time.Duration) []dueq.Item {
	items := make([]dueq.Item, n)
	base := time.Now().Add(from)
	if from < 0 {
		base = base.Add(-time.Hour)
	}
	for i := range items {
		items[i] = dueq.Item{Queue: "q", Task: benchTask(i), When: dueq.At(base.Add(rand.N(time.Hour)))}
	}
	return items
}

// measure starts the clock, and stops it: tasks a second, and the processor
// time of Redis and the scripts a task.
func measure(b *testing.B, srv *redistest.Server) (done func()) {
	before, scripts := srv.CPU(b), srv.Commands(b)["evalsha"]
	b.ReportAllocs()
	b.ResetTimer()
	return func() {
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		b.ReportMetric(float64((srv.CPU(b)-before).Nanoseconds())/float64(b.N), "redis-ns/op")
		b.ReportMetric(float64(srv.Commands(b)["evalsha"]-scripts)/float64(b.N), "scripts/op")
	}
}
