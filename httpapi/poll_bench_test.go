package httpapi

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
)

// BenchmarkClaimWait is a task scheduled for now, delivered to one of those who
// wait for it, acknowledged, and the next poll: one after another, and by many
// consumers of a full queue.
func BenchmarkClaimWait(b *testing.B) {
	memory := func(b *testing.B) dueq.Store { return memstore.New(memstore.Options{}) }
	redis := func(b *testing.B) dueq.Store { return newPollRedis(b, pollPatient).store }
	for name, open := range map[string]func(*testing.B) dueq.Store{"memory": memory, "redis": redis} {
		for _, consumers := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/%d_wait", name, consumers), func(b *testing.B) { benchWaiting(b, open(b), consumers) })
			b.Run(fmt.Sprintf("%s/%d_busy", name, consumers), func(b *testing.B) { benchBusy(b, open(b), consumers) })
		}
	}
}

func benchItem(i int) dueq.Item {
	return dueq.Item{Queue: "q", Task: dueq.Task{ID: fmt.Sprint("t", i)}}
}

// consume polls with so many consumers until the benchmark ends.
func consume(b *testing.B, store dueq.Store, consumers int) <-chan struct{} {
	p := newPolls(store, slog.New(slog.NewTextHandler(io.Discard, nil)))
	b.Cleanup(p.close)
	done := make(chan struct{}, b.N)
	for range consumers {
		go func() {
			for {
				c, err := p.claim(context.Background(), dueq.ClaimRequest{Queue: "q", Max: 1}, time.Minute)
				if err != nil {
					return // closed
				}
				for _, task := range c.Tasks {
					_, _ = store.Settle(context.Background(), "q", []dueq.Result{{Task: task}})
					done <- struct{}{}
				}
			}
		}()
	}
	return done
}

func benchWaiting(b *testing.B, store dueq.Store, consumers int) {
	done := consume(b, store, consumers)
	b.ResetTimer()
	for i := range b.N {
		if _, err := store.Schedule(b.Context(), []dueq.Item{benchItem(i)}); err != nil {
			b.Fatal(err)
		}
		<-done
	}
}

func benchBusy(b *testing.B, store dueq.Store, consumers int) {
	for i := 0; i < b.N; i += dueq.MaxItems {
		var items []dueq.Item
		for j := i; j < min(b.N, i+dueq.MaxItems); j++ {
			items = append(items, benchItem(j))
		}
		if _, err := store.Schedule(b.Context(), items); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	done := consume(b, store, consumers)
	for range b.N {
		<-done
	}
}
