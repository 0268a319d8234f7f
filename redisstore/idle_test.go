package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

func TestIdle_one_worker_of_one_queue_sends_few_commands(t *testing.T) {
	t.Parallel()
	idle(t, 1, 3)
}

func TestIdle_one_worker_of_a_hundred_queues_makes_few_round_trips(t *testing.T) {
	t.Parallel()
	idle(t, 100, 210)
}

// idle measures a worker with nothing to do until the next hour.
func idle(t *testing.T, many int, perSecond float64) {
	srv := redistest.Start(t)
	raw := srv.Client(t)
	proxy := startProxy(t, srv.Addr(), 0)
	direct := openStore(t, srv.URL(), patient)
	store := openStore(t, proxy.addr(), patient)
	queues := make([]string, many)
	for i := range queues {
		queues[i] = fmt.Sprintf("idle:%d", i)
		scheduleAll(t, direct, []dueq.Item{item(queues[i], "later", dueq.In(time.Hour))})
	}
	done := newLedger()
	startWorker(t, store, dueq.WorkerOptions{}, done, queues...)
	quieten(t, srv, int64(2*many))

	const window = 5 * time.Second
	m := startMonitor(t, srv)
	turns, began := proxy.turns.Load(), time.Now()
	pass(t, window)
	turns = proxy.turns.Load() - turns
	commands, scripts := 0, 0
	for _, line := range m.until(t, raw, "the end") {
		if line.lua {
			continue
		}
		commands++
		if line.name() == "evalsha" {
			scripts++
		}
	}
	seconds := time.Since(began).Seconds()
	t.Logf("%d queues: %.1f commands/s (%.1f of them scripts), %.1f round trips/s", many,
		float64(commands)/seconds, float64(scripts)/seconds, float64(turns)/seconds)
	if got := float64(commands) / seconds; got > perSecond || got == 0 {
		t.Errorf("%.1f commands/s, want at most %.0f and some", got, perSecond)
	}
	if got := float64(scripts) / seconds / float64(many); got < 0.7 {
		t.Errorf("%.2f looks at each queue a second, want one: a plain ZADD tells nobody", got)
	}
	if got := float64(turns) / seconds; got > 2.2 { // one of five seconds may have one more
		t.Errorf("%.1f round trips/s, want at most 2", got)
	}
	// It is asleep, not dead.
	scheduleAll(t, direct, []dueq.Item{item(queues[many-1], "now", past)})
	eventually(t, time.Second+slack, "a sleeping worker is woken", func() bool { return done.size() == 1 })
}

// quieten waits until a server is asked for no more than so many scripts a
// second.
func quieten(t *testing.T, srv *redistest.Server, most int64) {
	t.Helper()
	last, at := ranScripts(t, srv), time.Now()
	eventually(t, 20*time.Second, "the worker is asleep", func() bool {
		if time.Since(at) < time.Second {
			return false
		}
		now := ranScripts(t, srv)
		calm := now-last <= most
		last, at = now, time.Now()
		return calm
	})
}

// While the server is away a worker tries now and then, says so now and then,
// and is back soon.
func TestIdle_a_server_that_is_down_costs_little(t *testing.T) {
	t.Parallel()
	// As Open makes it, but for the counting; the address refuses connections.
	refused := func(t *testing.T, srv *redistest.Server) (*redisstore.Store, func() int64) {
		var dials atomic.Int64
		client := redis.NewClient(&redis.Options{
			Addr: srv.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DialTimeout: time.Second,
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials.Add(1)
				return new(net.Dialer).DialContext(ctx, network, addr)
			},
		})
		t.Cleanup(func() { _ = client.Close() })
		store, err := redisstore.New(client, redisstore.Options{})
		must(t, err)
		return store, dials.Load
	}
	// A proxy accepts them and hangs up.
	hungUp := func(t *testing.T, srv *redistest.Server) (*redisstore.Store, func() int64) {
		proxy := startProxy(t, srv.Addr(), 0)
		return openStore(t, proxy.addr(), redisstore.Options{}), proxy.accepted.Load
	}
	t.Run("1_queue_refused", func(t *testing.T) { t.Parallel(); down(t, 1, refused) })
	t.Run("100_queues_refused", func(t *testing.T) { t.Parallel(); down(t, 100, refused) })
	t.Run("100_queues_hung_up", func(t *testing.T) { t.Parallel(); down(t, 100, hungUp) })
}

func down(t *testing.T, many int, open func(*testing.T, *redistest.Server) (*redisstore.Store, func() int64)) {
	srv := redistest.Start(t, redistest.WithAOF())
	store, dials := open(t, srv)
	done, log := newLedger(), &logCounter{}
	queues := make([]string, many)
	for i := range queues {
		queues[i] = fmt.Sprintf("down:%d", i)
		scheduleAll(t, store, []dueq.Item{item(queues[i], "first", past)})
	}
	startWorker(t, store, dueq.WorkerOptions{Logger: log.logger()}, done, queues...)
	eventually(t, 10*time.Second, "the worker works", func() bool { return done.size() == many })

	srv.Kill()
	eventually(t, 5*time.Second, "the worker noticed", func() bool { return strings.Contains(log.String(), "unavailable") })
	pass(t, 3*time.Second) // every queue has to find out
	const window = 3 * time.Second
	before, lines, began := dials(), log.count(), time.Now()
	pass(t, window)
	seconds := time.Since(began).Seconds()
	attempts := float64(dials()-before) / seconds
	logged := float64(log.count()-lines) / seconds
	t.Logf("%d queues, server down: %.1f connection attempts/s, %.1f log lines/s", many, attempts, logged)
	if attempts > 20 || attempts == 0 {
		t.Errorf("%.1f connection attempts/s, want some and at most 20", attempts)
	}
	if logged > 1 {
		t.Errorf("%.1f log lines/s, want at most 1:\n%s", logged, log)
	}

	srv.Restart()
	back := time.Now()
	for end := back.Add(10 * time.Second); ; pass(t, 20*time.Millisecond) {
		_, err := store.Schedule(t.Context(), []dueq.Item{item(queues[0], "second", past)})
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no schedule within 10 s after the server was back: %v", err)
		}
	}
	eventually(t, 10*time.Second, "the first delivery after the server was back", func() bool { return done.size() == many+1 })
	took := time.Since(back)
	t.Logf("first delivery %v after the server was back", took)
	if took > 5*time.Second {
		t.Errorf("first delivery after %v, want at most 5 s", took)
	}
}

// A process of its own, so that no other test's work is counted.
func TestIdle_the_process_burns_no_time_while_the_server_is_down(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	log := newDeliveries()
	p := log.start(t, 1, srv.URL(), "a", "b", "c", "d")
	eventually(t, 30*time.Second, "the worker is ready", func() bool { return log.isReady(p) })
	burn := func(what string, most float64) {
		const window = 3 * time.Second
		before, began := cpuTime(t, p.PID()), time.Now()
		pass(t, window)
		share := float64(cpuTime(t, p.PID())-before) / float64(time.Since(began))
		t.Logf("%s: %.1f %% of a core", what, 100*share)
		if share > most {
			t.Errorf("%s: %.1f %% of a core, want at most %.0f %%", what, 100*share, 100*most)
		}
	}
	quieten(t, srv, 8)
	burn("idle", 0.05)
	srv.Kill()
	burn("server down", 0.10)
}

// cpuTime is what a process has used of the processor.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(field, 10, 64)
		must(t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

type hints struct{ sub *redis.PubSub }

func listen(t *testing.T, raw *redis.Client) *hints {
	t.Helper()
	sub := raw.Subscribe(t.Context(), redisstore.DefaultPrefix+"@wake")
	t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &hints{sub}
}

func (h *hints) since(t *testing.T, raw *redis.Client) []string {
	t.Helper()
	must(t, raw.Publish(t.Context(), redisstore.DefaultPrefix+"@wake", "mark").Err())
	var got []string
	for {
		m, err := h.sub.ReceiveMessage(t.Context())
		must(t, err)
		if m.Payload == "mark" {
			return got
		}
		got = append(got, m.Payload)
	}
}

func TestRules_a_new_head_is_published_once(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.WithClock(time.UnixMilli(1_800_000_000_000)))
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), redisstore.Options{Timeout: 10 * time.Second})
	h := listen(t, raw)
	const queue = "hint"
	expect := func(what string, want ...string) {
		t.Helper()
		if got := h.since(t, raw); !slices.Equal(got, want) {
			t.Errorf("%s: published %q, want %q", what, got, want)
		}
	}
	in := func(d time.Duration) string { return fmt.Sprintf("%d %s", srv.Now().Add(d).UnixMilli(), queue) }
	do := func(all ...dueq.Item) { t.Helper(); scheduleAll(t, store, all) }
	change := func(op dueq.Op, id string, when dueq.When) {
		t.Helper()
		_, err := store.Change(t.Context(), queue, op, []dueq.Target{{Member: id + ":k", When: when}})
		must(t, err)
	}
	end := func(task *dueq.Task, v dueq.Verdict, d time.Duration) {
		t.Helper()
		_, err := store.Settle(t.Context(), queue, []dueq.Result{{Task: task, Verdict: v, Delay: d}})
		must(t, err)
	}

	do(item(queue, "a", dueq.In(time.Hour)))
	expect("the first task", in(time.Hour))
	do(item(queue, "b", dueq.In(2*time.Hour)))
	expect("a later task")
	do(item(queue, "c", dueq.In(time.Hour)))
	expect("a task due with the head")
	do(item(queue, "d", dueq.In(30*time.Minute)), item(queue, "e", dueq.In(10*time.Minute)), item(queue, "f", dueq.In(20*time.Minute)))
	expect("three earlier tasks in a call", in(10*time.Minute))
	change(dueq.OpReschedule, "b", dueq.In(3*time.Hour))
	expect("a reschedule behind the head")
	change(dueq.OpReschedule, "b", dueq.In(time.Minute))
	expect("a reschedule before the head", in(time.Minute))
	change(dueq.OpCancel, "b", dueq.When{})
	expect("a cancelled head")
	do(item(queue, "now", dueq.In(0)))
	expect("a task due now", in(0))
	task := claim(t, store, queue, 1).Tasks[0]
	expect("a claim")
	end(task, dueq.VerdictRetry, time.Second)
	expect("a retry", in(time.Second))
	srv.Advance(time.Second)
	task = claim(t, store, queue, 1).Tasks[0]
	end(task, dueq.VerdictAgain, 2*time.Hour)
	expect("again, behind the head")
	do(item(queue, "x", dueq.In(0)))
	task = claim(t, store, queue, 1).Tasks[0]
	h.since(t, raw)
	end(task, dueq.VerdictRelease, 0)
	expect("a release", in(0))
	task = claim(t, store, queue, 1).Tasks[0]
	end(task, dueq.VerdictDead, 0)
	expect("a dead letter")
	change(dueq.OpRequeue, "x", dueq.In(0))
	expect("a requeue", in(0))
	task = claim(t, store, queue, 1).Tasks[0]
	do(item(queue, "x", dueq.In(0)))
	expect("a task scheduled while it runs", in(0))
	claim(t, store, queue, 1)
	expect("a claim that parks it")
	end(task, dueq.VerdictAck, 0)
	expect("the end of the run it waited for", in(0))

	do(item(queue, "y", dueq.In(0)))
	claim(t, store, queue, 2) // both leases end, the claim that notices takes one of the tasks
	h.since(t, raw)
	must(t, raw.HSet(t.Context(), keysOf(queue)[keyStats], "grace", 0).Err())
	for range 31 {
		srv.Advance(time.Second)
		claim(t, store, queue, 1)
	}
	if got := h.since(t, raw); len(got) != 1 {
		t.Errorf("a lease that ended: published %q, want one hint", got)
	}
}

func TestRules_a_denied_publish_is_no_error(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	must(t, srv.Client(t).ACLSetUser(t.Context(), "mute", "on", ">pw", "~delay:*", "~{delay:*", "+@all", "resetchannels").Err())
	store := openStore(t, "redis://mute:pw@"+srv.Addr(), patient)
	o, err := store.Schedule(t.Context(), []dueq.Item{item("mute", "a", past, "body")})
	if err != nil || o[0].Status != dueq.StatusScheduled {
		t.Fatalf("schedule: got %v, %v", o, err)
	}
	task := claim(t, store, "mute", 1).Tasks[0]
	o, err = store.Settle(t.Context(), "mute", []dueq.Result{{Task: task, Verdict: dueq.VerdictRetry}})
	if err != nil || o[0].Status != dueq.StatusDone {
		t.Fatalf("settle: got %v, %v", o, err)
	}
	if _, err := store.SetSettings(t.Context(), "mute", dueq.SettingsPatch{"batch": "5"}); err != nil {
		t.Errorf("settings: got %v", err)
	}
}

func TestRules_a_plain_ZADD_is_found_by_a_sleeping_worker(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), patient)
	type run struct {
		id    string
		at    time.Time
		drift time.Duration
	}
	runs := make(chan run, 10)
	started := dueq.Observer{Started: func(task *dueq.Task, drift time.Duration) { runs <- run{task.ID, time.Now(), drift} }}
	startWorker(t, store, dueq.WorkerOptions{Observer: started}, newLedger(), "zadd")
	quieten(t, srv, 2)
	for id, delay := range map[string]time.Duration{"now": 0, "soon": 300 * time.Millisecond, "later": 1700 * time.Millisecond} {
		now, err := raw.Time(t.Context()).Result()
		must(t, err)
		due := now.Add(delay)
		must(t, raw.ZAdd(t.Context(), redisstore.DefaultPrefix+"zadd", redis.Z{Score: float64(due.UnixMicro()) / 1000, Member: id + ":k"}).Err())
		select {
		case r := <-runs:
			late := r.at.Sub(due)
			t.Logf("due in %v: started %v after it was due, drift %v", delay, late, r.drift)
			if r.id != id || r.drift < 0 || late < 0 || late > time.Second+slack {
				t.Errorf("%s ran %v after its due time (drift %v), want 0 to 1 s", r.id, late, r.drift)
			}
		case <-time.After(delay + time.Second + 2*slack):
			t.Fatalf("%s was not found", id)
		}
		quieten(t, srv, 2)
	}
}
