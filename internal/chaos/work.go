package chaos

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/history"
)

const (
	lease       = 3 * time.Second
	concurrency = 30 // handlers at once per worker and queue
)

// settings of the queues: short leases, and failures that never use up the
// retries, so that whatever lies dead was meant to.
var settings = dueq.SettingsPatch{
	"lease": lease.String(), "batch": "30", "retries": "1000", "retry_first": "10ms", "retry_cap": "50ms",
}

// work runs a worker until ctx ends.
func work(ctx context.Context, rec *history.Recorder, store dueq.Store) error {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	w := dueq.NewWorker(history.Watch(rec, store), dueq.WorkerOptions{Concurrency: concurrency, Logger: quiet})
	w.Use(rec.Handler)
	for _, queue := range queues {
		w.Handle(queue, dueq.AnyKind, dueq.HandlerFunc(handle))
	}
	return w.Run(ctx)
}

// handle decides by the task alone, so that every run of the workload with one
// seed has the same verdicts. It ignores ctx, as real handlers do.
func handle(_ context.Context, t *dueq.Task) error {
	random := seeded(0, fmt.Sprint(t.Lease.Member, string(t.Body), t.Attempt, t.Round))
	takes := time.Duration(random.IntN(10)) * time.Millisecond
	rarely := 100
	if strings.HasPrefix(t.ID, "hot") {
		rarely = 5 // these are often scheduled again while they run
	}
	if random.IntN(rarely) == 0 {
		takes = time.Duration(random.IntN(2000)) * time.Millisecond
	}
	<-time.After(takes)
	switch n := random.IntN(100); {
	case n < 6:
		return errors.New("on purpose")
	case n < 10 && t.Round < 3:
		return dueq.Again(time.Duration(random.IntN(100)) * time.Millisecond)
	case n < 11:
		return dueq.Dead(errors.New("on purpose"))
	}
	return nil
}

// seeded returns the random numbers of one seed for one name.
func seeded(seed uint64, name string) *rand.Rand {
	hash := fnv.New64a()
	_, _ = io.WriteString(hash, name)
	return rand.New(rand.NewPCG(seed, hash.Sum64()))
}
