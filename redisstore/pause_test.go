package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// failedCall is a schedule whose caller was told that it failed.
type failedCall struct {
	id         string
	began, end time.Time
}

// A server that stops answering for 10 s, under load and with
// idle consumers.
func TestPause_ten_silent_seconds_lose_nothing_and_leave_nothing_behind(t *testing.T) {
	t.Parallel()
	const (
		silence  = 10 * time.Second
		timeout  = time.Second
		idlers   = 20
		strayers = 5
	)
	srv := redistest.Start(t)
	raw := srv.Client(t)
	labelled(t)
	ctx := t.Context()

	// Load: producers and two workers on one queue.
	loadStore := openStore(t, srv.URL(), redisstore.Options{})
	done := newLedger()
	var claims sync.Map // began → error
	received := newCounter()
	observer := dueq.Observer{
		Claimed: func(queue string, c dueq.Claim) { received.add(queue, len(c.Tasks)) },
		Call: func(op, queue string, _ int, took time.Duration, err error) {
			if op == "claim" && err != nil {
				claims.Store(time.Now().Add(-took), err)
			}
		},
	}
	for range 2 {
		startWorker(t, openStore(t, srv.URL(), redisstore.Options{}), dueq.WorkerOptions{Observer: observer}, done, "load")
	}
	var mu sync.Mutex
	var failed []failedCall
	var stored []string
	producing, stopProducing := context.WithCancel(ctx)
	var group sync.WaitGroup
	for n := range 4 {
		group.Go(func() {
			client := dueq.NewClient(loadStore, dueq.ClientOptions{})
			for i := 0; producing.Err() == nil; i++ {
				id := fmt.Sprintf("%d-%d", n, i)
				began := time.Now()
				_, err := client.Schedule(ctx, "load", dueq.Task{ID: id, Body: []byte("b")}, dueq.In(0))
				mu.Lock()
				if err != nil {
					failed = append(failed, failedCall{id, began, time.Now()})
				} else {
					stored = append(stored, id)
				}
				mu.Unlock()
				pass(t, 2*time.Millisecond)
			}
		})
	}
	// Consumers with nothing to do until the middle of the silence.
	var queues []string
	for i := range idlers {
		queue := fmt.Sprintf("idle:%d", i)
		queues = append(queues, queue)
		startWorker(t, openStore(t, srv.URL(), redisstore.Options{}), dueq.WorkerOptions{Observer: observer}, done, queue)
	}
	// Stores that will claim and schedule on queues where nobody else does.
	var strays []*redisstore.Store
	for range strayers {
		strays = append(strays, openStore(t, srv.URL(), redisstore.Options{}))
	}
	scheduleAll(t, loadStore, items("stray", 1000, past))
	eventually(t, 10*time.Second, "load is handled", func() bool { return done.size() > 100 })
	// A connection each, and what grows with the load is there.
	connections := func() int64 {
		info, err := raw.InfoMap(ctx, "clients").Result()
		must(t, err)
		var n int64
		_, err = fmt.Sscan(info["Clients"]["connected_clients"], &n)
		must(t, err)
		return n
	}
	pass(t, 500*time.Millisecond)
	baseline, _ := goroutines(t)
	connected := connections()
	var idle []dueq.Item
	for _, queue := range queues {
		idle = append(idle, item(queue, "due", dueq.In(silence/2)))
	}
	scheduleAll(t, loadStore, idle)

	pausing := time.Now()
	srv.Pause()
	paused := time.Now()
	var direct sync.WaitGroup
	for i, store := range strays {
		direct.Go(func() {
			for time.Since(paused) < silence/2 {
				began := time.Now()
				_, err := store.Claim(ctx, dueq.ClaimRequest{Queue: "stray", Max: 100})
				tookAbout(t, "claim", began, timeout, err)
				began = time.Now()
				_, err = store.Schedule(ctx, []dueq.Item{item("stray:new", fmt.Sprint(i), dueq.In(0))})
				tookAbout(t, "schedule", began, timeout, err)
				began = time.Now()
				_, err = store.Stats(ctx, "stray")
				tookAbout(t, "stats", began, timeout, err)
			}
		})
	}
	pass(t, silence)
	direct.Wait()
	resuming := time.Now()
	srv.Resume()
	resumed := time.Now()

	eventually(t, 10*time.Second, "every overdue task of idle consumers is handled", func() bool {
		for _, queue := range queues {
			if n, _ := done.of(queue, "due"); n == 0 {
				return false
			}
		}
		return true
	})
	t.Logf("20 idle consumers had their overdue tasks %v after the silence", time.Since(resumed))
	pass(t, time.Second-time.Since(resumed)) // after a second nothing may come late any more
	stopProducing()
	group.Wait()
	// What was asked for while it was silent did not happen after all.
	if st := statsOf(t, loadStore, "stray"); st.Active != 0 || st.Totals.Claimed != 0 || st.Scheduled != 1000 {
		t.Errorf("claims that timed out leased tasks to nobody: %+v", st)
	}
	if st := statsOf(t, loadStore, "stray:new"); st.Scheduled != 0 || st.Totals.Scheduled != 0 {
		t.Errorf("%d tasks are stored whose callers were told that they failed", st.Scheduled)
	}
	during := 0
	for _, call := range failed {
		if call.began.Before(paused) || call.end.After(resuming) {
			continue // it may have run before the silence, or in time after it
		}
		during++
		if n, _ := done.of("load", call.id); n > 0 {
			t.Errorf("%s was handled, but its caller was told in the silence that it failed", call.id)
		}
	}
	inFlight := 0 // claims that were under way when the server stopped, and may have run
	claims.Range(func(began, _ any) bool {
		if began.(time.Time).Before(paused) && began.(time.Time).After(pausing.Add(-timeout)) {
			inFlight++
		}
		return true
	})
	var lost int64 // claimed, but no worker was told
	eventually(t, 10*time.Second, "all leases that a worker knows are settled, and nothing is scheduled", func() bool {
		st := statsOf(t, loadStore, "load")
		lost = st.Totals.Claimed - received.of("load")
		if st.Totals.Ended != 0 {
			t.Fatalf("%d leases ended", st.Totals.Ended)
		}
		return st.Scheduled == 0 && st.Active == max(lost, 0)
	})
	if left := done.missing("load", stored); int64(len(left)) > lost {
		t.Errorf("acknowledged but not handled: %.10q, and only %d tasks are leased to nobody", left, lost)
	}
	if lost > int64(100*inFlight) {
		t.Errorf("%d tasks are leased to nobody, but only %d claims were under way when the server stopped", lost, inFlight)
	}
	for _, queue := range queues {
		if st := statsOf(t, loadStore, queue); st.Active != 0 || st.Totals.Ended != 0 || st.Totals.Claimed != 1 {
			t.Errorf("%s: %+v, want one claim and no lease left", queue, st)
		}
	}
	if repeated := done.repeated(); len(repeated) > 0 {
		t.Errorf("handled twice: %.10q", repeated)
	}
	t.Logf("%d stored, %d failed, %d of them wholly in the silence; %d tasks leased to nobody by %d claims cut short when it began",
		len(stored), len(failed), during, lost, inFlight)
	if during < 4 {
		t.Errorf("only %d schedules failed in the silence: too few to mean anything", during)
	}
	eventually(t, 45*time.Second, "what was leased to nobody is handled when its lease ended", func() bool {
		return len(done.missing("load", stored)) == 0
	})
	settled(t, 15*time.Second, baseline+5)
	eventually(t, 15*time.Second, fmt.Sprintf("about the %d connections of before", connected), func() bool { return connections() <= connected+5 })
}

func tookAbout(t *testing.T, what string, began time.Time, timeout time.Duration, err error) {
	t.Helper()
	if took := time.Since(began); took > timeout+slack/2 {
		t.Errorf("%s of a silent server took %v, the time-out is %v", what, took, timeout)
	}
	if !isUnavailable(err) {
		t.Errorf("%s of a silent server: got %v, want ErrUnavailable", what, err)
	}
}

// counter counts by name.
type counter struct {
	mu sync.Mutex // guards n
	n  map[string]int64
}

func newCounter() *counter { return &counter{n: map[string]int64{}} }

func (c *counter) add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[name] += int64(n)
}

func (c *counter) of(name string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

func TestCut_connections_do_not_reset_the_waiting(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := startProxy(t, srv.Addr(), 0)
	store := openStore(t, proxy.addr(), redisstore.Options{})
	direct := openStore(t, srv.URL(), redisstore.Options{})
	done := newLedger()
	startWorker(t, store, dueq.WorkerOptions{}, done, "cut")
	outcomes, err := direct.Schedule(t.Context(), []dueq.Item{item("cut", "a", dueq.In(4*time.Second))})
	must(t, err)
	for began := time.Now(); time.Since(began) < 2*time.Second; pass(t, 20*time.Millisecond) {
		proxy.cut(false)
	}
	eventually(t, 8*time.Second, "the task is handled", func() bool { return done.size() == 1 })
	_, at := done.of("cut", "a")
	late := at.Sub(outcomes[0].Due)
	t.Logf("handled %v after its due time", late)
	if late < 0 || late > time.Second+slack {
		t.Errorf("handled %v after its due time, want at most 1 s", late)
	}
}

func TestCut_connections_under_load_lose_nothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	direct := openStore(t, srv.URL(), redisstore.Options{})
	_, err := direct.SetSettings(t.Context(), "cut", dueq.SettingsPatch{"lease": "2s", "retry_first": "1ms", "retries": "100"})
	must(t, err)
	random := seeded(t)
	var lock sync.Mutex
	draw := func(n int64) int64 {
		lock.Lock()
		defer lock.Unlock()
		return random.Int64N(n)
	}
	done := newLedger()
	var proxies []*proxy
	for range 2 {
		p := startProxy(t, srv.Addr(), 0)
		proxies = append(proxies, p)
		startWorker(t, openStore(t, p.addr(), redisstore.Options{}), dueq.WorkerOptions{}, done, "cut")
	}
	p := startProxy(t, srv.Addr(), 0)
	proxies = append(proxies, p)
	load := startProducers(t, openStore(t, p.addr(), redisstore.Options{}), "cut", "task", 4, draw)
	cuts := 0
	for began := time.Now(); time.Since(began) < 2*time.Second; cuts++ {
		pass(t, time.Duration(1+draw(20))*time.Millisecond)
		proxies[draw(int64(len(proxies)))].cut(false)
	}
	load.end()
	eventually(t, 20*time.Second, "all that was acknowledged is handled", func() bool {
		return len(done.missing("cut", load.stored)) == 0
	})
	eventually(t, 20*time.Second, "the queue is empty", func() bool {
		st := statsOf(t, direct, "cut")
		return st.Scheduled+st.Active == 0
	})
	st := statsOf(t, direct, "cut")
	t.Logf("%d cuts; %d acknowledged, %d unknown, %d refused; %d handled; %d leases ended", cuts, len(load.stored), len(load.unknown), load.failed, done.size(), st.Totals.Ended)
	if repeated := done.repeated(); len(repeated) > 0 {
		t.Errorf("handled more than once: %.10q", repeated)
	}
	if st.Dead != 0 || endedRuns(st.Totals) != st.Totals.Claimed {
		t.Errorf("got %+v", st)
	}
	if len(load.stored) < 200 || len(load.unknown) == 0 {
		t.Error("too little happened to mean anything")
	}
}

type proxy struct {
	listener net.Listener
	backend  string
	latency  time.Duration // of each answer

	accepted atomic.Int64 // connections
	turns    atomic.Int64 // round trips: requests after an answer
	freezeAt atomic.Int64 // the round trip whose request is the first held back; zero is never

	mu     sync.Mutex
	frozen chan struct{} // closed when nothing is held back
	conns  map[net.Conn]struct{}
	done   bool
}

func startProxy(t *testing.T, backend string, latency time.Duration) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{listener: l, backend: backend, latency: latency, conns: map[net.Conn]struct{}{}, frozen: make(chan struct{})}
	close(p.frozen)
	var group sync.WaitGroup
	group.Go(func() { p.accept(&group) })
	t.Cleanup(func() {
		p.thaw()
		l.Close()
		p.cut(true)
		group.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) freeze() {
	p.mu.Lock()
	p.frozen = make(chan struct{})
	p.mu.Unlock()
}

func (p *proxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.frozen:
	default:
		close(p.frozen)
	}
}

func (p *proxy) wait() {
	p.mu.Lock()
	frozen := p.frozen
	p.mu.Unlock()
	<-frozen
}

func (p *proxy) cut(forGood bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = p.done || forGood
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) accept(group *sync.WaitGroup) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.accepted.Add(1)
		group.Go(func() { p.serve(client) })
	}
}

func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.done {
		p.conns[c] = struct{}{}
	}
	return !p.done
}

func (p *proxy) drop(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *proxy) serve(client net.Conn) {
	defer p.drop(client)
	if !p.keep(client) {
		return
	}
	p.wait()
	server, err := net.Dial("tcp", p.backend)
	if err != nil {
		return
	}
	defer p.drop(server)
	if !p.keep(server) {
		return
	}
	var asked atomic.Bool // since the last answer
	var group sync.WaitGroup
	group.Go(func() {
		p.copy(server, client, func() {
			if !asked.Swap(true) && p.turns.Add(1) == p.freezeAt.Load() {
				p.freeze()
			}
		})
		server.Close()
	})
	p.copy(client, server, func() {
		asked.Store(false)
		if p.latency > 0 {
			time.Sleep(p.latency)
		}
	})
	client.Close()
	group.Wait()
}

func (p *proxy) copy(to, from net.Conn, each func()) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			each()
			p.wait()
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
