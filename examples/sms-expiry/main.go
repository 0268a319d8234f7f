// Command sms-expiry sends codes that are worth nothing when they come late:
// with max_late on, what waited too long is a dead letter instead of an SMS.
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

const queue = "example:sms:send"

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
	if _, err := store.SetSettings(ctx, queue, dueq.SettingsPatch{"max_late": "5m"}); err != nil {
		return err
	}
	client := dueq.NewClient(store, dueq.ClientOptions{})
	// As if the workers had been away since 10 minutes ago.
	old := dueq.Task{ID: "user_1", Kind: "code", Body: []byte("1234")}
	if _, err := client.Schedule(ctx, queue, old, dueq.At(time.Now().Add(-10*time.Minute))); err != nil {
		return err
	}
	fresh := dueq.Task{ID: "user_2", Kind: "code", Body: []byte("5678")}
	if _, err := client.Schedule(ctx, queue, fresh, dueq.In(300*time.Millisecond)); err != nil {
		return err
	}
	worker := dueq.NewWorker(store, dueq.WorkerOptions{})
	worker.Handle(queue, "code", dueq.HandlerFunc(func(_ context.Context, t *dueq.Task) error {
		fmt.Printf("SMS to %s: your code is %s\n", t.ID, t.Body)
		stop() // ends the worker
		return nil
	}))
	if err := worker.Run(ctx); err != nil {
		return err
	}
	dead, err := client.Get(context.Background(), queue, old.Member())
	if err != nil {
		return err
	}
	fmt.Printf("no SMS to %s: it is %v\n", dead.ID, dead.State)
	return nil
}
