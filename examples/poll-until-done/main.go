// Command poll-until-done asks again and again whether a slow job is done, and
// gives up after a number of rounds.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
	"github.com/dueq/dueq/redisstore"
)

const (
	queue = "example:job:poll"
	every = 300 * time.Millisecond // 2 s in earnest
	most  = 5                      // rounds
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

// status is what the slow service answers; job_b never ends.
func status(job string, round int) string {
	if job == "job_a" && round == 2 {
		return "done"
	}
	return "running"
}

func run(store dueq.Store) error {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	client := dueq.NewClient(store, dueq.ClientOptions{})
	for i, job := range []string{"job_a", "job_b"} {
		if _, err := client.Schedule(ctx, queue, dueq.Task{ID: job}, dueq.In(time.Duration(i)*every/2)); err != nil {
			return err
		}
	}
	worker := dueq.NewWorker(store, dueq.WorkerOptions{})
	worker.Handle(queue, "", dueq.HandlerFunc(func(_ context.Context, t *dueq.Task) error {
		answer := status(t.ID, t.Round)
		fmt.Printf("round %d: %s is %s\n", t.Round, t.ID, answer)
		switch {
		case answer == "done":
			return nil
		case t.Round == most:
			stop() // ends the worker
			return dueq.Dead(errors.New("too old"))
		}
		return dueq.Again(every) // not a failure: no retry is used up
	}))
	return worker.Run(ctx)
}
