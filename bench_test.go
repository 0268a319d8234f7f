package dueq_test

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
	"github.com/dueq/dueq/memstore"
)

// benchMembers are what ParseMember meets, by name.
var benchMembers = []struct{ name, member string }{
	{"id", "order_0000012345"},
	{"id_kind", "order_0000012345:pay_timeout"},
	{"colons", "shop:7:order_12345:pay_timeout"},
	{"priority_trace", "order_12345:pay_timeout:p5#4bf92f3577b34da6"},
}

func BenchmarkParseMember(b *testing.B) {
	for _, c := range benchMembers {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := dueq.ParseMember(c.member); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMember(b *testing.B) {
	for _, c := range benchMembers {
		task, err := dueq.ParseMember(c.member)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if task.Member() != c.member {
					b.Fatal("is another member")
				}
			}
		})
	}
}

// AppendMember into a buffer that is there is what the stores do.
func BenchmarkAppendMember(b *testing.B) {
	task := dueq.Task{ID: "order_0000012345", Kind: "pay_timeout"}
	buffer := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		buffer = task.AppendMember(buffer[:0])
	}
}

func BenchmarkTaskValidate(b *testing.B) {
	task := dueq.Task{ID: "order_0000012345", Kind: "pay_timeout"}
	b.ReportAllocs()
	for b.Loop() {
		if err := task.Validate(dueq.DefaultMemberMax); err != nil {
			b.Fatal(err)
		}
	}
}

// One operation is one task scheduled through a client by one of so many
// callers. The store answers without doing anything, so this is the batching.
func BenchmarkClientSchedule(b *testing.B) {
	for _, callers := range []int{1, 16, 128} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			client := dueq.NewClient(&idleStore{}, dueq.ClientOptions{})
			task := dueq.Task{ID: "order_0000012345", Kind: "pay_timeout"}
			var left atomic.Int64
			left.Store(int64(b.N))
			var group sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range callers {
				group.Go(func() {
					for left.Add(-1) >= 0 {
						if _, err := client.Schedule(b.Context(), "q", task, dueq.In(time.Hour)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			group.Wait()
		})
	}
}

// idleStore is a store that says that all was scheduled. Its other methods
// would panic.
type idleStore struct{ dueq.Store }

func (*idleStore) Schedule(_ context.Context, items []dueq.Item) ([]dueq.Outcome, error) {
	outcomes := make([]dueq.Outcome, len(items))
	for i := range outcomes {
		outcomes[i].Status = dueq.StatusScheduled
	}
	return outcomes, nil
}

// One operation is one due task claimed, handled and settled by a worker on
// memstore. settles/op is how many calls the verdicts took.
func BenchmarkWorker(b *testing.B) {
	for _, concurrency := range []int{3, 16, 100} {
		b.Run(fmt.Sprint(concurrency), func(b *testing.B) { benchWorker(b, concurrency) })
	}
}

func benchWorker(b *testing.B, concurrency int) {
	store := memstore.New(memstore.Options{})
	fillBench(b, store, b.N)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var settles, left atomic.Int64
	left.Store(int64(b.N))
	worker := dueq.NewWorker(store, dueq.WorkerOptions{
		Concurrency: concurrency,
		Logger:      slog.New(slog.DiscardHandler),
		Observer: dueq.Observer{Call: func(op, _ string, _ int, _ time.Duration, _ error) {
			if op == "settle" {
				settles.Add(1)
			}
		}},
	})
	worker.Handle("q", dueq.AnyKind, dueq.HandlerFunc(func(context.Context, *dueq.Task) error {
		if left.Add(-1) == 0 {
			cancel()
		}
		return nil
	}))
	b.ReportAllocs()
	b.ResetTimer()
	if err := worker.Run(ctx); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64(settles.Load())/float64(b.N), "settles/op")
	benchIsEmpty(b, store)
}

// fillBench schedules n tasks that came due within the last hour, at random.
func fillBench(b *testing.B, store dueq.Store, n int) {
	items := make([]dueq.Item, n)
	now := time.Now()
	for i := range items {
		task := dueq.Task{ID: fmt.Sprintf("order_%010d", i), Kind: "pay_timeout"}
		items[i] = dueq.Item{Queue: "q", Task: task, When: dueq.At(now.Add(-rand.N(time.Hour)))}
	}
	client := dueq.NewClient(store, dueq.ClientOptions{})
	if _, err := client.ScheduleAll(b.Context(), items); err != nil {
		b.Fatal(err)
	}
}

func benchIsEmpty(b *testing.B, store dueq.Store) {
	stats, err := store.Stats(context.WithoutCancel(b.Context()), "q")
	if err != nil {
		b.Fatal(err)
	}
	if s := stats[0]; s.Totals.Acked != int64(b.N) || s.Scheduled+s.Active+s.Dead > 0 {
		b.Fatalf("of %d tasks %d were acknowledged; %d are scheduled, %d active, %d dead", b.N, s.Totals.Acked, s.Scheduled, s.Active, s.Dead)
	}
}
