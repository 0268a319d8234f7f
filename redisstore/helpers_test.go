package redisstore_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

const (
	slack = 2 * time.Second // a busy machine may be this late
	busy  = 8 * time.Second // … with a thousand calls at once
)

// patient is for stores whose time-out is not under test.
var patient = redisstore.Options{Timeout: 10 * time.Second}

// openStore opens a store on a URL or an address, closed when the test ends.
func openStore(t *testing.T, url string, opts redisstore.Options) *redisstore.Store {
	t.Helper()
	if !strings.Contains(url, "://") {
		url = "redis://" + url
	}
	store, err := redisstore.Open(url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// eventually waits until something holds.
func eventually(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	end := time.Now().Add(within)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
		<-tick.C
	}
}

// pass lets time pass while something else is under test; it stands for no
// event that could be waited for.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// ledger counts how often each id was handled.

type ledger struct {
	mu    sync.Mutex // guards times and attempts
	times map[string]int
	when  map[string]time.Time // of the last time
	tries map[string]int       // attempt of the last time
}

func newLedger() *ledger {
	return &ledger{times: map[string]int{}, when: map[string]time.Time{}, tries: map[string]int{}}
}

// Handle implements dueq.Handler.
func (l *ledger) Handle(_ context.Context, task *dueq.Task) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := task.Queue + "/" + task.ID
	l.times[id]++
	l.when[id], l.tries[id] = time.Now(), task.Attempt
	return nil
}

func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.times)
}

// of tells how often an id of a queue was handled, and when last.
func (l *ledger) of(queue, id string) (int, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.times[queue+"/"+id], l.when[queue+"/"+id]
}

// missing lists those of the ids of a queue that were never handled.
func (l *ledger) missing(queue string, ids []string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return l.times[queue+"/"+id] > 0 })
}

// repeated lists ids that were handled more than once.
func (l *ledger) repeated() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for id, n := range l.times {
		if n > 1 {
			ids = append(ids, id)
		}
	}
	return ids
}

// logCounter is a log that counts its lines and keeps the last ones.

type logCounter struct {
	mu    sync.Mutex // guards lines and tail
	lines int
	tail  []string
}

func (c *logCounter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines++
	c.tail = append(c.tail[max(0, len(c.tail)-20):], string(p))
	return len(p), nil
}

func (c *logCounter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines
}

func (c *logCounter) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.tail, "")
}

func (c *logCounter) logger() *slog.Logger { return slog.New(slog.NewTextHandler(c, nil)) }

var quietLog = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError + 1}))

// startWorker runs a worker over queues until the test ends or the returned

// function is called, which fails the test if the worker did not end cleanly.
func startWorker(t *testing.T, store dueq.Store, opts dueq.WorkerOptions, h dueq.Handler, queues ...string) (stop func()) {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = quietLog
	}
	w := dueq.NewWorker(store, opts)
	for _, queue := range queues {
		w.Handle(queue, dueq.AnyKind, h)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("worker: %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("worker did not stop within 30 s")
		}
	})
	t.Cleanup(stop)
	return stop
}

func statsOf(t *testing.T, store dueq.Store, queue string) dueq.QueueStats {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	all, err := store.Stats(ctx, queue)
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// endedRuns is how many claimed tasks ended in some way.
func endedRuns(n dueq.Totals) int64 {
	return n.Acked + n.Retried + n.Again + n.Released + n.Died + n.Ended + n.Stopped + n.Superseded
}

// past is due at once: what is due now is so in the next millisecond.

var past = dueq.At(time.UnixMilli(1_700_000_000_000))

func item(queue, id string, when dueq.When, body ...string) dueq.Item {
	it := dueq.Item{Queue: queue, Task: dueq.Task{ID: id, Kind: "k"}, When: when}
	if len(body) > 0 {
		it.Task.Body = []byte(body[0])
	}
	return it
}

// items are n tasks named by number.
func items(queue string, n int, when dueq.When, body ...string) []dueq.Item {
	all := make([]dueq.Item, n)
	for i := range all {
		all[i] = item(queue, fmt.Sprintf("t%06d", i), when, body...)
	}
	return all
}

// scheduleAll schedules items and expects each to be accepted.
func scheduleAll(t *testing.T, store dueq.Store, all []dueq.Item) {
	t.Helper()
	outcomes, err := dueq.NewClient(store, dueq.ClientOptions{MemberMax: dueq.MemberMax}).ScheduleAll(t.Context(), all)
	must(t, err)
	for i, o := range outcomes {
		if o.Error() != nil || o.Status == dueq.StatusUnknown {
			t.Fatalf("item %d: %v (%v)", i, o.Status, o.Err)
		}
	}
}

func claim(t *testing.T, store dueq.Store, queue string, n int) dueq.Claim {
	t.Helper()
	c, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: queue, Max: n})
	must(t, err)
	return c
}

func wantUnavailable(t *testing.T, what string, err error, text string) {
	t.Helper()
	if !isUnavailable(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got error %v, want ErrUnavailable naming %q", what, err, text)
	}
}

// usedCPU is what a server has used of the processor.
func usedCPU(t *testing.T, raw *redis.Client) time.Duration {
	t.Helper()
	info, err := raw.InfoMap(t.Context(), "cpu").Result()
	must(t, err)
	var sum float64
	for _, field := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		seconds, err := strconv.ParseFloat(info["CPU"][field], 64)
		must(t, err)
		sum += seconds
	}
	return time.Duration(sum * float64(time.Second))
}

// startQuick starts a server that logs scripts of over 10 ms, and lets it go

// first where that is allowed, since a busy machine makes any script slow.
func startQuick(t *testing.T) *redistest.Server {
	t.Helper()
	srv := redistest.Start(t, redistest.WithConfig("slowlog-log-slower-than", "10000"), redistest.WithConfig("slowlog-max-len", "10000"))
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, srv.PID(), -15)
	return srv
}

// slowScripts checks the slow log of such a server. The machine takes the

// processor from a quick script now and then, so a few of many calls may be

// there; a script that is slow by itself is there each time.
func slowScripts(t *testing.T, raw *redis.Client, srv *redistest.Server) {
	t.Helper()
	entries, err := raw.SlowLogGet(t.Context(), -1).Result()
	must(t, err)
	var slow []string
	most := time.Duration(0)
	for _, e := range entries {
		if name := strings.ToLower(e.Args[0]); name == "evalsha" || name == "eval" {
			most = max(most, e.Duration)
			slow = append(slow, fmt.Sprintf("%v: %.8s, %s", e.Duration, e.Args[1], e.Args[len(e.Args)-1]))
		}
	}
	calls := srv.Commands(t)["evalsha"]
	info, err := raw.InfoMap(t.Context(), "commandstats").Result()
	must(t, err)
	t.Logf("EVALSHA: %s; slow log has %d over 10 ms, longest %v", info["Commandstats"]["cmdstat_evalsha"], len(slow), most)
	if allowed := 3 + int(calls/5); len(slow) > allowed {
		t.Errorf("%d of %d scripts took over 10 ms, want at most %d:\n%s", len(slow), calls, allowed, strings.Join(slow, "\n"))
	}
}

// labelled names this goroutine, and those it will start, for goroutines.
func labelled(t *testing.T) {
	ctx := pprof.WithLabels(t.Context(), pprof.Labels("test", t.Name()))
	pprof.SetGoroutineLabels(ctx)
}

// goroutines counts those that a labelled test started, its own not counted,

// and shows their stacks. Other tests running meanwhile do not matter.
func goroutines(t *testing.T) (int, string) {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		t.Fatal(err)
	}
	n, stacks := -1, ""
	for _, group := range strings.Split(b.String(), "\n\n") {
		if !strings.Contains(group, strconv.Quote(t.Name())) {
			continue
		}
		var count int
		if _, err := fmt.Sscanf(group[strings.LastIndex(group[:strings.Index(group, " @ ")], "\n")+1:], "%d @", &count); err != nil {
			t.Fatalf("goroutine profile: %v in %q", err, group)
		}
		n += count
		stacks += group + "\n\n"
	}
	return n, stacks
}

func settled(t *testing.T, within time.Duration, baseline int) {
	t.Helper()
	n, stacks := goroutines(t)
	for end := time.Now().Add(within); n > baseline; n, stacks = goroutines(t) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, want the %d of before; after %v they are\n%s", n, baseline, within, stacks)
		}
		pass(t, 20*time.Millisecond)
	}
}

// monitor records the commands that a server runs.

type monitor struct {
	conn  net.Conn
	lines chan monitored
}

// monitored is one line of MONITOR: the time, whether a script ran it, and the

// command.

type monitored struct {
	lua  bool
	args []string
}

func (m monitored) name() string { return strings.ToLower(m.args[0]) }

func startMonitor(t *testing.T, srv *redistest.Server) *monitor {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Addr())
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	_, err = io.WriteString(conn, "MONITOR\r\n")
	must(t, err)
	in := bufio.NewReaderSize(conn, 1<<20)
	if ok, err := in.ReadString('\n'); err != nil || ok != "+OK\r\n" {
		t.Fatalf("MONITOR: got %q, %v", ok, err)
	}
	m := &monitor{conn: conn, lines: make(chan monitored, 1<<20)}
	go func() {
		defer close(m.lines)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			m.lines <- parseMonitored(line)
		}
	}()
	return m
}

// until returns the commands seen up to an ECHO of the mark.
func (m *monitor) until(t *testing.T, raw *redis.Client, mark string) []monitored {
	t.Helper()
	must(t, raw.Echo(t.Context(), mark).Err())
	var all []monitored
	timeout := time.After(30 * time.Second)
	for {
		select {
		case line, ok := <-m.lines:
			if !ok {
				t.Fatal("MONITOR ended")
			}
			if line.name() == "echo" && line.args[1] == mark {
				return all
			}
			all = append(all, line)
		case <-timeout:
			t.Fatal("MONITOR did not show the mark")
		}
	}
}

// parseMonitored reads +1717.123456 [0 lua] "zadd" "key" …
func parseMonitored(line string) monitored {
	_, rest, _ := strings.Cut(line, "[")
	source, rest, _ := strings.Cut(rest, "] ")
	m := monitored{lua: strings.HasSuffix(source, " lua")}
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			panic(fmt.Sprintf("MONITOR line %q: %v", line, err))
		}
		arg, _ := strconv.Unquote(quoted)
		m.args = append(m.args, arg)
		rest = rest[len(quoted):]
	}
	return m
}

// proxy stands between clients and a server. It can hold everything back, add

// latency, and count.

// freeze holds back what is sent from now on; thaw lets it go on.

// cut ends all connections.
