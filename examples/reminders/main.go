// Command reminders reminds a user of a failed payment at growing intervals,
// until it is paid or there were enough.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
	"github.com/dueq/dueq/redisstore"
)

const (
	queue = "example:payment:remind"
	kind  = "reminder"
)

func main() {
	store, err := open()
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if err := run(store); err != nil {
		log.Fatal(err)
	}
}

// open opens the store that DUEQ_STORE names, or one in memory.
func open() (dueq.Store, error) {
	if url := os.Getenv("DUEQ_STORE"); url != "" {
		return redisstore.Open(url, redisstore.Options{})
	}
	return memstore.New(memstore.Options{}), nil
}

func run(store dueq.Store) error {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	client := dueq.NewClient(store, dueq.ClientOptions{})
	if _, err := client.Schedule(ctx, queue, dueq.Task{ID: "payment_7", Kind: kind}, dueq.In(100*time.Millisecond)); err != nil {
		return err
	}
	began := time.Now()
	remind := dueq.HandlerFunc(func(_ context.Context, t *dueq.Task) error {
		if paid := t.Round == 3; paid { // in earnest: ask the database
			fmt.Println(t.ID, "is paid: no more reminders")
			stop() // ends the worker
			return dueq.Stop()
		}
		after := time.Since(began).Round(100 * time.Millisecond)
		fmt.Printf("reminder %d of %s, %v after the failure\n", t.Round+1, t.ID, after)
		return nil
	})
	// Hours and days in earnest: 0.3 s, 0.6 s, 1.2 s, …, at most 10 times.
	growing := dueq.Geometric(300*time.Millisecond, 2, 0, 24*time.Hour, 10)
	worker := dueq.NewWorker(store, dueq.WorkerOptions{})
	worker.Handle(queue, kind, dueq.Repeat(growing)(remind))
	return worker.Run(ctx)
}
