// Skewed is a worker for a test that builds it with a wall clock of its own. It
// prints the id of each task, what its clock shows and the task's drift in ns.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/redisstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, queue string) error {
	store, err := redisstore.Open(url, redisstore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	worker := dueq.NewWorker(store, dueq.WorkerOptions{Observer: dueq.Observer{Started: say}})
	worker.Handle(queue, dueq.AnyKind, dueq.HandlerFunc(func(ctx context.Context, t *dueq.Task) error {
		if t.Kind != "slow" {
			return nil
		}
		select {
		case <-time.After(4 * time.Second): // beyond its lease
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}))
	return worker.Run(ctx)
}

func say(t *dueq.Task, drift time.Duration) {
	fmt.Println(t.ID, time.Now().UnixMilli(), int64(drift))
}
