package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// keysOf lists the nine keys of a queue in the order that scripts have them.

func keysOf(queue string) []string {
	k := redisstore.DefaultPrefix + queue
	names := []string{k}
	for _, side := range []string{"active", "next", "dead", "body", "tries", "error", "settings", "stats"} {
		names = append(names, "{"+k+"}:"+side)
	}
	return names
}

const (
	keyScheduled = iota
	keyActive
	keyNext
	keyDead
	keyBody
	keyTries
	keyError
	keySettings
	keyStats
)

// contents are the values of keys as DUMP shows them.

func contents(t *testing.T, raw *redis.Client, keys []string) []string {
	t.Helper()
	all := make([]string, len(keys))
	for i, key := range keys {
		value, err := raw.Dump(t.Context(), key).Result()
		if err != nil && err != redis.Nil {
			t.Fatal(err)
		}
		all[i] = value
	}
	return all
}

// full is a queue with something in each of its keys and work for every

// script to do.

type full struct {
	name string
	held map[string]*dueq.Task // by id: a and e are active, d is and waits in next
	once *dueq.Task            // claimed at most once, or nil
}

func (f *full) result(id string, v dueq.Verdict) dueq.Result {
	return dueq.Result{Task: f.held[id], Verdict: v, Delay: time.Second, Err: "because"}
}

// fill makes a full queue of one variant: plain, priority or once.

func fill(t *testing.T, store dueq.Store, raw *redis.Client, name, variant string) *full {
	t.Helper()
	ctx := t.Context()
	f := &full{name: name, held: map[string]*dueq.Task{}}
	if variant == "priority" {
		_, err := store.SetSettings(ctx, name, dueq.SettingsPatch{"priority": "on"})
		must(t, err)
	} else {
		_, err := store.SetSettings(ctx, name, dueq.SettingsPatch{"retries": "5"})
		must(t, err)
	}
	var due []dueq.Item
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		due = append(due, item(name, id, past, "body of "+id))
	}
	scheduleAll(t, store, due)
	for _, task := range claim(t, store, name, 5).Tasks {
		f.held[task.ID] = task
	}
	outcomes, err := store.Settle(ctx, name, []dueq.Result{
		{Task: f.held["b"], Verdict: dueq.VerdictDead, Err: "dead for a reason"},
		{Task: f.held["c"], Verdict: dueq.VerdictRetry, Delay: time.Hour, Err: "failed for a reason"},
	})
	must(t, err)
	if outcomes[0].Status != dueq.StatusDone || outcomes[1].Status != dueq.StatusDone {
		t.Fatalf("settle: %v", outcomes)
	}
	keys := keysOf(name)
	must(t, raw.ZAdd(ctx, keys[keyNext], redis.Z{Score: float64(time.Now().Add(-time.Second).UnixMilli()), Member: "d:k"}).Err())
	if variant == "once" {
		_, err := store.SetSettings(ctx, name, dueq.SettingsPatch{"delivery": "at_most_once"})
		must(t, err)
		scheduleAll(t, store, []dueq.Item{item(name, "once", past, "taken")})
		f.once = claim(t, store, name, 5).Tasks[0]
	}
	scheduleAll(t, store, []dueq.Item{
		item(name, "f", dueq.In(time.Hour), "later"),
		item(name, "g", dueq.In(0), "now"),
	})
	must(t, raw.ZAdd(ctx, keys[keyScheduled],
		redis.Z{Score: 5, Member: "seconds:k"}, redis.Z{Score: 1.7e12, Member: "bad member"},
		redis.Z{Score: 1e300, Member: "far:k"}, redis.Z{Score: 1.7e12, Member: "b:k"}).Err())
	// A lease that ended, one of a cancelled run, an old dead letter, and a
	// grace that holds none of them back.
	must(t, raw.ZAdd(ctx, keys[keyActive], redis.Z{Score: 1.7e15 + 7, Member: "ended:k"}, redis.Z{Score: 1.7e15 + 8, Member: "cancelled:k"}).Err())
	must(t, raw.HSet(ctx, keys[keyTries], "cancelled:k", "-").Err())
	must(t, raw.ZAdd(ctx, keys[keyDead], redis.Z{Score: 1e12, Member: "old:k"}).Err())
	must(t, raw.HSet(ctx, keys[keyStats], "grace", 0, "last", time.Now().UnixMilli()).Err())
	return f
}

// operation is one script at work on a full queue.

type operation struct {
	name    string
	touches []int // places of the keys that it cannot do without; nil means all
	call    func(ctx context.Context, store dueq.Store, f *full) error
}

func operations() []operation {
	ops := []operation{
		{"schedule", nil, func(ctx context.Context, store dueq.Store, f *full) error {
			_, err := store.Schedule(ctx, []dueq.Item{
				item(f.name, "a", dueq.In(0), "again"), item(f.name, "b", dueq.In(0)), item(f.name, "c", dueq.In(0), "new"),
				item(f.name, "f", dueq.In(0)), item(f.name, "x", dueq.In(time.Minute), "x"),
			})
			return err
		}},
		{"claim", nil, func(ctx context.Context, store dueq.Store, f *full) error {
			_, err := store.Claim(ctx, dueq.ClaimRequest{Queue: f.name, Max: 100})
			return err
		}},
		{"forward to a list", nil, func(ctx context.Context, store dueq.Store, f *full) error {
			return forward(ctx, store, f.name, "list")
		}},
		{"forward to a stream", nil, func(ctx context.Context, store dueq.Store, f *full) error {
			return forward(ctx, store, f.name, "stream")
		}},
		{"settle", nil, func(ctx context.Context, store dueq.Store, f *full) error {
			results := []dueq.Result{f.result("a", dueq.VerdictRetry), f.result("d", dueq.VerdictAck), f.result("e", dueq.VerdictDead)}
			if f.once != nil {
				again := dueq.Result{Task: f.once, Verdict: dueq.VerdictAgain}
				results = append([]dueq.Result{again}, results...)
			}
			_, err := store.Settle(ctx, f.name, results)
			return err
		}},
		{"settle acks", nil, func(ctx context.Context, store dueq.Store, f *full) error {
			_, err := store.Settle(ctx, f.name, []dueq.Result{f.result("a", dueq.VerdictAck), f.result("e", dueq.VerdictAck)})
			return err
		}},
		{"extend", []int{keyActive, keySettings}, func(ctx context.Context, store dueq.Store, f *full) error {
			_, err := store.Extend(ctx, f.name, []dueq.Lease{f.held["a"].Lease, f.held["e"].Lease}, time.Hour)
			return err
		}},
		{"settings", []int{keySettings}, func(ctx context.Context, store dueq.Store, f *full) error {
			_, err := store.SetSettings(ctx, f.name, dueq.SettingsPatch{"batch": "7", "retries": "default"})
			return err
		}},
		{"get", []int{keyScheduled, keyActive, keyNext, keyDead, keyBody, keyTries, keyError, keySettings}, func(ctx context.Context, store dueq.Store, f *full) error {
			_, err := store.Get(ctx, f.name, []string{"a:k", "b:k", "c:k", "d:k", "f:k"})
			return err
		}},
		{"list", []int{keyScheduled, keyActive, keyNext, keyDead, keyBody, keyTries, keyError, keySettings}, func(ctx context.Context, store dueq.Store, f *full) error {
			_, err := store.List(ctx, dueq.ListQuery{Queue: f.name, State: dueq.StateScheduled})
			return err
		}},
		{"stats", []int{keyScheduled, keyActive, keyNext, keyDead, keySettings, keyStats}, func(ctx context.Context, store dueq.Store, f *full) error {
			_, err := store.Stats(ctx, f.name)
			return err
		}},
	}
	for _, op := range []dueq.Op{dueq.OpCancel, dueq.OpStop, dueq.OpReschedule, dueq.OpRequeue, dueq.OpDelete} {
		ops = append(ops, operation{op.String(), nil, func(ctx context.Context, store dueq.Store, f *full) error {
			var targets []dueq.Target
			for _, id := range []string{"a", "b", "c", "d", "f"} {
				targets = append(targets, dueq.Target{Member: id + ":k", When: dueq.In(time.Minute)})
			}
			_, err := store.Change(ctx, f.name, op, targets)
			return err
		}})
	}
	return ops
}

// Rule 2: everything is checked before the first write.

func TestRules_a_key_of_another_type_fails_every_script_before_it_writes(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), patient)
	for _, variant := range []string{"plain", "priority", "once"} {
		for _, op := range operations() {
			for at := range keysOf("") {
				name := fmt.Sprintf("%s:%s:%d", variant, strings.ReplaceAll(op.name, " ", "_"), at)
				f := fill(t, store, raw, name, variant)
				keys := keysOf(name)
				must(t, raw.Del(t.Context(), keys[at]).Err())
				must(t, raw.RPush(t.Context(), keys[at], "somebody else's").Err())
				watched := append(keys, outOf(name))
				before := contents(t, raw, watched)
				err := op.call(t.Context(), store, f)
				touched := op.touches == nil || slices.Contains(op.touches, at)
				if err == nil {
					if touched {
						t.Errorf("%s with a list at %s: got no error", op.name, keys[at])
					}
					continue
				}
				if text := err.Error(); !strings.Contains(text, "WRONGTYPE") || !strings.Contains(text, keys[at]) || isUnavailable(err) {
					t.Errorf("%s: got %v, want WRONGTYPE naming %s that is not ErrUnavailable", op.name, err, keys[at])
				}
				for i, value := range contents(t, raw, watched) {
					if value != before[i] {
						t.Errorf("%s of a %s queue with a list at %s changed %s", op.name, variant, keys[at], watched[i])
					}
				}
			}
		}
	}
}

func TestRules_a_queue_with_a_bad_key_does_not_keep_others(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), patient)
	must(t, raw.Set(t.Context(), redisstore.DefaultPrefix+"bad", "text", 0).Err())

	outcomes, err := store.Schedule(t.Context(), []dueq.Item{
		item("good", "a", dueq.In(0)), item("bad", "b", dueq.In(0)), item("good", "c", dueq.In(0)),
	})
	if err == nil || !strings.Contains(err.Error(), redisstore.DefaultPrefix+"bad") || isUnavailable(err) {
		t.Errorf("schedule: got %v, want an error that names the key and is not ErrUnavailable", err)
	}
	want := []dueq.Status{dueq.StatusScheduled, dueq.StatusUnknown, dueq.StatusScheduled}
	for i, o := range outcomes {
		if o.Status != want[i] {
			t.Errorf("outcome %d: got %v, want %v", i, o.Status, want[i])
		}
	}
	all, err := store.Stats(t.Context(), "bad", "good")
	must(t, err)
	if all[0].Err == nil || all[1].Err != nil || all[1].Scheduled != 2 {
		t.Errorf("stats: got %+v, want an error for bad and 2 scheduled for good", all)
	}
	done := newLedger()
	startWorker(t, store, dueq.WorkerOptions{}, done, "bad", "good")
	eventually(t, 5*time.Second, "the good queue is worked off", func() bool { return done.size() == 2 })
}

// Rule 3: due times are never early, to the microsecond, and never late by a

// millisecond.

func TestRules_due_is_the_first_millisecond_not_before_the_delay_has_passed(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.WithClock(time.UnixMilli(1_800_000_000_000)))
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), patient)
	random := seeded(t)
	delays := []time.Duration{0, 1, 999, time.Microsecond, 999 * time.Microsecond, time.Millisecond, time.Millisecond + 1,
		time.Second - time.Microsecond, time.Hour, 24*365*time.Hour + 500*time.Microsecond}
	for range 30 {
		delays = append(delays, time.Duration(random.Int64N(int64(2*time.Second))))
	}
	micros := []int64{0, 1, 499, 500, 998, 999, 1000}
	for range 8 {
		micros = append(micros, random.Int64N(1_000_000))
	}
	for n, micro := range micros {
		now := time.UnixMicro(1_800_000_000_000_000 + int64(n)*10_000_000 + micro)
		srv.SetTime(now)
		queue := fmt.Sprintf("exact:%d", n)
		var all []dueq.Item
		for i, d := range delays {
			all = append(all, item(queue, fmt.Sprint(i), dueq.In(d)))
		}
		outcomes, err := store.Schedule(t.Context(), all)
		must(t, err)
		scores, err := raw.ZRangeWithScores(t.Context(), redisstore.DefaultPrefix+queue, 0, -1).Result()
		must(t, err)
		stored := map[string]float64{}
		for _, z := range scores {
			stored[z.Member.(string)] = z.Score
		}
		for i, d := range delays {
			exact := now.UnixMicro() + (d + time.Microsecond - 1).Microseconds()
			want := (exact + 999) / 1000
			if got := outcomes[i].Due.UnixMilli(); got != want || stored[fmt.Sprintf("%d:k", i)] != float64(want) {
				t.Errorf("now %d µs, delay %v: due %d, stored %.3f, want %d", now.UnixMicro(), d, got, stored[fmt.Sprintf("%d:k", i)], want)
			}
		}
	}

	// Not claimed a microsecond before, claimed then.
	now := time.UnixMicro(1_800_001_000_000_337)
	srv.SetTime(now)
	o, err := store.Schedule(t.Context(), []dueq.Item{item("early", "a", dueq.In(1500*time.Microsecond))})
	must(t, err)
	must(t, raw.ZAdd(t.Context(), redisstore.DefaultPrefix+"early:open", redis.Z{Score: float64(o[0].Due.UnixMilli()) - 0.1, Member: "a:k"}).Err())
	for _, queue := range []string{"early", "early:open"} {
		srv.SetTime(o[0].Due.Add(-time.Microsecond))
		if c := claim(t, store, queue, 10); len(c.Tasks) != 0 {
			t.Errorf("%s: claimed at %v, before %v", queue, c.Now, o[0].Due)
		}
		srv.SetTime(o[0].Due)
		if c := claim(t, store, queue, 10); len(c.Tasks) != 1 || !c.Tasks[0].Due.Equal(o[0].Due) || c.Tasks[0].Age != 0 {
			t.Errorf("%s: claimed %d tasks at their due time, want one of age 0", queue, len(c.Tasks))
		}
	}
}

// Rule 4: a call at its bound is quick.

func TestRules_scripts_are_quick_at_a_thousand_members(t *testing.T) {
	t.Parallel()
	srv := startQuick(t)
	raw := srv.Client(t)
	must(t, raw.ConfigSet(t.Context(), "slowlog-log-slower-than", "0").Err())
	store := openStore(t, srv.URL(), patient)
	const n = dueq.MaxItems
	kilobyte := strings.Repeat("x", 1000)

	// cost runs something a few times, each on a queue of its own, and looks at
	// the least that its slowest script took, by the clock or of the processor:
	// the rest is the machine's. With
	// priorities a task has eleven spellings to look for, which costs far more
	// than the 5 ms aimed at.
	cost := func(name string, patch dueq.SettingsPatch, prepare func(queue string), run func(queue string) error) {
		least, bound, times := time.Hour, 60*time.Millisecond, 3
		if patch["priority"] == "on" {
			bound, times = 600*time.Millisecond, 1
		}
		for i := range times {
			queue := fmt.Sprintf("%s:%d", strings.ReplaceAll(name, " ", "_"), i)
			if patch != nil {
				_, err := store.SetSettings(t.Context(), queue, patch)
				must(t, err)
			}
			prepare(queue)
			must(t, raw.SlowLogReset(t.Context()).Err())
			used := usedCPU(t, raw)
			must(t, run(queue))
			used = usedCPU(t, raw) - used
			entries, err := raw.SlowLogGet(t.Context(), 10000).Result()
			must(t, err)
			most := time.Duration(0)
			for _, e := range entries {
				if strings.HasPrefix(strings.ToLower(e.Args[0]), "eval") {
					most = max(most, e.Duration)
				}
			}
			least = min(least, most, used)
		}
		mark := ""
		if least > 5*time.Millisecond {
			mark = "  (over 5 ms)"
		}
		t.Logf("%-34s %6.2f ms%s", name, float64(least.Microseconds())/1000, mark)
		if least == 0 || least > bound {
			t.Errorf("%s: the quickest of %d took %v, want at most %v", name, times, least, bound)
		}
	}

	nothing := func(string) {}
	schedule := func(queue string, when dueq.When, body ...string) error {
		_, err := store.Schedule(t.Context(), items(queue, n, when, body...))
		return err
	}
	scheduled := func(when dueq.When, body ...string) func(string) {
		return func(queue string) { must(t, schedule(queue, when, body...)) }
	}
	held := map[string][]*dueq.Task{}
	take := func(queue string) error {
		c, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: queue, Max: n, Lease: time.Hour})
		held[queue] = append(held[queue], c.Tasks...)
		return err
	}
	claimed := func(body ...string) func(string) {
		return func(queue string) {
			must(t, schedule(queue, past, body...))
			must(t, take(queue))
			for len(held[queue]) < n && !t.Failed() { // bodies may take more than a call
				before := len(held[queue])
				must(t, take(queue))
				if len(held[queue]) == before {
					t.Fatalf("claimed %d of %d", before, n)
				}
			}
		}
	}
	settle := func(v dueq.Verdict, text string) func(string) error {
		return func(queue string) error {
			results := make([]dueq.Result, n)
			for i, task := range held[queue] {
				results[i] = dueq.Result{Task: task, Verdict: v, Delay: time.Minute, Err: text}
			}
			_, err := store.Settle(t.Context(), queue, results)
			return err
		}
	}
	members := func(queue string) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf("t%06d:k", i)
		}
		return all
	}
	change := func(op dueq.Op) func(string) error {
		return func(queue string) error {
			targets := make([]dueq.Target, n)
			for i, m := range members(queue) {
				targets[i] = dueq.Target{Member: m, When: dueq.In(time.Hour)}
			}
			_, err := store.Change(t.Context(), queue, op, targets)
			return err
		}
	}
	list := func(state dueq.State) func(string) error {
		return func(queue string) error {
			_, err := store.List(t.Context(), dueq.ListQuery{Queue: queue, State: state, Limit: n})
			return err
		}
	}
	zadd := func(key func(string) string, member string, score float64) func(string) {
		return func(queue string) {
			zs := make([]redis.Z, n)
			for i := range zs {
				zs[i] = redis.Z{Score: score, Member: fmt.Sprintf("%s%06d:k", member, i)}
			}
			must(t, raw.ZAdd(t.Context(), key(queue), zs...).Err())
		}
	}
	scheduledKey := func(queue string) string { return keysOf(queue)[keyScheduled] }
	later, now := dueq.In(time.Hour), past
	both := func(a, b func(string)) func(string) { return func(q string) { a(q); b(q) } }

	for _, variant := range []struct {
		name  string
		patch dueq.SettingsPatch
	}{{"", nil}, {" -priority", dueq.SettingsPatch{"priority": "on"}}} {
		v, patch := variant.name, variant.patch
		cost("schedule"+v, patch, nothing, func(q string) error { return schedule(q, later) })
		cost("schedule with bodies"+v, patch, nothing, func(q string) error { return schedule(q, later, kilobyte) })
		cost("schedule again with bodies"+v, patch, scheduled(later, kilobyte), func(q string) error { return schedule(q, now, kilobyte) })
		cost("schedule what is active"+v, patch, claimed("b"), func(q string) error { return schedule(q, now) })
		cost("claim"+v, patch, scheduled(now), take)
		cost("claim with bodies"+v, patch, scheduled(now, kilobyte), take)
		cost("claim what is active"+v, patch, both(claimed(), scheduled(now)), take)
		cost("claim bad scores"+v, patch, zadd(scheduledKey, "t", 5), take)
		cost("claim bad members"+v, patch, zadd(scheduledKey, "é\u00a0", 1.7e12), take)
		cost("settle acks"+v, patch, claimed(), settle(dueq.VerdictAck, ""))
		cost("settle acks with bodies"+v, patch, claimed(kilobyte), settle(dueq.VerdictAck, ""))
		cost("settle retries"+v, patch, claimed(), settle(dueq.VerdictRetry, kilobyte))
		cost("settle again"+v, patch, claimed("b"), settle(dueq.VerdictAgain, ""))
		cost("settle dead"+v, patch, claimed("b"), settle(dueq.VerdictDead, kilobyte))
		cost("settle superseded"+v, patch, both(claimed("b"), scheduled(now)), settle(dueq.VerdictAck, ""))
		cost("extend"+v, patch, claimed(), func(q string) error {
			leases := make([]dueq.Lease, n)
			for i, task := range held[q] {
				leases[i] = task.Lease
			}
			_, err := store.Extend(t.Context(), q, leases, time.Minute)
			return err
		})
		cost("cancel"+v, patch, scheduled(later, "b"), change(dueq.OpCancel))
		cost("stop"+v, patch, claimed("b"), change(dueq.OpStop))
		cost("reschedule"+v, patch, scheduled(later, "b"), change(dueq.OpReschedule))
		bury := func(q string) { claimed("b")(q); must(t, settle(dueq.VerdictDead, "why")(q)) }
		cost("requeue"+v, patch, bury, change(dueq.OpRequeue))
		cost("delete"+v, patch, bury, change(dueq.OpDelete))
		cost("get"+v, patch, scheduled(later, kilobyte), func(q string) error {
			_, err := store.Get(t.Context(), q, members(q))
			return err
		})
		cost("list scheduled"+v, patch, scheduled(later, "b"), list(dueq.StateScheduled))
		cost("list active"+v, patch, claimed("b"), list(dueq.StateActive))
		cost("list dead"+v, patch, bury, list(dueq.StateDead))
		cost("claim ended leases"+v, patch, both(
			zadd(func(q string) string { return keysOf(q)[keyActive] }, "t", 1.7e15+3),
			func(q string) {
				must(t, raw.HSet(t.Context(), keysOf(q)[keyStats], "last", time.Now().UnixMilli(), "grace", 0).Err())
			}), take)
	}
	cost("stats", nil, scheduled(later), func(q string) error {
		_, err := store.Stats(t.Context(), q)
		return err
	})
	moveTo := func(to string) func(string) error {
		return func(queue string) error { return forward(t.Context(), store, queue, to) }
	}
	cost("forward to a list", nil, scheduled(now, kilobyte), moveTo("list"))
	cost("forward to a stream", nil, scheduled(now, kilobyte), moveTo("stream"))
	cost("claim at most once", dueq.SettingsPatch{"delivery": "at_most_once"}, scheduled(now, kilobyte), take)
}

// hints listens to a server's channel.

// since returns what was published until now: the mark comes after it.

// Rule 5: who gives a queue a new head says so once, and nobody else does.

// Plain ZADD is a producer that tells nobody.
