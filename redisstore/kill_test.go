package redisstore_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/child"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

func TestMain(m *testing.M) {
	child.Main(map[string]child.Role{"worker": workerRole, "forwarder": forwarderRole})
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = p.Value.Set("4") // these tests wait more than they work
	}
	os.Exit(m.Run())
}

// workerRole runs a worker of a URL over queues. It writes "ready", and the id
// of each task it handles in one write before it acknowledges it.
func workerRole(ctx context.Context, args []string) error {
	url, queues := args[0], args[1:]
	var store *redisstore.Store
	for end := time.Now().Add(30 * time.Second); store == nil; {
		var err error
		if store, err = redisstore.Open(url, redisstore.Options{}); err != nil && time.Now().After(end) {
			return err
		}
	}
	defer store.Close()
	w := dueq.NewWorker(store, dueq.WorkerOptions{Logger: quietLog, Concurrency: killConcurrency})
	for _, queue := range queues {
		w.Handle(queue, dueq.AnyKind, dueq.HandlerFunc(func(_ context.Context, task *dueq.Task) error {
			_, err := os.Stdout.WriteString(task.ID + "\n")
			return err
		}))
	}
	fmt.Println("ready")
	return w.Run(ctx)
}

// workerProcess is a worker in a process of its own.
type workerProcess struct {
	*child.Process
	n      int
	killed time.Time // zero if it was not; guarded by the log's mu
}

// delivery is one line of a worker process.
type delivery struct {
	by *workerProcess
	at time.Time
}

// deliveries is what worker processes reported.
type deliveries struct {
	mu    sync.Mutex // guards all below
	by    map[string][]delivery
	ready map[int]bool
}

func newDeliveries() *deliveries {
	return &deliveries{by: map[string][]delivery{}, ready: map[int]bool{}}
}

func (d *deliveries) start(t *testing.T, n int, url string, queues ...string) *workerProcess {
	t.Helper()
	p := &workerProcess{n: n}
	p.Process = child.Start(t, func(line []byte) { d.note(p, string(line)) }, "worker", append([]string{url}, queues...)...)
	return p
}

func (d *deliveries) note(p *workerProcess, line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if line == "ready" {
		d.ready[p.n] = true
		return
	}
	d.by[line] = append(d.by[line], delivery{p, time.Now()})
}

func (d *deliveries) isReady(p *workerProcess) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ready[p.n]
}

func (d *deliveries) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.by)
}

// producers schedule as fast as they get answers, until stop.
type producers struct {
	mu      sync.Mutex // guards all below
	stored  []string   // ids whose schedule was acknowledged
	failed  int
	unknown map[string]bool // ids that may be stored

	stop   context.CancelFunc
	group  sync.WaitGroup
	prefix string
}

func startProducers(t *testing.T, store dueq.Store, queue, prefix string, many int, random func(n int64) int64) *producers {
	ctx, cancel := context.WithCancel(t.Context())
	p := &producers{unknown: map[string]bool{}, stop: cancel, prefix: prefix}
	client := dueq.NewClient(store, dueq.ClientOptions{})
	for worker := range many {
		p.group.Go(func() {
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("%s-%d-%d", prefix, worker, i)
				delay := time.Duration(random(int64(300 * time.Millisecond)))
				_, err := client.Schedule(context.WithoutCancel(ctx), queue, dueq.Task{ID: id, Kind: "k", Body: []byte(id)}, dueq.In(delay))
				p.note(id, err)
				<-tick.C
			}
		})
	}
	t.Cleanup(p.end)
	return p
}

func (p *producers) note(id string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.stored = append(p.stored, id)
	case mayHaveHappened(err):
		p.unknown[id] = true
	default:
		p.failed++
	}
}

func (p *producers) end() {
	p.stop()
	p.group.Wait()
}

const (
	killConcurrency = 20
	killWorkers     = 2
	killBatch       = 50
	killLease       = 3 * time.Second
)

// redis-server and workers are killed at random under load. What was
// acknowledged to a producer is handled; a second delivery needs a kill.
func TestKill_nothing_acknowledged_is_lost(t *testing.T) {
	t.Parallel()
	rounds := 5
	if text := os.Getenv("DUEQ_KILL_ROUNDS"); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		must(t, err)
	}
	random := seeded(t)
	var lock sync.Mutex
	draw := func(n int64) int64 {
		lock.Lock()
		defer lock.Unlock()
		return random.Int64N(n)
	}
	srv := redistest.Start(t, redistest.WithAOF())
	const queue = "kill"
	store := openStore(t, srv.URL(), redisstore.Options{})
	_, err := store.SetSettings(t.Context(), queue, dueq.SettingsPatch{
		"lease": killLease.String(), "batch": strconv.Itoa(killBatch), "retries": "1000", "retry_first": "10ms", "retry_cap": "50ms",
	})
	must(t, err)
	log := newDeliveries()
	var workers []*workerProcess
	made := 0
	start := func() *workerProcess {
		made++
		return log.start(t, made, srv.URL(), queue)
	}
	for range killWorkers {
		workers = append(workers, start())
	}
	for _, p := range workers {
		eventually(t, 30*time.Second, "the workers are ready", func() bool { return log.isReady(p) })
	}
	load := startProducers(t, store, queue, "task", 4, draw)
	var workerKills int
	var redisKills []time.Time
	for range rounds {
		for range 2 {
			pass(t, time.Duration(50+draw(250))*time.Millisecond)
			if draw(2) == 0 {
				srv.Kill()
				redisKills = append(redisKills, time.Now())
				srv.Restart()
				continue
			}
			i := int(draw(killWorkers))
			log.mu.Lock()
			workers[i].killed = time.Now()
			log.mu.Unlock()
			workers[i].Kill()
			workerKills++
			workers[i] = start()
		}
		p := workers[draw(killWorkers)]
		eventually(t, 30*time.Second, "a new worker is ready", func() bool { return log.isReady(p) })
	}
	load.end()

	missing := func() (ids []string) {
		log.mu.Lock()
		defer log.mu.Unlock()
		for _, id := range load.stored {
			if len(log.by[id]) == 0 {
				ids = append(ids, id)
			}
		}
		return ids
	}
	for end := time.Now().Add(60 * time.Second); len(missing()) > 0; pass(t, 50*time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d acknowledged tasks were never handled: %.10q; %+v", len(missing()), missing(), statsOf(t, store, queue))
		}
	}
	eventually(t, 60*time.Second, "the queue is empty", func() bool {
		st := statsOf(t, store, queue)
		return st.Scheduled+st.Active == 0
	})
	for _, p := range workers {
		if err := p.Stop(); err != nil {
			t.Errorf("worker process %d: %v", p.n, err)
		}
	}
	st := statsOf(t, store, queue)

	byWorker, byRedis, unexplained, soon := 0, 0, []string{}, []string{}
	for id, all := range log.by {
		for i := 1; i < len(all); i++ {
			first, second := all[i-1], all[i]
			if second.at.Sub(first.at) < killLease-slack/4 {
				soon = append(soon, fmt.Sprintf("%s after %v", id, second.at.Sub(first.at)))
			}
			switch {
			case !first.by.killed.IsZero() && second.at.After(first.by.killed):
				byWorker++
			case redisKilledBetween(redisKills, first.at, second.at):
				byRedis++
			default:
				unexplained = append(unexplained, id)
			}
		}
	}
	strangers := 0
	known := map[string]bool{}
	for _, id := range load.stored {
		known[id] = true
	}
	for id := range log.by {
		if !known[id] && !load.unknown[id] {
			strangers++
		}
	}
	held := workerKills * (killConcurrency + 2*killBatch)
	t.Logf("%d rounds: %d redis kills, %d worker kills; %d tasks acknowledged, %d unknown, %d refused; %d handled, 0 lost; "+
		"second deliveries: %d after a worker kill (bound %d), %d over a redis kill, %d unexplained; %d leases ended, %d dead",
		rounds, len(redisKills), workerKills, len(load.stored), len(load.unknown), load.failed, log.count(),
		byWorker, held, byRedis, len(unexplained), st.Totals.Ended, st.Dead)
	if len(load.stored) < 10*rounds {
		t.Errorf("only %d tasks were scheduled: too few to mean anything", len(load.stored))
	}
	if len(unexplained) > 0 {
		t.Errorf("handled twice without a kill between: %.10q", unexplained)
	}
	if len(soon) > 0 {
		t.Errorf("handled twice within a lease of %v: %.10q", killLease, soon)
	}
	if byWorker > held {
		t.Errorf("%d second deliveries after %d worker kills, want at most the %d that were held", byWorker, workerKills, held)
	}
	// One outage does not end the leases of living workers. But their verdicts
	// wait for the server, and kills in a row may outlast so short a lease.
	if most := len(redisKills) * killWorkers * (killConcurrency + 2*killBatch); byRedis > most {
		t.Errorf("%d second deliveries over %d redis kills, want at most the %d that were held", byRedis, len(redisKills), most)
	}
	if strangers > 0 {
		t.Errorf("%d tasks were handled whose producers were told that nothing was sent", strangers)
	}
	if st.Dead > 0 {
		t.Errorf("%d tasks are dead", st.Dead)
	}
	if sum := endedRuns(st.Totals) + st.Active; sum != st.Totals.Claimed {
		t.Errorf("claimed %d, ended or active %d: %+v", st.Totals.Claimed, sum, st.Totals)
	}
}

func redisKilledBetween(kills []time.Time, from, to time.Time) bool {
	for _, at := range kills {
		if at.After(from) && at.Before(to) {
			return true
		}
	}
	return false
}
