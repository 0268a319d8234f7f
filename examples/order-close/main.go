// Command order-close closes orders that nobody paid in time. The second order
// is paid, so its close is cancelled.
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
	queue = "example:order:close"
	kind  = "pay_timeout"
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
	for _, order := range []string{"order_1", "order_2", "order_3"} {
		// 30 minutes in earnest.
		if _, err := client.Schedule(ctx, queue, dueq.Task{ID: order, Kind: kind}, dueq.In(500*time.Millisecond)); err != nil {
			return err
		}
	}
	if err := client.Cancel(ctx, queue, "order_2:"+kind); err != nil {
		return err
	}
	fmt.Println("order_2 is paid")

	closed := make(chan string, 2)
	worker := dueq.NewWorker(store, dueq.WorkerOptions{})
	worker.Handle(queue, kind, dueq.HandlerFunc(func(_ context.Context, t *dueq.Task) error {
		closed <- t.ID // in earnest: close it unless it is paid or closed already
		return nil
	}))
	go func() {
		defer stop() // ends the worker
		for range 2 {
			select {
			case order := <-closed:
				fmt.Println(order, "is closed: nobody paid in time")
			case <-ctx.Done():
				return
			}
		}
	}()
	return worker.Run(ctx)
}
