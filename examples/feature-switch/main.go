// Command feature-switch turns a feature on at an exact instant: never before
// it, and usually within a few milliseconds.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
	"github.com/dueq/dueq/redisstore"
)

const (
	queue = "example:feature:switch"
	kind  = "on"
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
	// The next whole second; dueq.ParseWhen("2026-12-01T08:00:00.000Z") in earnest.
	instant := time.Now().Truncate(time.Second).Add(time.Second)
	client := dueq.NewClient(store, dueq.ClientOptions{})
	if _, err := client.Schedule(ctx, queue, dueq.Task{ID: "new_checkout", Kind: kind}, dueq.At(instant)); err != nil {
		return err
	}
	var enabled atomic.Bool
	worker := dueq.NewWorker(store, dueq.WorkerOptions{})
	worker.Handle(queue, kind, dueq.HandlerFunc(func(_ context.Context, t *dueq.Task) error {
		now := time.Now()
		enabled.Store(true)
		fmt.Printf("%s on at %s, early: %v\n", t.ID, t.Due.Format("05.000"), now.Before(t.Due))
		fmt.Printf("drift %.1f ms\n", float64(now.Sub(t.Due).Microseconds())/1000)
		stop() // ends the worker
		return nil
	}))
	if err := worker.Run(ctx); err != nil {
		return err
	}
	fmt.Println("enabled:", enabled.Load())
	return nil
}
