package redisstore_test

import (
	"context"
	"errors"
	"fmt"
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

// ranScripts counts the scripts that a server was asked for.
func ranScripts(t *testing.T, srv *redistest.Server) int64 {
	c := srv.Commands(t)
	return c["evalsha"] + c["eval"]
}

// prepared is a queue with one task of each place, for calls that come late.
func prepared(t *testing.T, store dueq.Store, queue string) *dueq.Task {
	t.Helper()
	scheduleAll(t, store, []dueq.Item{item(queue, "held", past, "body")})
	held := claim(t, store, queue, 1).Tasks[0]
	scheduleAll(t, store, []dueq.Item{item(queue, "due", past, "body"), item(queue, "later", dueq.In(time.Hour))})
	return held
}

// timedCalls are the calls whose scripts carry a deadline.
func timedCalls(queue string, held *dueq.Task) map[string]func(ctx context.Context, store dueq.Store) error {
	return map[string]func(ctx context.Context, store dueq.Store) error{
		"claim": func(ctx context.Context, store dueq.Store) error {
			_, err := store.Claim(ctx, dueq.ClaimRequest{Queue: queue, Max: 10})
			return err
		},
		"forward": func(ctx context.Context, store dueq.Store) error { return forward(ctx, store, queue, "list") },
		"schedule": func(ctx context.Context, store dueq.Store) error {
			_, err := store.Schedule(ctx, []dueq.Item{item(queue, "new", past, "x"), item(queue, "due", dueq.In(time.Hour))})
			return err
		},
		"change": func(ctx context.Context, store dueq.Store) error {
			_, err := store.Change(ctx, queue, dueq.OpStop, []dueq.Target{{Member: "held:k"}, {Member: "due:k"}, {Member: "later:k"}})
			return err
		},
		"extend": func(ctx context.Context, store dueq.Store) error {
			_, err := store.Extend(ctx, queue, []dueq.Lease{held.Lease}, time.Hour)
			return err
		},
	}
}

// Rule 10.
func TestDeadline_a_script_that_starts_too_late_changes_nothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	for name := range timedCalls("", &dueq.Task{}) {
		t.Run(name, func(t *testing.T) {
			// By the store's time-out, and by the caller's.
			for how, timeout := range map[string]time.Duration{"timeout": 200 * time.Millisecond, "context": time.Minute} {
				queue := "late:" + name + ":" + how
				sure := openStore(t, srv.URL(), redisstore.Options{Timeout: 10 * time.Second})
				held := prepared(t, sure, queue)
				store := openStore(t, srv.URL(), redisstore.Options{Timeout: timeout})
				_, err := store.Get(t.Context(), queue, []string{"due:k"}) // a connection is there
				must(t, err)
				_, err = store.Settings(t.Context(), queue) // which the first call would read
				must(t, err)
				watched := append(keysOf(queue), outOf(queue))
				before := contents(t, raw, watched)
				ran := ranScripts(t, srv)

				srv.Pause()
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				began := time.Now()
				err = timedCalls(queue, held)[name](ctx, store)
				took := time.Since(began)
				cancel()
				if !isUnavailable(err) || !mayHaveHappened(err) {
					t.Errorf("%s: got %v, want ErrUnavailable that may have happened", how, err)
				}
				if took > 200*time.Millisecond+slack {
					t.Errorf("%s: took %v, want 200 ms", how, took)
				}
				pass(t, 50*time.Millisecond) // beyond any rounding of the deadline
				srv.Resume()
				eventually(t, 10*time.Second, "the server found the script in its socket", func() bool { return ranScripts(t, srv) > ran })
				if n := ranScripts(t, srv) - ran; n != 1 {
					t.Errorf("%s: the server ran %d scripts, want the one that was sent", how, n)
				}
				for i, value := range contents(t, raw, watched) {
					if value != before[i] {
						t.Errorf("%s: the late script changed %s", how, watched[i])
					}
				}
			}
		})
	}
}

func TestDeadline_settings_that_come_too_late_change_nothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	proxy := startProxy(t, srv.Addr(), 0)
	store := openStore(t, proxy.addr(), redisstore.Options{Timeout: 300 * time.Millisecond})
	_, err := store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"batch": "50"})
	must(t, err)
	proxy.freezeAt.Store(proxy.turns.Load() + 2) // the read before the write passes
	ran := ranScripts(t, srv)
	_, err = store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"batch": "60"})
	if !isUnavailable(err) || !mayHaveHappened(err) {
		t.Errorf("got %v, want ErrUnavailable that may have happened", err)
	}
	pass(t, 50*time.Millisecond) // beyond any rounding of the deadline
	proxy.thaw()
	eventually(t, 10*time.Second, "the server got the script", func() bool { return ranScripts(t, srv) > ran })
	if batch := raw.HGet(t.Context(), keysOf("q")[keySettings], "batch").Val(); batch != "50" {
		t.Errorf("batch is %s, want 50 as before the late call", batch)
	}
}

func TestDeadline_after_a_claim_without_an_answer_a_PING_comes_first(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), redisstore.Options{Timeout: 200 * time.Millisecond})
	scheduleAll(t, store, items("q", 100, past))
	ran := ranScripts(t, srv)
	srv.Pause()
	for i := range 4 {
		_, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 10})
		if !isUnavailable(err) {
			t.Errorf("claim %d of a stopped server: got %v, want ErrUnavailable", i, err)
		}
		if mayHaveHappened(err) != (i == 0) {
			t.Errorf("claim %d: may have happened is %v, want it of the first only: %v", i, mayHaveHappened(err), err)
		}
	}
	srv.Resume()
	eventually(t, 10*time.Second, "the server found the claim in its socket", func() bool { return ranScripts(t, srv) > ran })
	m := startMonitor(t, srv)
	c, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 10})
	must(t, err)
	if len(c.Tasks) != 10 {
		t.Errorf("claimed %d tasks, want 10", len(c.Tasks))
	}
	claim(t, store, "q", 10)
	var names []string
	for _, line := range m.until(t, raw, "claimed") {
		if name := line.name(); !line.lua && (name == "ping" || name == "evalsha") {
			names = append(names, name)
		}
	}
	if want := []string{"ping", "evalsha", "evalsha"}; !slices.Equal(names, want) {
		t.Errorf("the server got %v, want %v", names, want)
	}
	if n := ranScripts(t, srv) - ran; n != 3 {
		t.Errorf("%d claims reached the server, want 3: while it is silent only the first is sent", n)
	}
	if st := statsOf(t, store, "q"); st.Active != 20 || st.Totals.Claimed != 20 {
		t.Errorf("%d active, %d claimed, want the 20 that were received", st.Active, st.Totals.Claimed)
	}
}

func TestDeadline_a_client_with_retries_sends_each_write_once(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	client := redis.NewClient(&redis.Options{
		Addr: srv.Addr(), MaxRetries: 3, ReadTimeout: 100 * time.Millisecond, WriteTimeout: 100 * time.Millisecond,
		MinRetryBackoff: time.Millisecond, MaxRetryBackoff: time.Millisecond, PoolSize: 20,
	})
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Options{Timeout: 5 * time.Second})
	must(t, err)
	for _, known := range []bool{true, false} { // a new queue's name rides along in a pipeline
		queue := fmt.Sprintf("once:%v", known)
		held := prepared(t, store, queue)
		calls := timedCalls(queue, held)
		if !known {
			calls = map[string]func(context.Context, dueq.Store) error{"schedule to a new queue": func(ctx context.Context, store dueq.Store) error {
				_, err := store.Schedule(ctx, []dueq.Item{item("once:new", "new", past)})
				return err
			}}
		}
		for name, call := range calls {
			var warm sync.WaitGroup // connections for the retries that there should not be
			for range 20 {
				warm.Go(func() { _ = client.Ping(t.Context()).Err() })
			}
			warm.Wait()
			claim(t, store, queue, 0) // or it would first ask whether the server is back
			ran := ranScripts(t, srv)
			srv.Pause()
			err := call(t.Context(), store)
			srv.Resume()
			if !isUnavailable(err) || !mayHaveHappened(err) {
				t.Errorf("%s: got %v, want ErrUnavailable that may have happened", name, err)
			}
			eventually(t, 10*time.Second, "the server found the script in its socket", func() bool { return ranScripts(t, srv) > ran })
			must(t, client.Ping(t.Context()).Err())
			if n := ranScripts(t, srv) - ran; n != 1 {
				t.Errorf("%s: sent %d times, want once", name, n)
			}
		}
	}
}

// Whoever gives a call half a second gets half a second.
func TestDeadline_calls_to_a_silent_address_end_with_their_contexts(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, addr string) *redisstore.Store{
		"our_own_client": func(t *testing.T, addr string) *redisstore.Store {
			return openStore(t, addr, redisstore.Options{Timeout: 3 * time.Second})
		},
		"a_client_that_ignores_contexts": func(t *testing.T, addr string) *redisstore.Store {
			client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: 3})
			t.Cleanup(func() { _ = client.Close() })
			store, err := redisstore.New(client, redisstore.Options{Timeout: 3 * time.Second})
			must(t, err)
			return store
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			raw := srv.Client(t)
			proxy := startProxy(t, srv.Addr(), 0)
			labelled(t)
			store := open(t, proxy.addr())
			scheduleAll(t, store, []dueq.Item{item("q", "first", past)})
			client := dueq.NewClient(store, dueq.ClientOptions{})
			baseline, _ := goroutines(t)
			proxy.freeze()

			const calls = 200
			var group sync.WaitGroup
			took, errs := make([]time.Duration, calls), make([]error, calls)
			for i := range calls {
				group.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					defer cancel()
					began := time.Now()
					if i%2 == 0 {
						_, errs[i] = store.Schedule(ctx, []dueq.Item{item("q", fmt.Sprint("late", i), dueq.In(0))})
					} else {
						_, errs[i] = client.Schedule(ctx, "q", dueq.Task{ID: fmt.Sprint("late", i)}, dueq.In(0))
					}
					took[i] = time.Since(began)
				})
			}
			group.Wait()
			most := slices.Max(took)
			for i, err := range errs {
				if !isUnavailable(err) || !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "timeout") {
					t.Fatalf("call %d: got %v, want ErrUnavailable because of its deadline", i, err)
				}
			}
			t.Logf("200 calls with 500 ms: the longest took %v", most)
			if most > 700*time.Millisecond+slack/2 {
				t.Errorf("a call with 500 ms took %v", most)
			}
			pass(t, 4*time.Second-most) // the group that Client sent has a deadline of its own, 3 s after it
			proxy.thaw()
			settled(t, 20*time.Second, baseline+1) // the pool may keep a connection's goroutine
			must(t, raw.Ping(t.Context()).Err())
			if n := raw.ZCard(t.Context(), redisstore.DefaultPrefix+"q").Val(); n != 1 {
				t.Errorf("%d tasks are stored, want the one that was before: all others failed", n)
			}
		})
	}
}

func TestScripts_touch_declared_keys_of_one_slot_only(t *testing.T) {
	t.Parallel()
	if crc16("123456789") != 0x31c3 {
		t.Fatal("crc16 is wrong")
	}
	srv := redistest.Start(t)
	raw := srv.Client(t)
	m := startMonitor(t, srv)
	queues := []string{"order:close", "a", "sms:expire:eu-1.2", "x_y", strings.Repeat("q", dueq.QueueMax)}
	for _, prefix := range []string{"", "app:delay:"} {
		store := openStore(t, srv.URL(), redisstore.Options{Prefix: prefix, Timeout: 10 * time.Second})
		if prefix == "" {
			prefix = redisstore.DefaultPrefix
		}
		for _, queue := range queues {
			for _, patch := range []dueq.SettingsPatch{{"retries": "1"}, {"priority": "on"}, {"priority": "off", "delivery": "at_most_once"}} {
				live(t, store, raw, prefix, queue, patch)
			}
		}
	}
	// Every script of every variant of a full queue as well.
	store := openStore(t, srv.URL(), redisstore.Options{Timeout: 10 * time.Second})
	for _, variant := range []string{"plain", "priority", "once"} {
		for _, op := range operations() {
			f := fill(t, store, raw, "full:"+variant+":"+strings.ReplaceAll(op.name, " ", "-"), variant)
			must(t, op.call(t.Context(), store, f))
		}
	}

	var declared []string
	calls, inside, used := 0, 0, map[string]int{}
	for _, line := range m.until(t, raw, "the end") {
		switch name := line.name(); {
		case !line.lua && (name == "evalsha" || name == "eval"):
			calls++
			var n int
			if _, err := fmt.Sscan(line.args[2], &n); err != nil || n == 0 {
				t.Fatalf("%q declares no keys", line.args)
			}
			declared = line.args[3 : 3+n]
			for _, key := range declared {
				if slot(key) != slot(declared[0]) {
					t.Errorf("keys %q and %q of a call are in two slots", declared[0], key)
				}
			}
		case line.lua:
			inside++
			used[name]++
			switch name {
			case "time", "publish": // no keys
			case "zintercard": // a number of keys, the keys
				for _, key := range line.args[2:4] {
					if !slices.Contains(declared, key) {
						t.Errorf("%q touches a key that is not declared", line.args)
					}
				}
			case "zadd", "zrem", "zcard", "zcount", "zrange", "zscore", "zmscore", "zremrangebyrank", "zremrangebyscore",
				"hget", "hmget", "hset", "hdel", "hlen", "hstrlen", "hexists", "hgetall", "hincrby", "exists", "type", "rpush", "xadd":
				if !slices.Contains(declared, line.args[1]) {
					t.Errorf("%q touches a key that is not declared", line.args[:2])
				}
			default:
				t.Errorf("a script runs %q, of which this test does not know the keys", name)
			}
		}
	}
	t.Logf("%d scripts ran %d commands: %v", calls, inside, used)
	if calls < 500 || inside < 5*calls {
		t.Errorf("MONITOR showed %d scripts and %d commands inside: too few to mean anything", calls, inside)
	}
}

// live is a full life of tasks in one queue.
func live(t *testing.T, store dueq.Store, raw *redis.Client, prefix, queue string, patch dueq.SettingsPatch) {
	t.Helper()
	ctx := t.Context()
	_, err := store.SetSettings(ctx, queue, patch)
	must(t, err)
	client := dueq.NewClient(store, dueq.ClientOptions{})
	for i, rule := range []dueq.IfExists{dueq.Replace, dueq.Keep, dueq.Earlier, dueq.Later, dueq.Replace} {
		task := dueq.Task{ID: "a", Kind: "k"}
		if i%2 == 0 {
			task.Body = []byte("body")
		}
		if patch["priority"] == "on" {
			task.Priority = dueq.P(i)
		}
		_, err := client.Schedule(ctx, queue, task, dueq.In(time.Duration(i)*time.Millisecond), rule)
		must(t, err)
	}
	scheduleAll(t, store, items(queue, 12, past, "b"))
	scheduleAll(t, store, []dueq.Item{item(queue, "gone", dueq.In(time.Hour)), item(queue, "moved", dueq.In(time.Hour))})
	must(t, client.Cancel(ctx, queue, "gone:k"))
	must(t, client.Reschedule(ctx, queue, "moved:k", dueq.In(time.Minute)))
	must(t, raw.ZAdd(ctx, prefix+queue, redis.Z{Score: 3, Member: "early:k"}, redis.Z{Score: 1.7e12, Member: "bad one"}).Err())
	for range 3 {
		c := claim(t, store, queue, 20)
		verdicts := []dueq.Verdict{dueq.VerdictAck, dueq.VerdictRetry, dueq.VerdictAgain, dueq.VerdictRelease, dueq.VerdictDead}
		var results []dueq.Result
		var leases []dueq.Lease
		for i, task := range c.Tasks {
			leases = append(leases, task.Lease)
			results = append(results, dueq.Result{Task: task, Verdict: verdicts[i%len(verdicts)], Err: "because"})
		}
		_, err := store.Extend(ctx, queue, leases, time.Minute)
		must(t, err)
		if len(c.Tasks) > 3 {
			scheduleAll(t, store, []dueq.Item{item(queue, c.Tasks[0].ID, past, "again")}) // while it runs
			claim(t, store, queue, 20)
			_ = client.Cancel(ctx, queue, c.Tasks[1].Lease.Member)
			_ = client.Stop(ctx, queue, c.Tasks[2].Lease.Member)
		}
		_, err = store.Settle(ctx, queue, results)
		must(t, err)
	}
	for _, state := range []dueq.State{dueq.StateScheduled, dueq.StateActive, dueq.StateDead} {
		page, err := store.List(ctx, dueq.ListQuery{Queue: queue, State: state, Limit: 2})
		must(t, err)
		for _, info := range page.Tasks {
			_, err := store.Get(ctx, queue, []string{info.Member})
			must(t, err)
			_ = client.Requeue(ctx, queue, info.Member, dueq.In(time.Second))
			_ = client.Delete(ctx, queue, info.Member)
		}
	}
	statsOf(t, store, queue)
}

// slot is the cluster slot of a key.
func slot(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	return int(crc16(key)) % 16384
}

// crc16 is the XMODEM one, as Redis Cluster uses it.
func crc16(s string) uint16 {
	var crc uint16
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}

func TestAnswers_belong_to_their_questions_after_calls_were_given_up(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, addr string) *redisstore.Store{
		"our_own_client": func(t *testing.T, addr string) *redisstore.Store {
			return openStore(t, addr, redisstore.Options{Timeout: 5 * time.Second})
		},
		"a_client_that_ignores_contexts": func(t *testing.T, addr string) *redisstore.Store {
			client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 20})
			t.Cleanup(func() { _ = client.Close() })
			store, err := redisstore.New(client, redisstore.Options{Timeout: 5 * time.Second})
			must(t, err)
			return store
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			direct := openStore(t, srv.URL(), redisstore.Options{Timeout: 10 * time.Second})
			const n = 1000
			all := make([]dueq.Item, n)
			for i := range all {
				id := fmt.Sprintf("t%06d", i)
				all[i] = item("q", id, dueq.In(time.Hour), "body of "+id)
			}
			scheduleAll(t, direct, all)
			proxy := startProxy(t, srv.Addr(), 30*time.Millisecond)
			store := open(t, proxy.addr())
			random := seeded(t)
			patience := make([]time.Duration, n)
			for i := range patience {
				patience[i] = time.Duration(1+random.IntN(600)) * time.Millisecond
			}
			get := func(ctx context.Context, i int) error {
				id := fmt.Sprintf("t%06d", i)
				infos, err := store.Get(ctx, "q", []string{id + ":k"})
				if err != nil {
					return err
				}
				if infos[0].ID != id || string(infos[0].Body) != "body of "+id {
					t.Errorf("asked for %s, got %s with %q", id, infos[0].ID, infos[0].Body)
				}
				return nil
			}
			var group sync.WaitGroup
			var mu sync.Mutex
			gaveUp := 0
			for i := range n {
				group.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience[i])
					defer cancel()
					if get(ctx, i) != nil {
						mu.Lock()
						gaveUp++
						mu.Unlock()
					}
				})
			}
			group.Wait()
			t.Logf("%d of %d calls were given up", gaveUp, n)
			if gaveUp < n/10 {
				t.Errorf("only %d of %d calls were given up: too few to mean anything", gaveUp, n)
			}
			for i := range 200 {
				group.Go(func() { // together, so that every connection is used
					if err := get(t.Context(), i); err != nil {
						t.Errorf("a call with time: %v", err)
					}
				})
			}
			group.Wait()
		})
	}
}
