package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
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

// One operation is one due task taken from its queue with 99 others: leased,
// handed out at most once, or moved to a list or stream.
func BenchmarkTake(b *testing.B) {
	const n = 100
	claim := func(store *redisstore.Store) (int, error) {
		c, err := store.Claim(context.Background(), dueq.ClaimRequest{Queue: "q", Max: n, Lease: time.Hour})
		return len(c.Tasks), err
	}
	forward := func(to string) func(*redisstore.Store) (int, error) {
		return func(store *redisstore.Store) (int, error) {
			f, err := store.Forward(context.Background(), dueq.ForwardRequest{Queue: "q", Max: n, Destination: to})
			return f.Count, err
		}
	}
	for _, c := range []struct {
		name, delivery string
		take           func(*redisstore.Store) (int, error)
	}{
		{"claim", "at_least_once", claim}, {"claim_once", "at_most_once", claim},
		{"list", "at_least_once", forward("list")}, {"stream", "at_least_once", forward("stream")},
	} {
		for _, body := range []string{"", strings.Repeat("x", 200)} {
			b.Run(fmt.Sprintf("%s/body=%d", c.name, len(body)), func(b *testing.B) {
				srv, store := benchStore(b)
				items := benchItems(b.N, -time.Hour)
				for i := range items {
					if body != "" {
						items[i].Task.Body = []byte(body)
					}
				}
				if _, err := store.SetSettings(context.Background(), "q", dueq.SettingsPatch{"delivery": c.delivery}); err != nil {
					b.Fatal(err)
				}
				if _, err := dueq.NewClient(store, dueq.ClientOptions{}).ScheduleAll(context.Background(), items); err != nil {
					b.Fatal(err)
				}
				done := measure(b, srv)
				for left := b.N; left > 0; {
					got, err := c.take(store)
					if err != nil || got == 0 {
						b.Fatal(got, err)
					}
					left -= got
				}
				done()
			})
		}
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
