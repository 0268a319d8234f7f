package redisstore_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

func TestCluster_a_slot_on_its_way_loses_nothing(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	store := openStore(t, c.URL(), redisstore.Options{})
	const queue = "way"
	key := keysOf(queue)[keyScheduled]
	first := c.OwnerOf(key)
	load := startSteady(t, store, queue)
	producer := startProducers(t, store, queue, "p", 3, rand.Int64N)
	eventually(t, 10*time.Second, "all works", func() bool { return load.size() > 50 })
	for range 4 {
		way := c.BeginReshard(c.SlotOf(key), anotherMaster(t, c, queue))
		for n := 1; n > 0; {
			n = way.Move(1)
			pass(t, 20*time.Millisecond)
		}
		way.Finish()
		was := load.size()
		eventually(t, 5*time.Second+slack, "work goes on", func() bool { return load.size() > was+20 })
	}
	load.end()
	producer.end()
	if errorsOf(t, first, "TRYAGAIN") == "" || errorsOf(t, first, "MOVED") == "" {
		t.Error("no call met a move, so little was proved")
	}
	missing := func() (ids []string) {
		for _, id := range producer.stored {
			if n, _ := load.of(queue, id); n == 0 {
				ids = append(ids, id)
			}
		}
		return append(ids, load.missing(queue)...)
	}
	for end := time.Now().Add(20 * time.Second); len(missing()) > 0; pass(t, 50*time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d tasks were lost: %.10q; %+v", len(missing()), missing(), statsOf(t, store, queue))
		}
	}
	if bad := load.failures(); len(bad) > 0 {
		t.Errorf("schedules failed otherwise than as unavailable: %v", bad)
	}
	if repeated := load.repeated(); len(repeated) > 0 {
		t.Errorf("handled more than once: %.10q", repeated)
	}
	n, over, worst := load.worst(queue)
	t.Logf("%d runs, worst drift %v, %.1f %% over 1 s; %d stored, %d refused, %d unknown, %d of the steady failed",
		n, worst, 100*over, len(producer.stored), producer.failed, len(producer.unknown), len(load.errs))
	for _, node := range c.Nodes() {
		if text := errorsOf(t, node, "CROSSSLOT"); text != "" {
			t.Errorf("%s answered CROSSSLOT: %s", node.Addr(), text)
		}
	}
}

func TestCluster_new_queues_and_full_ones_are_served_while_their_slot_moves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	store := openStore(t, c.URL(), patient)
	const queue = "fresh"
	key := keysOf(queue)[keyScheduled]
	from := c.OwnerOf(key)
	claim(t, store, queue, 1)
	way := c.BeginReshard(c.SlotOf(key), anotherMaster(t, c, queue))
	way.Move(100)
	failed := make(chan error, 1)
	go func() {
		_, err := store.Schedule(t.Context(), []dueq.Item{item(queue, "a", past)})
		failed <- err
	}()
	eventually(t, 5*time.Second, "the call met the move", func() bool { return errorsOf(t, from, "ASK") != "" })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := store.Claim(ctx, dueq.ClaimRequest{Queue: queue, Max: 1})
	if told := err != nil && strings.Contains(err.Error(), "TRYAGAIN"); !isUnavailable(err) || told && mayHaveHappened(err) {
		t.Errorf("claim while the slot moves: got %v, want ErrUnavailable, and of TRYAGAIN that it did not happen", err)
	}
	way.Finish()
	must(t, <-failed)
	if c := claim(t, store, queue, 1); len(c.Tasks) != 1 {
		t.Errorf("claimed %d tasks, want the one that was scheduled amid the move", len(c.Tasks))
	}
}

// A server that gives a slot away looks elsewhere for keys that it has not, also
// for one that the script emptied itself.
func TestCluster_a_script_that_breaks_off_while_its_slot_moves_may_have_happened(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	store := openStore(t, c.URL(), redisstore.Options{})
	const queue = "broken"
	keys := keysOf(queue)
	scheduleAll(t, store, []dueq.Item{item(queue, "x", dueq.In(0))})
	claim, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: queue, Max: 1})
	must(t, err)
	scheduleAll(t, store, []dueq.Item{item(queue, "x", dueq.In(time.Hour))})
	raw := c.OwnerOf(keys[keyScheduled]).Client(t)
	for i, key := range keys {
		switch {
		case raw.Exists(t.Context(), key).Val() != 0:
		case i < keyBody:
			must(t, raw.ZAdd(t.Context(), key, redis.Z{Score: 4e12, Member: "y"}).Err())
		default:
			must(t, raw.HSet(t.Context(), key, "y", "1").Err())
		}
	}
	way := c.BeginReshard(c.SlotOf(keys[keyScheduled]), anotherMaster(t, c, queue))
	_, err = store.Settle(t.Context(), queue, []dueq.Result{{Task: claim.Tasks[0]}})
	wantUnavailable(t, "settle", err, "non local key")
	if !mayHaveHappened(err) {
		t.Errorf("it began, but the error says that it did not happen: %v", err)
	}
	way.Finish()
	infos, err := store.Get(t.Context(), queue, []string{"x:k"})
	if err != nil || infos[0].State != dueq.StateScheduled {
		t.Errorf("got %+v, %v, want that it is scheduled as before", infos, err)
	}
}
