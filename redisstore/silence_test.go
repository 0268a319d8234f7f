package redisstore_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// silence is how long a server stands still in tests: DUEQ_SILENCE, such as
// 30s, or 5 s.
func silence(t *testing.T) time.Duration {
	text := os.Getenv("DUEQ_SILENCE")
	if text == "" {
		return 5 * time.Second
	}
	d, err := time.ParseDuration(text)
	must(t, err)
	return d
}

// keepHouse claims nothing from a queue, again and again until the test ends: so
// that leases that may be taken back are, before their holders renew them.
func keepHouse(t *testing.T, url, queue string) {
	store := openStore(t, url, redisstore.Options{})
	var group sync.WaitGroup
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	group.Go(func() {
		for ctx.Err() == nil {
			_, _ = store.Claim(ctx, dueq.ClaimRequest{Queue: queue})
			pass(t, 20*time.Millisecond)
		}
	})
	t.Cleanup(func() { cancel(); group.Wait() })
}

// Handlers run on while the server stands still for longer than their leases,
// and a second worker is ready to take what it can.
func TestSilence_running_handlers_keep_their_leases(t *testing.T) {
	t.Parallel()
	const held = 40
	still := silence(t)
	srv := redistest.Start(t)
	store := openStore(t, srv.URL(), redisstore.Options{})
	_, err := store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"lease": "3s", "timeout": "5m"})
	must(t, err)
	handled := newRuns(time.Now, still+5*time.Second)
	for range 2 {
		startWorker(t, openStore(t, srv.URL(), redisstore.Options{}), dueq.WorkerOptions{}, handled, "q")
	}
	keepHouse(t, srv.URL(), "q")
	pass(t, 6*time.Second) // in the grace that the first claim began, a lease that ends in it may be taken at once
	scheduleAll(t, store, items("q", held, past))
	eventually(t, 5*time.Second, "the handlers run", func() bool { n, _ := handled.count(); return n == held })
	scheduleAll(t, store, []dueq.Item{item("q", "during", dueq.In(still/2))})

	srv.Pause()
	paused := time.Now()
	for time.Since(paused) < still {
		began := time.Now()
		_, err := store.Stats(t.Context(), "q")
		tookAbout(t, "stats", began, time.Second, err)
		_, err = store.Schedule(t.Context(), []dueq.Item{item("q", "refused", dueq.In(time.Hour))})
		tookAbout(t, "schedule", began, 2*time.Second, err)
		pass(t, 100*time.Millisecond)
	}
	srv.Resume()
	resumed := time.Now()
	eventually(t, 5*time.Second, "what came due meanwhile is handled", func() bool { n, _ := handled.count(); return n == held+1 })
	t.Logf("worked again %v after %v of silence", time.Since(resumed), still)
	_, err = store.Schedule(t.Context(), []dueq.Item{item("q", "after", dueq.In(0))})
	must(t, err)
	eventually(t, still+30*time.Second, "all is settled", func() bool { return statsOf(t, store, "q").Totals.Acked == held+2 })
	st := statsOf(t, store, "q")
	if _, again := handled.count(); again != 0 || len(handled.beside) > 0 || st.Totals.Ended != 0 || st.Totals.Claimed != held+2 {
		t.Errorf("%d second deliveries, beside themselves %q; %+v", again, handled.beside, st)
	}
}
