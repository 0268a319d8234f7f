package push

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// BenchmarkPush delivers signed tasks from a Redis to a receiver, both on
// loopback. The unit is one task.
func BenchmarkPush(b *testing.B) {
	store, err := redisstore.Open(redistest.Start(b).URL(), redisstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	left, done := atomic.Int64{}, make(chan struct{})
	left.Store(int64(b.N))
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if left.Add(-1) == 0 {
			close(done)
		}
	}))
	defer server.Close()
	for first := 0; first < b.N; first += dueq.MaxItems {
		var items []dueq.Item
		for i := first; i < min(b.N, first+dueq.MaxItems); i++ {
			items = append(items, dueq.Item{Queue: "q", Task: dueq.Task{ID: strconv.Itoa(i), Body: []byte(`{"order": 1}`)}})
		}
		if _, err := store.Schedule(b.Context(), items); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := store.SetSettings(b.Context(), "q", dueq.SettingsPatch{"push": server.URL}); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	ctx, cancel := context.WithCancel(b.Context())
	opts := Options{AllowPrivate: true, Logger: slog.New(slog.DiscardHandler), Secrets: func(string) []string { return []string{secretOf('a')} }}
	var pushing sync.WaitGroup
	pushing.Go(func() { _ = Run(ctx, store, opts) })
	<-done
	b.StopTimer()
	cancel()
	pushing.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}
