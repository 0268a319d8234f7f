package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// failing is what a failover is tried on: who is master of some queues, and who
// follows.
type failing struct {
	url        string
	master     *redistest.Server
	replicas   []*redistest.Server
	sure, fast string // queues on the master, with wait_replicas and without
	failover   func() *redistest.Server
}

func failingSentinel(t *testing.T) failing {
	s := redistest.StartSentinel(t)
	master := s.Master()
	return failing{s.URL(), master, s.Replicas(), "sure", "fast", func() *redistest.Server { return s.AwaitFailover(master) }}
}

func failingCluster(t *testing.T) failing {
	c := redistest.StartCluster(t, 1)
	master := c.Masters()[0]
	return failing{c.URL(), master, c.Replicas(), queueOn(t, c, master, "sure"), queueOn(t, c, master, "fast"),
		func() *redistest.Server { return c.AwaitFailover(master) }}
}

func TestFailover_keeps_what_replicas_were_waited_for(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) failing{"sentinel": failingSentinel, "cluster": failingCluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			survive(t, start(t))
		})
	}
}

func survive(t *testing.T, f failing) {
	store := openStore(t, f.url, redisstore.Options{})
	set(t, store, f.sure, "wait_replicas", "1")
	random := seeded(t)
	done := newLedger()
	startWorker(t, store, dueq.WorkerOptions{}, done, f.fast+":work", f.sure+":work")
	sure := startProducers(t, store, f.sure, "s", 4, func(int64) int64 { return int64(time.Hour) })
	fast := startProducers(t, store, f.fast, "f", 4, func(int64) int64 { return int64(time.Hour) })
	eventually(t, 20*time.Second, "replicas are waited for", func() bool {
		sure.mu.Lock()
		defer sure.mu.Unlock()
		return len(sure.stored) > 200
	})
	// What the master takes now, no replica gets.
	f.master.CutReplicas(f.replicas...)
	pass(t, time.Duration(100+random.IntN(200))*time.Millisecond)
	f.master.Kill()
	killed := time.Now()
	for _, replica := range f.replicas {
		replica.Resume()
	}
	master := f.failover()
	promoted := time.Now()
	works := func(queue string) {
		t.Helper()
		eventually(t, 20*time.Second, "a schedule works", func() bool {
			_, err := store.Schedule(t.Context(), []dueq.Item{item(queue, "after", past)})
			return err == nil
		})
	}
	works(f.fast + ":work")
	works(f.sure + ":work")
	works(f.fast)
	eventually(t, 10*time.Second, "the worker works", func() bool { return done.size() == 2 })
	t.Logf("promoted %v after the kill, worked %v after that", promoted.Sub(killed), time.Since(promoted))
	f.master.Restart() // as a replica
	works(f.sure)
	sure.end()
	fast.end()
	raw := master.Client(t)
	t.Logf("without waiting %d of %d acknowledged tasks were lost", len(lost(t, raw, f.fast, fast.stored)), len(fast.stored))
	if gone := lost(t, raw, f.sure, sure.stored); len(gone) > 0 {
		t.Errorf("%d of %d tasks that a replica had were lost: %.10q", len(gone), len(sure.stored), gone)
	}
	t.Logf("with wait_replicas 1 %d were acknowledged, %d may be there, %d are not", len(sure.stored), len(sure.unknown), sure.failed)
	if len(sure.unknown) == 0 {
		t.Error("no call was cut off from its replicas, so little was proved")
	}
}

// lost are the ids that are not in a queue.
func lost(t *testing.T, raw *redis.Client, queue string, ids []string) (gone []string) {
	t.Helper()
	for _, id := range ids {
		if err := raw.ZScore(t.Context(), keysOf(queue)[keyScheduled], id+":k").Err(); err == redis.Nil {
			gone = append(gone, id)
		} else if err != nil {
			t.Fatal(fmt.Errorf("%s: %w", id, err))
		}
	}
	return gone
}

// The connection for hints follows as well.
func TestFailover_hints_come_again(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) failing{"sentinel": failingSentinel, "cluster": failingCluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t)
			store := openStore(t, f.url, redisstore.Options{})
			hints, err := store.Wake(t.Context())
			must(t, err)
			n := 0
			hinted := func() bool {
				n++
				_, _ = store.Schedule(t.Context(), []dueq.Item{item(f.fast, "x", dueq.In(time.Hour-time.Duration(n)*time.Second))})
				for {
					select {
					case hint := <-hints:
						if hint.Queue == f.fast {
							return true
						}
					case <-time.After(50 * time.Millisecond):
						return false
					}
				}
			}
			eventually(t, 10*time.Second, "a hint comes", hinted)
			f.master.Kill()
			f.failover()
			promoted := time.Now()
			eventually(t, 10*time.Second, "a hint comes again", hinted)
			t.Logf("a hint came %v after the promotion", time.Since(promoted))
		})
	}
}
