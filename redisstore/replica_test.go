package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// startPair returns when the replica gets what the master writes: the first
// second after it was brought in step it does not.
func startPair(t *testing.T) (master, replica *redistest.Server) {
	t.Helper()
	master = redistest.Start(t)
	replica = redistest.Start(t, redistest.WithReplicaOf(master))
	store := openStore(t, master.URL(), patient)
	set(t, store, "first", "wait_replicas", "1")
	scheduleAll(t, store, []dueq.Item{item("first", "a", past)})
	return master, replica
}

func set(t *testing.T, store dueq.Store, queue string, pairs ...string) {
	t.Helper()
	patch := dueq.SettingsPatch{}
	for i := 0; i < len(pairs); i += 2 {
		patch[pairs[i]] = pairs[i+1]
	}
	_, err := store.SetSettings(t.Context(), queue, patch)
	must(t, err)
}

func change(ctx context.Context, store dueq.Store, queue string, op dueq.Op, member string, when dueq.When) error {
	_, err := store.Change(ctx, queue, op, []dueq.Target{{Member: member, When: when}})
	return err
}

// wantUnreplicated expects the error of a call that happened, but not on so many
// replicas.
func wantUnreplicated(t *testing.T, what string, err error, text string) {
	t.Helper()
	wantUnavailable(t, what, err, text)
	if !mayHaveHappened(err) {
		t.Errorf("%s: %v does not say that it may have happened", what, err)
	}
}

func TestReplicas_have_what_was_answered(t *testing.T) {
	t.Parallel()
	master, replica := startPair(t)
	store := openStore(t, master.URL(), patient)
	set(t, store, "q", "wait_replicas", "1")
	copied := replica.Client(t)
	key, ctx := keysOf("q")[keyScheduled], t.Context()
	const rounds = 300
	before := master.Commands(t)["wait"]
	for i := range rounds {
		id := fmt.Sprint("t", i)
		scheduleAll(t, store, []dueq.Item{item("q", id, dueq.In(time.Hour))})
		if err := copied.ZScore(ctx, key, id+":k").Err(); err != nil {
			t.Fatalf("the replica does not have %s: %v", id, err)
		}
		must(t, change(ctx, store, "q", dueq.OpCancel, id+":k", dueq.When{}))
		if err := copied.ZScore(ctx, key, id+":k").Err(); err != redis.Nil {
			t.Fatalf("the replica still has %s: %v", id, err)
		}
	}
	if n := master.Commands(t)["wait"] - before; n != 2*rounds {
		t.Errorf("%d calls of WAIT, want %d", n, 2*rounds)
	}
}

func TestReplicas_that_are_missing_make_a_call_unavailable(t *testing.T) {
	t.Parallel()
	master, replica := startPair(t)
	store := openStore(t, master.URL(), redisstore.Options{})
	ctx, raw := t.Context(), master.Client(t)
	key := keysOf("q")[keyScheduled]
	schedule := func(id string) error {
		_, err := store.Schedule(ctx, []dueq.Item{item("q", id, dueq.In(time.Hour))})
		return err
	}
	set(t, store, "q", "wait_replicas", "2")
	wantUnreplicated(t, "schedule with one replica of two", schedule("one"), "2 replicas")
	must(t, raw.ZScore(ctx, key, "one:k").Err())
	set(t, store, "q", "wait_replicas", "1")
	must(t, schedule("two"))
	eventually(t, 10*time.Second, "the replica has told that it has all", func() bool {
		info, err := raw.InfoMap(ctx, "replication").Result()
		must(t, err)
		return strings.Contains(info["Replication"]["slave0"], "offset="+info["Replication"]["master_repl_offset"]+",")
	})
	replica.Pause() // connected, and it has what the connection wrote before
	wantUnreplicated(t, "schedule with a stopped replica", schedule("stopped"), "1 replicas")
	must(t, raw.ZScore(ctx, key, "stopped:k").Err())
	replica.Resume()
	eventually(t, 20*time.Second, "the replica goes on", func() bool { return schedule("on") == nil })
	master.CutReplicas(replica)
	wantUnreplicated(t, "schedule without replicas", schedule("three"), "1 replicas")
	must(t, raw.ZScore(ctx, key, "three:k").Err())
	wantUnreplicated(t, "reschedule without replicas", change(ctx, store, "q", dueq.OpReschedule, "one:k", dueq.In(2*time.Hour)), "1 replicas")
	wantUnreplicated(t, "cancel without replicas", change(ctx, store, "q", dueq.OpCancel, "two:k", dueq.When{}), "1 replicas")
	if err := raw.ZScore(ctx, key, "two:k").Err(); err != redis.Nil {
		t.Errorf("the cancelled task is there: %v", err)
	}
	replica.Resume()
	eventually(t, 20*time.Second, "the replica is back", func() bool { return schedule("four") == nil })
	must(t, replica.Client(t).ZScore(ctx, key, "four:k").Err())
}

// Who has never heard of the setting has not waited, and says so.
func TestReplicas_are_not_taken_for_granted_while_the_setting_is_unknown(t *testing.T) {
	t.Parallel()
	master, replica := startPair(t)
	set(t, openStore(t, master.URL(), patient), "q", "wait_replicas", "1")
	proxy := redistest.StartProxy(t, master.Addr())
	store := openStore(t, proxy.URL(), redisstore.Options{Timeout: time.Second})
	before := master.Commands(t)["wait"]
	proxy.SetFault(redistest.Next(1, redistest.Answer("-LOADING it was asked too early"), "hgetall"))
	_, err := store.Schedule(t.Context(), []dueq.Item{item("q", "a", dueq.In(time.Hour))})
	wantUnreplicated(t, "schedule with unknown settings", err, "1 replicas")
	if n := master.Commands(t)["wait"] - before; n != 0 {
		t.Errorf("%d calls of WAIT, want none", n)
	}
	scheduleAll(t, store, []dueq.Item{item("q", "b", dueq.In(time.Hour))})
	must(t, replica.Client(t).ZScore(t.Context(), keysOf("q")[keyScheduled], "b:k").Err())
	if n := master.Commands(t)["wait"] - before; n != 1 {
		t.Errorf("%d calls of WAIT, want one", n)
	}
}

func TestReplicas_setting_is_live(t *testing.T) {
	t.Parallel()
	master, _ := startPair(t)
	store, other := openStore(t, master.URL(), patient), openStore(t, master.URL(), patient)
	one := []dueq.Item{item("q", "a", dueq.In(time.Hour))}
	waits := func() int64 { return master.Commands(t)["wait"] }
	for round := range int64(2) {
		set(t, other, "q", "wait_replicas", "0")
		scheduleAll(t, store, one) // learns of it
		before := waits()
		scheduleAll(t, store, one)
		if n := waits() - before; n != 0 {
			t.Errorf("round %d: %d calls of WAIT with wait_replicas 0", round, n)
		}
		set(t, other, "q", "wait_replicas", "1")
		scheduleAll(t, store, one)
		before = waits()
		scheduleAll(t, store, one)
		must(t, change(t.Context(), store, "q", dueq.OpReschedule, "a:k", dueq.In(time.Hour)))
		if n := waits() - before; n != 2 {
			t.Errorf("round %d: %d calls of WAIT with wait_replicas 1, want 2", round, n)
		}
	}
}

func TestReplicas_are_waited_for_by_claims_and_verdicts_only_where_these_can_lose_a_task(t *testing.T) {
	t.Parallel()
	master, replica := startPair(t)
	store := openStore(t, master.URL(), redisstore.Options{})
	ctx := t.Context()
	settle := func(queue string, task *dueq.Task, v dueq.Verdict) error {
		_, err := store.Settle(ctx, queue, []dueq.Result{{Task: task, Verdict: v, Delay: time.Hour}})
		return err
	}
	set(t, store, "least", "wait_replicas", "1")
	set(t, store, "most", "wait_replicas", "1", "delivery", "at_most_once")
	for _, queue := range []string{"least", "most"} {
		scheduleAll(t, store, items(queue, 6, past))
	}
	before := master.Commands(t)["wait"]
	least, most := claim(t, store, "least", 5).Tasks, claim(t, store, "most", 5).Tasks
	must(t, settle("least", least[0], dueq.VerdictAgain))
	must(t, settle("most", most[0], dueq.VerdictAgain))
	must(t, settle("most", most[1], dueq.VerdictRelease))
	for _, id := range []string{"t000000:k", "t000001:k"} {
		must(t, replica.Client(t).ZScore(ctx, keysOf("most")[keyScheduled], id).Err())
	}
	if n := master.Commands(t)["wait"] - before; n != 3 {
		t.Errorf("%d calls of WAIT, want 3: for a claim and two verdicts at most once", n)
	}
	master.CutReplicas(replica)
	defer replica.Resume()
	wantUnreplicated(t, "again at most once", settle("most", most[2], dueq.VerdictAgain), "1 replicas")
	wantUnreplicated(t, "release at most once", settle("most", most[3], dueq.VerdictRelease), "1 replicas")
	_, err := store.Claim(ctx, dueq.ClaimRequest{Queue: "most", Max: 5})
	wantUnreplicated(t, "claim at most once", err, "1 replicas")
	for i, v := range []dueq.Verdict{dueq.VerdictAck, dueq.VerdictRetry, dueq.VerdictAgain, dueq.VerdictRelease} {
		must(t, settle("least", least[1+i], v))
	}
	if c := claim(t, store, "least", 5); len(c.Tasks) == 0 {
		t.Error("at least once nothing was claimed")
	}
}

func TestReplicas_are_waited_for_over_a_flush_of_the_scripts(t *testing.T) {
	t.Parallel()
	master, replica := startPair(t)
	store := openStore(t, master.URL(), patient)
	set(t, store, "q", "wait_replicas", "1")
	scheduleAll(t, store, []dueq.Item{item("q", "a", dueq.In(time.Hour))})
	before := master.Commands(t)["eval"]
	must(t, master.Client(t).ScriptFlush(t.Context()).Err())
	scheduleAll(t, store, []dueq.Item{item("q", "b", dueq.In(time.Hour))})
	must(t, replica.Client(t).ZScore(t.Context(), keysOf("q")[keyScheduled], "b:k").Err())
	if n := master.Commands(t)["eval"] - before; n != 1 {
		t.Errorf("%d scripts sent with their source, want 1", n)
	}
}

// onReplica reports whether a replica of a cluster has a member of a queue.
func onReplica(t *testing.T, c *redistest.Cluster, queue, member string) bool {
	t.Helper()
	for _, replica := range c.Replicas() {
		conn := replica.Client(t).Conn()
		defer conn.Close()
		must(t, conn.Do(t.Context(), "readonly").Err())
		err := conn.ZScore(t.Context(), keysOf(queue)[keyScheduled], member).Err()
		if err == nil {
			return true
		}
		if err != redis.Nil && !strings.HasPrefix(err.Error(), "MOVED") {
			t.Fatal(err)
		}
	}
	return false
}

func errorsOf(t *testing.T, srv *redistest.Server, kind string) string {
	t.Helper()
	info, err := srv.Client(t).InfoMap(t.Context(), "errorstats").Result()
	must(t, err)
	return info["Errorstats"]["errorstat_"+kind]
}

// anotherMaster is a master that does not own a queue.
func anotherMaster(t *testing.T, c *redistest.Cluster, queue string) *redistest.Server {
	t.Helper()
	owner := c.OwnerOf(keysOf(queue)[keyScheduled])
	for _, master := range c.Masters() {
		if master != owner {
			return master
		}
	}
	t.Fatal("there is but one master")
	return nil
}

func TestReplicas_are_waited_for_where_a_slot_went(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1)
	store := openStore(t, c.URL(), patient)
	schedule := func(t *testing.T, queue, id string) {
		t.Helper()
		scheduleAll(t, store, []dueq.Item{item(queue, id, dueq.In(time.Hour))})
		if !onReplica(t, c, queue, id+":k") {
			t.Errorf("no replica has %s", id)
		}
	}
	t.Run("for_good", func(t *testing.T) {
		const queue = "moved"
		set(t, store, queue, "wait_replicas", "1")
		schedule(t, queue, "before")
		from, to := c.OwnerOf(keysOf(queue)[keyScheduled]), anotherMaster(t, c, queue)
		c.Reshard(c.SlotOf(keysOf(queue)[keyScheduled]), to)
		schedule(t, queue, "after")
		if errorsOf(t, from, "MOVED") == "" {
			t.Error("the call found the new owner at once, so little was proved")
		}
		if to.Commands(t)["wait"] == 0 {
			t.Error("nobody waited at the new owner")
		}
	})
	t.Run("for_the_call", func(t *testing.T) {
		const queue = "asked"
		fill(t, store, clusterNode(t, c, queue), queue, "plain") // whose nine keys all exist
		set(t, store, queue, "wait_replicas", "1")
		schedule(t, queue, "before")
		from, to := c.OwnerOf(keysOf(queue)[keyScheduled]), anotherMaster(t, c, queue)
		way := c.BeginReshard(c.SlotOf(keysOf(queue)[keyScheduled]), to)
		way.Move(100)
		waits := to.Commands(t)["wait"]
		scheduleAll(t, store, []dueq.Item{item(queue, "amid", dueq.In(time.Hour))})
		if errorsOf(t, from, "ASK") == "" || to.Commands(t)["asking"] == 0 || to.Commands(t)["wait"] == waits {
			t.Error("nobody was asked to wait at the new owner")
		}
		way.Finish()
		if !onReplica(t, c, queue, "amid:k") || !onReplica(t, c, queue, "before:k") {
			t.Error("no replica of the new owner has it")
		}
		schedule(t, queue, "after")
	})
	t.Run("as_soon_as_it_is_there", func(t *testing.T) {
		const queue = "halfway"
		set(t, store, queue, "wait_replicas", "1")
		scheduleAll(t, store, items(queue, 3, dueq.In(time.Hour), "body"))
		from := c.OwnerOf(keysOf(queue)[keyScheduled])
		way := c.BeginReshard(c.SlotOf(keysOf(queue)[keyScheduled]), anotherMaster(t, c, queue))
		way.Move(1)
		failed := make(chan error, 1)
		go func() {
			_, err := store.Schedule(t.Context(), []dueq.Item{item(queue, "amid", dueq.In(time.Hour))})
			failed <- err
		}()
		eventually(t, 10*time.Second, "the call met the move", func() bool { return errorsOf(t, from, "TRYAGAIN") != "" })
		way.Finish()
		must(t, <-failed)
		if !onReplica(t, c, queue, "amid:k") {
			t.Error("no replica has it")
		}
	})
}

// clusterNode is a client of the master that owns a queue.
func clusterNode(t *testing.T, c *redistest.Cluster, queue string) *redis.Client {
	t.Helper()
	return c.OwnerOf(keysOf(queue)[keyScheduled]).Client(t)
}
