package sqlitestore_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/sqlitestore"
)

// One operation is one task scheduled through a client, durable.
func BenchmarkSchedule(b *testing.B) {
	for _, callers := range []int{1, 16, 128} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			client := dueq.NewClient(openBench(b), dueq.ClientOptions{})
			b.ReportAllocs()
			b.ResetTimer()
			var next atomic.Int64
			var group sync.WaitGroup
			for range callers {
				group.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						task := dueq.Task{ID: fmt.Sprintf("order_%08d", i), Kind: "pay_timeout"}
						if _, err := client.Schedule(b.Context(), "q", task, dueq.In(time.Hour+rand.N(time.Hour))); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			group.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}

// One operation is one task claimed and acknowledged, 100 at a time by one
// caller, and by four.
func BenchmarkClaimAck(b *testing.B) {
	for _, order := range []string{"by_due", "random"} {
		for _, callers := range []int{1, 4} {
			b.Run(fmt.Sprintf("%s/%d", order, callers), func(b *testing.B) { benchClaim(b, order == "random", callers) })
		}
	}
}

func benchClaim(b *testing.B, random bool, callers int) {
	store := openBench(b)
	client := dueq.NewClient(store, dueq.ClientOptions{})
	items := make([]dueq.Item, b.N)
	began := time.Now().Add(-2 * time.Hour)
	for i := range items {
		due := began.Add(time.Duration(i) * time.Millisecond)
		if random {
			due = began.Add(rand.N(time.Hour))
		}
		items[i] = dueq.Item{Queue: "q", Task: dueq.Task{ID: fmt.Sprintf("order_%08d", i), Kind: "pay_timeout"}, When: dueq.At(due)}
	}
	_, err := client.ScheduleAll(b.Context(), items)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for left.Load() > 0 {
				left.Add(-int64(claimAck(b, store)))
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

func openBench(b *testing.B) *sqlitestore.Store {
	store, err := sqlitestore.Open(filepath.Join(b.TempDir(), "dueq.db"), sqlitestore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { store.Close() })
	return store
}
