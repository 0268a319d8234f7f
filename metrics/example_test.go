package metrics_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
	"github.com/dueq/dueq/metrics"
)

func Example() {
	store := memstore.New(memstore.Options{})
	m := metrics.New(store, metrics.Options{})
	measured := m.Wrap(store)

	ctx, cancel := context.WithCancel(context.Background())
	worker := dueq.NewWorker(measured, dueq.WorkerOptions{Observer: m.Observer()})
	worker.Handle("order:close", "pay_timeout", dueq.HandlerFunc(func(_ context.Context, t *dueq.Task) error {
		fmt.Println("closing", t.ID)
		cancel()
		return nil
	}))
	client := dueq.NewClient(measured, dueq.ClientOptions{})
	_, _ = client.Schedule(ctx, "order:close", dueq.Task{ID: "order_123456", Kind: "pay_timeout"}, dueq.In(0))
	_ = worker.Run(ctx)

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	server := &http.Server{Addr: "127.0.0.1:9100", Handler: m.HTTP(mux)}
	_ = server // server.ListenAndServe()
	// Output: closing order_123456
}
