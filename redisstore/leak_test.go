package redisstore_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

func connectionsOf(t *testing.T, raw *redis.Client) int {
	t.Helper()
	list, err := raw.ClientList(t.Context()).Result()
	must(t, err)
	n := 0
	for _, c := range list {
		if c == '\n' {
			n++
		}
	}
	return n
}

func TestLeak_opening_and_closing_leaves_nothing_behind(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	labelled(t)
	must(t, raw.Ping(t.Context()).Err())
	baseline, _ := goroutines(t)
	connected := connectionsOf(t, raw)
	var opened []*redisstore.Store // so that the collector closes nothing
	for i := range 200 {
		store, err := redisstore.Open(srv.URL(), redisstore.Options{})
		must(t, err)
		opened = append(opened, store)
		scheduleAll(t, store, []dueq.Item{item("q", fmt.Sprint(i), dueq.In(time.Hour))})
		if i%4 == 0 {
			_, err := store.Wake(t.Context()) // Close ends it
			must(t, err)
		}
		if i%20 == 0 {
			done := newLedger()
			stop := startWorker(t, store, dueq.WorkerOptions{}, done, "w")
			scheduleAll(t, store, []dueq.Item{item("w", fmt.Sprint(i), past)})
			eventually(t, 5*time.Second, "the task is handled", func() bool { return done.size() == 1 })
			stop()
		}
		must(t, store.Close())
		must(t, store.Close())
	}
	settled(t, 10*time.Second, baseline)
	eventually(t, 10*time.Second, "no connection is left", func() bool { return connectionsOf(t, raw) <= connected })
	runtime.KeepAlive(opened)
}

func TestLeak_twenty_restarts_of_the_server_leave_nothing_behind(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.WithAOF())
	labelled(t)
	store := openStore(t, srv.URL(), redisstore.Options{})
	done := newLedger()
	log := &logCounter{}
	startWorker(t, store, dueq.WorkerOptions{Logger: log.logger()}, done, "q", "r", "s")
	round := func(i int) {
		t.Helper()
		id := fmt.Sprint(i)
		for end := time.Now().Add(10 * time.Second); ; pass(t, 10*time.Millisecond) {
			_, err := store.Schedule(t.Context(), []dueq.Item{item("q", id, past, "body"), item("r", id, past), item("s", id, dueq.In(time.Hour))})
			if err == nil {
				break
			}
			if !isUnavailable(err) || time.Now().After(end) {
				t.Fatalf("round %d: schedule: %v\n%s", i, err, log)
			}
		}
		eventually(t, 10*time.Second, fmt.Sprintf("the tasks of round %d are handled", i), func() bool {
			a, _ := done.of("q", id)
			b, _ := done.of("r", id)
			return a > 0 && b > 0
		})
	}
	round(0)
	pass(t, 200*time.Millisecond)
	raw := srv.Client(t)
	baseline, _ := goroutines(t)
	connected := connectionsOf(t, raw)
	for i := range 20 {
		if i%2 == 0 {
			srv.Kill()
		}
		srv.Restart()
		round(i + 1)
	}
	settled(t, 15*time.Second, baseline+5) // some connections of a pool more or less
	eventually(t, 15*time.Second, "about the connections of before", func() bool { return connectionsOf(t, raw) <= connected+5 })
	if repeated := done.repeated(); len(repeated) > 0 {
		t.Errorf("handled twice: %q", repeated)
	}
	eventually(t, 5*time.Second, "all leases are settled", func() bool {
		return statsOf(t, store, "q").Active+statsOf(t, store, "r").Active == 0
	})
	if st := statsOf(t, store, "s"); st.Scheduled != 21 {
		t.Errorf("%d tasks wait for the next hour, want 21", st.Scheduled)
	}
}
