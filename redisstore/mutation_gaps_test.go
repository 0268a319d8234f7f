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

// What internal/mutate broke and no other test saw.

// flusher is a hook that flushes the scripts after the first command of the
// next pipeline.
type flusher struct {
	raw   *redis.Client
	armed bool
}

func (f *flusher) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f *flusher) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f *flusher) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !f.armed {
			return next(ctx, cmds)
		}
		f.armed = false
		if err := next(ctx, cmds[:1]); err != nil {
			return err
		}
		if err := f.raw.ScriptFlush(ctx).Err(); err != nil {
			return err
		}
		return next(ctx, cmds[1:])
	}
}

// Rule 1.
func TestGaps_a_flush_inside_a_pipeline_repeats_only_what_was_not_known(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer client.Close()
	hook := &flusher{raw: srv.Client(t)}
	client.AddHook(hook)
	store, err := redisstore.New(client, redisstore.Options{Timeout: 10 * time.Second})
	must(t, err)
	hook.armed = true
	outcomes, err := store.Schedule(t.Context(), []dueq.Item{item("a", "x", past), item("b", "x", past)})
	must(t, err)
	if hook.armed {
		t.Fatal("there was no pipeline")
	}
	for i, queue := range []string{"a", "b"} {
		if n := statsOf(t, store, queue).Totals.Scheduled; n != 1 || outcomes[i].Status != dueq.StatusScheduled {
			t.Errorf("%s: scheduled %d times, %v; want once, scheduled", queue, n, outcomes[i].Status)
		}
	}
}

// Rule 2: who only reads is not refused.
func TestGaps_readers_work_on_a_full_server(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	store := openStore(t, srv.URL(), redisstore.Options{Timeout: 5 * time.Second})
	scheduleAll(t, store, items("q", 3, past, "body"))
	srv.Fill(t)
	if infos, err := store.Get(t.Context(), "q", []string{"t000001:k"}); err != nil || string(infos[0].Body) != "body" {
		t.Errorf("get: got %+v, %v", infos, err)
	}
	if page, err := store.List(t.Context(), dueq.ListQuery{Queue: "q", State: dueq.StateScheduled}); err != nil || len(page.Tasks) != 3 {
		t.Errorf("list: got %d tasks, %v, want 3", len(page.Tasks), err)
	}
	if all, err := store.Stats(t.Context(), "q"); err != nil || all[0].Err != nil || all[0].Scheduled != 3 {
		t.Errorf("stats: got %+v, %v", all, err)
	}
	srv.Relieve(t)
}

// moved is a member in some places, and a call that moves it.
type moved struct {
	name   string
	places []int // keys that have it before
	score  float64
	stays  []int // it must be in one of these, whatever fails
	call   func(ctx context.Context, store dueq.Store, queue string, held *dueq.Task) error
}

func moves() []moved {
	anywhere := []int{keyScheduled, keyActive, keyNext, keyDead}
	waiting := []int{keyScheduled, keyNext}
	claims := func(ctx context.Context, store dueq.Store, queue string, _ *dueq.Task) error {
		_, err := store.Claim(ctx, dueq.ClaimRequest{Queue: queue, Max: 10})
		return err
	}
	schedules := func(ctx context.Context, store dueq.Store, queue string, _ *dueq.Task) error {
		_, err := store.Schedule(ctx, []dueq.Item{item(queue, "x", dueq.In(time.Hour), "new body")})
		return err
	}
	changes := func(op dueq.Op) func(context.Context, dueq.Store, string, *dueq.Task) error {
		return func(ctx context.Context, store dueq.Store, queue string, _ *dueq.Task) error {
			_, err := store.Change(ctx, queue, op, []dueq.Target{{Member: "x:k", When: dueq.In(time.Hour)}})
			return err
		}
	}
	settles := func(v dueq.Verdict) func(context.Context, dueq.Store, string, *dueq.Task) error {
		return func(ctx context.Context, store dueq.Store, queue string, held *dueq.Task) error {
			_, err := store.Settle(ctx, queue, []dueq.Result{{Task: held, Verdict: v, Delay: time.Hour, Err: "why"}})
			return err
		}
	}
	const due, lease, seconds = 1.7e12, 1.7e15 + 7, 1.7e9
	all := []moved{
		{"claim what is due", []int{keyScheduled}, due, anywhere, claims},
		{"claim a bad score", []int{keyScheduled}, seconds, anywhere, claims},
		{"claim after the lease", []int{keyActive}, lease, anywhere, claims},
		{"claim what waited", []int{keyNext}, due, anywhere, claims},
		{"schedule a dead letter", []int{keyDead}, due, anywhere, schedules},
		{"schedule what waits", []int{keyNext}, due, waiting, schedules},
		{"requeue", []int{keyDead}, due, anywhere, changes(dueq.OpRequeue)},
		{"reschedule what waits", []int{keyNext}, due, waiting, changes(dueq.OpReschedule)},
		{"ack of a run scheduled again", []int{keyActive, keyNext}, lease, waiting, settles(dueq.VerdictAck)},
	}
	for v := dueq.VerdictRetry; v <= dueq.VerdictDead; v++ {
		all = append(all, moved{v.String(), []int{keyActive}, lease, anywhere, settles(v)})
	}
	return all
}

// Rule 2: the destination is written before the source is cleared, so a task
// survives an error at any line of a script. A user who may do all but one
// command brings the errors about.
func TestGaps_an_error_at_any_line_leaves_each_task_somewhere(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	sure := openStore(t, srv.URL(), redisstore.Options{Timeout: 10 * time.Second})
	failures := map[string]int{}
	for _, denied := range []string{"zadd", "zrem", "zremrangebyrank", "zremrangebyscore", "hset", "hdel", "hincrby"} {
		must(t, raw.ACLSetUser(t.Context(), "no-"+denied, "on", ">pw", "~*", "&*", "+@all").Err())
		store := openStore(t, "redis://no-"+denied+":pw@"+srv.Addr(), redisstore.Options{Timeout: 10 * time.Second})
		must(t, raw.ACLSetUser(t.Context(), "no-"+denied, "-"+denied).Err())
		for _, priority := range []string{"off", "on"} {
			for _, m := range moves() {
				queue := strings.ReplaceAll(m.name, " ", "_") + ":" + denied + ":" + priority
				_, err := sure.SetSettings(t.Context(), queue, dueq.SettingsPatch{"priority": priority, "retry_jitter": "0%"})
				must(t, err)
				keys := keysOf(queue)
				for _, at := range m.places {
					must(t, raw.ZAdd(t.Context(), keys[at], redis.Z{Score: m.score, Member: "x:k"}).Err())
				}
				must(t, raw.HSet(t.Context(), keys[keyBody], "x:k", "body").Err())
				must(t, raw.HSet(t.Context(), keys[keyTries], "x:k", "1/1").Err())
				must(t, raw.HSet(t.Context(), keys[keyStats], "last", time.Now().UnixMilli(), "grace", 0).Err())
				held := &dueq.Task{Queue: queue, ID: "x", Kind: "k", Due: time.UnixMilli(1_700_000_000_000), Lease: dueq.Lease{Member: "x:k", Token: 7}}
				if err := m.call(t.Context(), store, queue, held); err != nil {
					failures[m.name]++
				}
				there := slices.ContainsFunc(m.stays, func(at int) bool {
					return raw.ZScore(t.Context(), keys[at], "x:k").Err() == nil
				})
				if !there {
					t.Errorf("%s without %s, priority %s: the task is lost", m.name, denied, priority)
				}
			}
		}
	}
	for _, m := range moves() {
		if failures[m.name] < 2 {
			t.Errorf("%s failed %d times: too few to mean anything", m.name, failures[m.name])
		}
	}
}

// Rule 4: bodies travel in calls of about a MiB.
func TestGaps_bodies_of_a_call_are_a_MiB(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	store := openStore(t, srv.URL(), redisstore.Options{Timeout: 10 * time.Second})
	_, err := store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"body_max": "1048576", "delivery": "at_most_once"})
	must(t, err)
	all := items("q", 6, past, strings.Repeat("x", 400<<10))
	calls := func(what string, want int64, call func() error) {
		t.Helper()
		ran := ranScripts(t, srv)
		must(t, call())
		if n := ranScripts(t, srv) - ran; n != want {
			t.Errorf("%s: %d scripts, want %d", what, n, want)
		}
	}
	calls("schedule", 3, func() error {
		_, err := store.Schedule(t.Context(), all)
		return err
	})
	var members []string
	for _, it := range all {
		members = append(members, it.Task.Member())
	}
	calls("get", 2, func() error { // the body that passes the limit comes along
		infos, err := store.Get(t.Context(), "q", members)
		if err == nil && len(infos) != 6 {
			err = fmt.Errorf("got %d infos", len(infos))
		}
		return err
	})
	var results []dueq.Result
	calls("claim", 3, func() error {
		for range 3 {
			for _, task := range claim(t, store, "q", 10).Tasks {
				results = append(results, dueq.Result{Task: task, Verdict: dueq.VerdictAgain})
			}
		}
		return nil
	})
	calls("settle", 3, func() error {
		_, err := store.Settle(t.Context(), "q", results)
		return err
	})
	if st := statsOf(t, store, "q"); st.Scheduled != 6 || st.Totals.Again != 6 {
		t.Errorf("got %+v, want 6 scheduled again", st)
	}
}

// Rule 4: where a thousand tasks would keep the server from others for long,
// they take several scripts.
func TestGaps_calls_at_their_bound_are_several_scripts(t *testing.T) {
	t.Parallel()
	const n = dueq.MaxItems
	srv := redistest.Start(t)
	store := openStore(t, srv.URL(), redisstore.Options{Timeout: 10 * time.Second})
	for priority, least := range map[string]int64{"off": 2, "on": 5} { // looking for all spellings costs more
		queue := "q:" + priority
		_, err := store.SetSettings(t.Context(), queue, dueq.SettingsPatch{"priority": priority})
		must(t, err)
		all := items(queue, n, past, "b")
		var members []string
		var targets []dueq.Target
		for _, it := range all {
			members = append(members, it.Task.Member())
			targets = append(targets, dueq.Target{Member: it.Task.Member(), When: dueq.In(0)})
		}
		several := func(what string, call func() (int, error)) {
			t.Helper()
			ran := ranScripts(t, srv)
			got, err := call()
			must(t, err)
			if ran = ranScripts(t, srv) - ran; got != n || ran < least {
				t.Errorf("%s, priority %s: %d answers by %d scripts, want %d by at least %d", what, priority, got, ran, n, least)
			}
		}
		done := func(outcomes []dueq.Outcome, err error) (int, error) {
			return len(slices.DeleteFunc(outcomes, func(o dueq.Outcome) bool { return o.Status == dueq.StatusUnknown })), err
		}
		several("schedule", func() (int, error) { return done(store.Schedule(t.Context(), all)) })
		several("change", func() (int, error) { return done(store.Change(t.Context(), queue, dueq.OpReschedule, targets)) })
		several("get", func() (int, error) {
			infos, err := store.Get(t.Context(), queue, members)
			return len(infos), err
		})
		several("list", func() (int, error) {
			page, err := store.List(t.Context(), dueq.ListQuery{Queue: queue, State: dueq.StateScheduled, Limit: n})
			return len(page.Tasks), err
		})
		var results []dueq.Result
		for _, task := range claim(t, store, queue, n).Tasks {
			results = append(results, dueq.Result{Task: task, Verdict: dueq.VerdictRetry, Delay: time.Hour})
		}
		several("settle", func() (int, error) { return done(store.Settle(t.Context(), queue, results)) })
	}
}

// Rule 5: other processes need not wait for the next read of versions.
func TestGaps_changed_settings_are_published(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	h := listen(t, raw)
	store := openStore(t, srv.URL(), redisstore.Options{})
	_, err := store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"paused": "on"})
	must(t, err)
	if got := h.since(t, raw); !slices.Equal(got, []string{"0 q"}) {
		t.Errorf("published %q, want the hint of due 0", got)
	}
}

// Rule 6: nothing strands behind an active entry that vanished.
func TestGaps_what_waits_behind_a_vanished_run_returns(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.WithClock(time.UnixMilli(1_800_000_000_000)))
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), redisstore.Options{Timeout: 10 * time.Second})
	for _, again := range []bool{false, true} {
		queue := fmt.Sprint("q:", again)
		keys := keysOf(queue)
		due := srv.Now()
		scheduleAll(t, store, []dueq.Item{item(queue, "x", past)})
		claim(t, store, queue, 1)
		scheduleAll(t, store, []dueq.Item{item(queue, "x", dueq.At(due), "again")})
		claim(t, store, queue, 1)
		if raw.ZScore(t.Context(), keys[keyNext], "x:k").Val() != float64(due.UnixMilli()) {
			t.Fatal("the task is not parked")
		}
		if again {
			due = due.Add(time.Hour)
			must(t, raw.ZAdd(t.Context(), keys[keyScheduled], redis.Z{Score: float64(due.UnixMilli()), Member: "x:k"}).Err())
		}
		must(t, raw.Del(t.Context(), keys[keyActive]).Err())
		if got := claim(t, store, queue, 1).Tasks; len(got) > 0 == again {
			t.Errorf("scheduled once more %v: claimed %d tasks", again, len(got))
		}
		if n := raw.ZCard(t.Context(), keys[keyNext]).Val(); n != 0 {
			t.Errorf("scheduled once more %v: %d strand", again, n)
		}
		if got := raw.ZScore(t.Context(), keys[keyScheduled], "x:k").Val(); again && got != float64(due.UnixMilli()) {
			t.Errorf("due is %.0f, want that of the plain ZADD, %d", got, due.UnixMilli())
		}
	}
}

// Rule 7: numbers begin at the clock's microseconds when the counter is gone,
// and end before the seconds.
func TestGaps_delivery_numbers_differ_after_the_counter_is_lost_and_wrap(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.WithClock(time.UnixMicro(1_800_000_000_123_456)))
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), redisstore.Options{Timeout: 10 * time.Second})
	keys := keysOf("q")
	next := func(what string, number int64) {
		t.Helper()
		scheduleAll(t, store, []dueq.Item{item("q", "x", past)})
		task := claim(t, store, "q", 1).Tasks[0]
		ends := srv.Now().Add(30*time.Second).Unix() + 1
		lease := raw.ZScore(t.Context(), keys[keyActive], "x:k").Val()
		if int64(lease) != ends*1_000_000+number {
			t.Errorf("%s: the lease is %.0f, want %d and %06d", what, lease, ends, number)
		}
		outcomes, err := store.Settle(t.Context(), "q", []dueq.Result{{Task: task, Verdict: dueq.VerdictDead}})
		must(t, err)
		if outcomes[0].Status != dueq.StatusDone {
			t.Errorf("%s: settle: got %v, want done", what, outcomes[0].Status)
		}
	}
	next("the first claim", 123457)
	next("the second claim", 123458)
	must(t, raw.Del(t.Context(), keys[keyStats]).Err())
	srv.SetTime(time.UnixMicro(1_800_000_001_500_000))
	next("after the counter was lost", 500001)
	must(t, raw.HSet(t.Context(), keys[keyStats], "number", 999_999).Err())
	next("after the last number", 0)
}

// Rule 10: who is late only by a clock that jumped is served all the same.
func TestGaps_the_first_call_after_a_jump_of_the_clock_is_made(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.WithClock(time.UnixMilli(1_800_000_000_000)))
	store := openStore(t, srv.URL(), redisstore.Options{Timeout: 5 * time.Second})
	scheduleAll(t, store, []dueq.Item{item("q", "held", past)})
	held := claim(t, store, "q", 1).Tasks[0]
	for name, call := range timedCalls("q", held) {
		srv.Advance(time.Hour)
		if err := call(t.Context(), store); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	srv.Advance(time.Hour)
	_, err := store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"batch": "7"})
	must(t, err)
}
