package httpapi_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/httpapi"
	"github.com/dueq/dueq/memstore"
)

// BenchmarkClient is what the way over HTTP costs, server included: a task
// scheduled, claimed and acknowledged, so many in each call.
func BenchmarkClient(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			server, err := httpapi.New(memstore.New(memstore.Options{}), httpapi.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
			if err != nil {
				b.Fatal(err)
			}
			defer server.Close()
			s := httptest.NewServer(server.Handler())
			defer s.Close()
			c, err := httpapi.Open(s.URL, httpapi.ClientOptions{Timeout: time.Minute})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			for i := 0; b.Loop(); i++ {
				benchRound(b, c, i, n)
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}

func benchRound(b *testing.B, c *httpapi.Client, round, n int) {
	items := make([]dueq.Item, n)
	for i := range items {
		task := dueq.Task{ID: fmt.Sprintf("order_%d_%d", round, i), Kind: "pay_timeout", Body: []byte(`{"order":123456,"attempt":1}`)}
		items[i] = dueq.Item{Queue: "q", Task: task, When: dueq.At(time.Now().Add(-time.Minute))}
	}
	if _, err := c.Schedule(b.Context(), items); err != nil {
		b.Fatal(err)
	}
	claim, err := c.Claim(b.Context(), dueq.ClaimRequest{Queue: "q", Max: n})
	if err != nil || len(claim.Tasks) != n {
		b.Fatalf("%d tasks, %v", len(claim.Tasks), err)
	}
	results := make([]dueq.Result, n)
	for i, task := range claim.Tasks {
		results[i] = dueq.Result{Task: task}
	}
	if _, err := c.Settle(b.Context(), "q", results); err != nil {
		b.Fatal(err)
	}
}
