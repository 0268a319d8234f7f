package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// outOf is where a queue's tasks are forwarded if no key is named.
func outOf(queue string) string { return "{" + redisstore.DefaultPrefix + queue + "}:out" }

// forward moves what is due, at most a thousand tasks.
func forward(ctx context.Context, store dueq.Store, queue, to string) error {
	_, err := store.(dueq.Forwarder).Forward(ctx, dueq.ForwardRequest{Queue: queue, Max: dueq.MaxItems, Destination: to})
	return err
}

// startForwarder forwards until the test ends or the returned function is
// called.
func startForwarder(t *testing.T, store dueq.Store, queue, to string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- dueq.Forward(ctx, store, queue, dueq.ForwardOptions{To: to, Logger: quietLog}) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("forwarder: %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("the forwarder did not stop within 30 s")
		}
	})
	t.Cleanup(stop)
	return stop
}

func TestForward_an_answer_that_is_lost_repeats_nothing(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]redistest.Action{"cut": redistest.CutAfter, "silent": redistest.MuteAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, proxy, store, direct := behindProxy(t)
			scheduleAll(t, direct, items("q", 5, past, "body"))
			proxy.SetFault(redistest.Next(1, fault, "evalsha"))
			err := forward(t.Context(), store, "q", "list")
			wantUnavailable(t, "forward", err, "")
			if !mayHaveHappened(err) {
				t.Errorf("got %v, want it said that it may have happened", err)
			}
			must(t, forward(t.Context(), store, "q", "list"))
			if n := srv.Client(t).LLen(t.Context(), outOf("q")).Val(); n != 5 {
				t.Errorf("%d elements, want the five tasks once", n)
			}
			if st := statsOf(t, direct, "q"); st.Scheduled != 0 || st.Totals.Forwarded != 5 {
				t.Errorf("got %+v, want five forwarded", st)
			}
		})
	}
}

func TestForward_connections_that_are_cut_lose_and_repeat_nothing(t *testing.T) {
	t.Parallel()
	srv, proxy, store, direct := behindProxy(t)
	raw, random := srv.Client(t), seeded(t)
	var lock sync.Mutex
	proxy.SetFault(func(cmd []string) redistest.Action {
		lock.Lock()
		defer lock.Unlock()
		switch random.IntN(8) {
		case 0:
			return redistest.CutBefore
		case 1:
			return redistest.CutAfter
		}
		return redistest.Pass
	})
	const n = 2000
	scheduleAll(t, direct, items("q", n, past))
	set(t, direct, "q", "batch", "20")
	for range 3 {
		startForwarder(t, store, "q", "list")
	}
	eventually(t, 60*time.Second, "all is forwarded", func() bool { return raw.LLen(t.Context(), outOf("q")).Val() >= n })
	elements := raw.LRange(t.Context(), outOf("q"), 0, -1).Val()
	slices.Sort(elements)
	if all := len(elements); all != n || len(slices.Compact(elements)) != n {
		t.Errorf("%d elements, %d different, want %d", all, len(slices.Compact(elements)), n)
	}
}

func TestForward_a_full_server_refuses_and_loses_nothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw, store := srv.Client(t), openStore(t, srv.URL(), patient)
	scheduleAll(t, store, items("q", 10, past, "body"))
	must(t, raw.ZAdd(t.Context(), keysOf("q")[keyScheduled], redis.Z{Score: 5, Member: "bad"}).Err())
	watched := append(keysOf("q"), outOf("q"))
	before := contents(t, raw, watched)
	srv.Fill(t)
	for _, to := range []string{"list", "stream"} {
		err := forward(t.Context(), store, "q", to)
		wantUnavailable(t, "forward to a "+to, err, "OOM")
		if mayHaveHappened(err) {
			t.Errorf("got %v, want it known that nothing happened", err)
		}
	}
	for i, value := range contents(t, raw, watched) {
		if value != before[i] {
			t.Errorf("what was refused changed %s", watched[i])
		}
	}
	startForwarder(t, store, "q", "list") // which waits for room
	if tasks := claim(t, store, "q", 3).Tasks; len(tasks) != 2 {
		t.Errorf("claimed %d of a full server, want 2 beside a bad score", len(tasks))
	}
	srv.Relieve(t)
	eventually(t, 10*time.Second, "the rest is forwarded", func() bool { return raw.LLen(t.Context(), outOf("q")).Val() == 8 })
}

// Of all that can be checked before the first write this cannot.
func TestForward_a_stream_whose_ids_are_used_up_takes_nothing_and_loses_nothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw, store := srv.Client(t), openStore(t, srv.URL(), patient)
	scheduleAll(t, store, items("q", 10, past, "body"))
	const last = "18446744073709551615-18446744073709551615"
	must(t, raw.XAdd(t.Context(), &redis.XAddArgs{Stream: outOf("q"), ID: last, Values: []string{"f", "x"}}).Err())
	err := forward(t.Context(), store, "q", "stream")
	if err == nil || isUnavailable(err) || !strings.Contains(err.Error(), "exhausted") {
		t.Errorf("got %v, want what the server says", err)
	}
	tasks := claim(t, store, "q", 100).Tasks
	if len(tasks) != 10 || raw.XLen(t.Context(), outOf("q")).Val() != 1 {
		t.Errorf("%d tasks are left, want all ten", len(tasks))
	}
	for _, task := range tasks {
		if string(task.Body) != "body" {
			t.Errorf("%s has the body %q", task.ID, task.Body)
		}
	}
}

func TestForward_what_a_server_forgets_is_forwarded_again(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	store := openStore(t, srv.URL(), patient)
	scheduleAll(t, store, items("q", 3, past))
	srv.SaveSnapshot(t)
	for range 2 {
		must(t, forward(t.Context(), store, "q", "list"))
		if got := srv.Client(t).LPopCount(t.Context(), outOf("q"), 10).Val(); len(got) != 3 {
			t.Fatalf("took %q, want three tasks", got)
		}
		srv.RestartFromSnapshot()
		eventually(t, 10*time.Second, "it is back", func() bool {
			all, err := store.Stats(t.Context(), "q")
			return err == nil && all[0].Scheduled == 3
		})
	}
}

func TestForward_a_user_needs_rights_to_the_destination(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	user := func(name string, more ...string) *redisstore.Store {
		must(t, raw.ACLSetUser(t.Context(), name, append([]string{"reset", "on", ">pw"}, append(documentedRights(t, "delay:"), more...)...)...).Err())
		return openStore(t, "redis://"+name+":pw@"+srv.Addr(), patient)
	}
	for _, c := range []struct {
		name, to string
		rights   []string
		want     []string // of the error; none: it works
	}{
		{"documented", "list", nil, nil},
		{"documented-2", "stream", nil, nil},
		{"no-list", "list", []string{"-rpush"}, []string{"rpush", outOf("no-list")}},
		{"no-stream", "stream", []string{"-xadd"}, []string{"xadd", outOf("no-stream")}},
		{"no-key", "list:jobs", nil, []string{"+rpush", "~jobs"}},
		{"no-key-2", "stream:jobs", nil, []string{"+xadd", "~jobs"}},
		{"key", "list:their-jobs", []string{"~their-*"}, nil},
	} {
		store := user(c.name, c.rights...)
		scheduleAll(t, store, items(c.name, 3, past, "body"))
		must(t, raw.ZAdd(t.Context(), keysOf(c.name)[keyScheduled], redis.Z{Score: 5, Member: "bad"}).Err())
		watched := append(keysOf(c.name), outOf(c.name), "jobs")
		before := contents(t, raw, watched)
		err := forward(t.Context(), store, c.name, c.to)
		if c.want == nil {
			must(t, err)
			if n := statsOf(t, store, c.name).Totals.Forwarded; n != 3 {
				t.Errorf("%s: %d forwarded, want 3", c.name, n)
			}
			continue
		}
		for _, text := range append(c.want, "NOPERM", "forward "+c.name) {
			if err == nil || !strings.Contains(err.Error(), text) || isUnavailable(err) || errors.Is(err, dueq.ErrInvalid) {
				t.Errorf("%s: got %v, want it to name %s", c.name, err, text)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if again := dueq.Forward(ctx, store, c.name, dueq.ForwardOptions{To: c.to, Logger: quietLog}); again == nil || again.Error() != err.Error() {
			t.Errorf("%s: Forward returned %v, want %v", c.name, again, err)
		}
		cancel()
		for i, value := range contents(t, raw, watched) {
			if value != before[i] {
				t.Errorf("%s: what was denied changed %s", c.name, watched[i])
			}
		}
	}
}

func TestForward_in_a_cluster_another_slot_is_refused_before_it_is_asked(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	store := openStore(t, c.URL(), patient)
	scheduleAll(t, store, items("q", 3, past))
	ran := func() (n int64) {
		for _, node := range c.Nodes() {
			n += ranScripts(t, node)
		}
		return n
	}
	before := ran()
	for _, key := range []string{"jobs", "{jobs}:out", "{delay:q", "{}delay:q", "{delay:q2}:out", "x{delay:}q"} {
		err := forward(t.Context(), store, "q", "stream:"+key)
		if !errors.Is(err, dueq.ErrInvalid) || !strings.Contains(err.Error(), "destination "+key+" is in another slot") || !strings.Contains(err.Error(), "stream:"+outOf("q")) {
			t.Errorf("%s: got %v, want ErrInvalid naming %s", key, err, outOf("q"))
		}
	}
	if n := ran() - before; n != 0 {
		t.Errorf("%d scripts ran", n)
	}
	for _, key := range []string{"{delay:q}", "jobs-of-{delay:q}", "{delay:q}:{other}"} {
		scheduleAll(t, store, items("q", 3, past))
		must(t, forward(t.Context(), store, "q", "list:"+key))
	}
	for _, node := range c.Nodes() {
		noErrors(t, node, "CROSSSLOT")
	}
	// Who takes a node of a cluster for a server alone hears the same from it.
	alone := openStore(t, c.OwnerOf("delay:q").URL(), patient)
	err := forward(t.Context(), alone, "q", "list:jobs")
	if !errors.Is(err, dueq.ErrInvalid) || !strings.Contains(err.Error(), "list:"+outOf("q")) {
		t.Errorf("got %v, want ErrInvalid naming %s", err, outOf("q"))
	}
}

// A script that empties a key and comes back to it while its slot moves breaks
// off there, wherever that is.
func TestForward_a_script_that_breaks_off_while_its_slot_moves_repeats_nothing(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	store, raw := openStore(t, c.URL(), redisstore.Options{}), clusterClient(t, c)
	for queue, buried := range map[string]bool{"emptied": false, "buried": true} {
		keys := keysOf(queue)
		scheduleAll(t, store, []dueq.Item{item(queue, "x", past, "body")})
		if buried { // as a plain ZADD of a dead letter leaves it
			must(t, raw.ZAdd(t.Context(), keys[keyDead], redis.Z{Score: float64(time.Now().UnixMilli()), Member: "x:k"}).Err())
			must(t, raw.HSet(t.Context(), keys[keyTries], "x:k", "4").Err())
			must(t, raw.HSet(t.Context(), keys[keyError], "x:k", "why").Err())
		}
		for i, key := range append(keys, outOf(queue)) {
			switch {
			case raw.Exists(t.Context(), key).Val() != 0:
			case i == len(keys):
				must(t, raw.RPush(t.Context(), key, "before").Err())
			case i < keyBody:
				must(t, raw.ZAdd(t.Context(), key, redis.Z{Score: 4e12, Member: "y"}).Err())
			default:
				must(t, raw.HSet(t.Context(), key, "y", "1").Err())
			}
		}
		way := c.BeginReshard(c.SlotOf(keys[keyScheduled]), anotherMaster(t, c, queue))
		err := forward(t.Context(), store, queue, "list")
		wantUnavailable(t, queue, err, "non local key")
		if !mayHaveHappened(err) {
			t.Errorf("%s: it began, but the error says that it did not happen: %v", queue, err)
		}
		way.Finish()
		must(t, forward(t.Context(), store, queue, "list"))
		got := raw.LRange(t.Context(), outOf(queue), 0, -1).Val()
		if !slices.Equal(got, []string{"before", "x:k\nbody"}) {
			t.Errorf("%s: got %q, want the task once", queue, got)
		}
		if n := statsOf(t, store, queue).Totals.Forwarded; n != 1 {
			t.Errorf("%s: %d forwarded, want 1", queue, n)
		}
	}
}

func TestForward_shares_a_queue_with_workers(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw, store := srv.Client(t), openStore(t, srv.URL(), patient)
	release, held := make(chan struct{}), make(chan struct{}, 1)
	startWorker(t, store, dueq.WorkerOptions{Concurrency: 1}, dueq.HandlerFunc(func(context.Context, *dueq.Task) error {
		held <- struct{}{}
		<-release
		return nil
	}), "q")
	scheduleAll(t, store, []dueq.Item{item("q", "a", past, "first")})
	<-held
	startForwarder(t, store, "q", "list")
	scheduleAll(t, store, []dueq.Item{item("q", "a", past, "second"), item("q", "b", past)})
	eventually(t, 10*time.Second, "the other task is forwarded", func() bool { return raw.LLen(t.Context(), outOf("q")).Val() == 1 })
	if n := raw.ZCard(t.Context(), keysOf("q")[keyNext]).Val(); n != 1 {
		t.Errorf("%d tasks wait for the end of the run, want 1", n)
	}
	close(release)
	eventually(t, 10*time.Second, "either takes what waited", func() bool {
		n := statsOf(t, store, "q").Totals
		return n.Superseded == 1 && n.Acked+n.Forwarded == 2
	})
}
