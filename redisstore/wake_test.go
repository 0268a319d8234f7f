package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// A worker that sleeps for a far task must not miss a nearer one that another
// process adds, whether it is told or has to look.
func TestWake_a_nearer_task_does_not_wait_for_the_far_one(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rules []string
		add   func(t *testing.T, store dueq.Store, raw *redis.Client)
	}{
		"that_is_announced": {nil, scheduleNear},
		"that_a_plain_ZADD_adds": {nil, func(t *testing.T, _ dueq.Store, raw *redis.Client) {
			at := time.Now().Add(2 * time.Second)
			must(t, raw.ZAdd(t.Context(), redisstore.DefaultPrefix+"q", redis.Z{Score: float64(at.UnixMilli()), Member: "near:k"}).Err())
		}},
		"that_nobody_may_announce": {[]string{"resetchannels"}, scheduleNear},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			raw := srv.Client(t)
			rules := append([]string{"+@all"}, tc.rules...)
			url := aclUser(t, srv, raw, "user", rules...)
			other := openStore(t, url, redisstore.Options{})
			done := newLedger()
			startWorker(t, openStore(t, url, redisstore.Options{}), dueq.WorkerOptions{}, done, "q")
			outcomes, err := other.Schedule(t.Context(), []dueq.Item{item("q", "far", dueq.In(7*time.Second))})
			must(t, err)
			quieten(t, srv, 3) // it sleeps
			added := time.Now()
			tc.add(t, other, raw)
			eventually(t, 10*time.Second, "both are handled", func() bool { return done.size() == 2 })
			_, near := done.of("q", "near")
			_, far := done.of("q", "far")
			if waited := near.Sub(added); waited < 1900*time.Millisecond || waited > 3*time.Second+slack/2 || !near.Before(far) {
				t.Errorf("the near task ran %v after it was added, want 2 s", waited)
			}
			if late := far.Sub(outcomes[0].Due); late < 0 || late > time.Second {
				t.Errorf("the far task ran %v after its due time", late)
			}
		})
	}
}

func scheduleNear(t *testing.T, store dueq.Store, _ *redis.Client) {
	_, err := store.Schedule(t.Context(), []dueq.Item{item("q", "near", dueq.In(2*time.Second))})
	must(t, err)
}
