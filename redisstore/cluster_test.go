package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// queueOn is the name of a queue that lies on a node.
func queueOn(t *testing.T, c *redistest.Cluster, node *redistest.Server, prefix string) string {
	t.Helper()
	for i := range 1000 {
		if queue := fmt.Sprint(prefix, i); c.OwnerOf(keysOf(queue)[keyScheduled]) == node {
			return queue
		}
	}
	t.Fatalf("no queue lies on %s", node.Addr())
	return ""
}

// queuePerShard are names of queues, by the master each lies on.
func queuePerShard(t *testing.T, c *redistest.Cluster) map[*redistest.Server]string {
	t.Helper()
	queues := map[*redistest.Server]string{}
	for _, master := range c.Masters() {
		queues[master] = queueOn(t, c, master, "shard:")
	}
	return queues
}

// steady is a load of five tasks a second on each of some queues, and a worker.
type steady struct {
	*ledger
	mu     sync.Mutex // guards all below
	stored map[string][]string
	drifts map[string][]time.Duration
	errs   []error
	end    func()
}

func startSteady(t *testing.T, store dueq.Store, queues ...string) *steady {
	s := &steady{ledger: newLedger(), stored: map[string][]string{}, drifts: map[string][]time.Duration{}}
	observer := dueq.Observer{Started: func(task *dueq.Task, drift time.Duration) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drifts[task.Queue] = append(s.drifts[task.Queue], drift)
	}}
	startWorker(t, store, dueq.WorkerOptions{Observer: observer}, s.ledger, queues...)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for _, queue := range queues {
		group.Go(func() {
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ctx.Err() == nil; i++ {
				s.schedule(t, store, queue, fmt.Sprint("s", i), 100*time.Millisecond)
				<-tick.C
			}
		})
	}
	s.end = sync.OnceFunc(func() { cancel(); group.Wait() })
	t.Cleanup(s.end)
	return s
}

func (s *steady) schedule(t *testing.T, store dueq.Store, queue, id string, delay time.Duration) {
	_, err := store.Schedule(context.WithoutCancel(t.Context()), []dueq.Item{item(queue, id, dueq.In(delay), "body")})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.errs = append(s.errs, err)
		return
	}
	s.stored[queue] = append(s.stored[queue], id)
}

// missing are acknowledged tasks of a queue that were not handled yet.
func (s *steady) missing(queue string) (ids []string) {
	s.mu.Lock()
	stored := slices.Clone(s.stored[queue])
	s.mu.Unlock()
	for _, id := range stored {
		if n, _ := s.of(queue, id); n == 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// failures are errors of schedules that are not ErrUnavailable.
func (s *steady) failures() (bad []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.errs {
		if !errors.Is(err, dueq.ErrUnavailable) {
			bad = append(bad, err)
		}
	}
	return bad
}

func (s *steady) worst(queue string) (n int, over float64, worst time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	late := 0
	for _, drift := range s.drifts[queue] {
		worst = max(worst, drift)
		if drift > time.Second {
			late++
		}
	}
	n = len(s.drifts[queue])
	return n, float64(late) / float64(max(n, 1)), worst
}

// outage is how long a node is away: some seconds, or what DUEQ_OUTAGE says.
func outage(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("DUEQ_OUTAGE")
	if text == "" {
		return 4 * time.Second
	}
	d, err := time.ParseDuration(text)
	must(t, err)
	return d
}

// Case 03.
func TestCluster_a_shard_that_is_away_does_not_delay_the_queues_of_others(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct {
		name       string
		begin, end func(node *redistest.Server)
		back       time.Duration // until all has run after the end
	}{
		{"killed", (*redistest.Server).Kill, (*redistest.Server).Restart, 15 * time.Second},
		{"stopped", (*redistest.Server).Pause, (*redistest.Server).Resume, 5 * time.Second},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 0, redistest.WithAOF())
			queues := queuePerShard(t, c)
			// Of the shards the one that has most to do with the others.
			gone := c.OwnerOf(redisstore.DefaultPrefix + "@settings")
			store := openStore(t, c.URL(), redisstore.Options{})
			load := startSteady(t, store, queues[c.Masters()[0]], queues[c.Masters()[1]], queues[c.Masters()[2]])
			eventually(t, 10*time.Second, "all queues run", func() bool { return load.size() >= 15 })
			away := outage(t)
			for i := range 50 { // come due meanwhile
				load.schedule(t, store, queues[gone], fmt.Sprint("away", i), away*time.Duration(i)/50)
			}
			fault.begin(gone)
			pass(t, away)
			load.end() // so that what the dead shard has to do is what it had
			fault.end(gone)
			back := time.Now()
			eventually(t, fault.back+slack, "the tasks of the shard have run", func() bool { return len(load.missing(queues[gone])) == 0 })
			t.Logf("the tasks of the shard had run %v after it was back", time.Since(back))
			for node, queue := range queues {
				n, over, worst := load.worst(queue)
				t.Logf("%s, away %v: %d runs, worst drift %v, %.1f %% over 1 s", queue, node == gone, n, worst, 100*over)
				if node == gone {
					continue
				}
				if over > 0.02 || worst > time.Second+slack {
					t.Errorf("%s: %.1f %% of runs were over 1 s late, the worst %v", queue, 100*over, worst)
				}
				eventually(t, 5*time.Second, "the others' tasks have run", func() bool { return len(load.missing(queue)) == 0 })
			}
			if bad := load.failures(); len(bad) > 0 {
				t.Errorf("schedules failed otherwise than as unavailable: %v", bad)
			}
		})
	}
}

func TestCluster_queues_work_while_the_shard_of_the_common_keys_is_away(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0, redistest.WithConfig("cluster-node-timeout", "60000"))
	gone := c.OwnerOf(redisstore.DefaultPrefix + "@settings")
	listing := c.OwnerOf(redisstore.DefaultPrefix + "@queues")
	var queue string
	queues := queuePerShard(t, c)
	for node, name := range queues {
		if node != gone && node != listing {
			queue = name
		}
	}
	other := queues[listing]
	stopped := []*redistest.Server{gone}
	if listing != gone {
		stopped = append(stopped, listing)
	}
	long := openStore(t, c.URL(), redisstore.Options{})
	for _, node := range stopped {
		node.Pause()
		defer node.Resume()
	}
	t.Run("for_who_is_there", func(t *testing.T) { commonKeysAway(t, long, queue, other) })
	for _, node := range stopped {
		node.Kill()
	}
	t.Run("for_who_comes", func(t *testing.T) {
		commonKeysAway(t, openStore(t, c.URL(), redisstore.Options{}), queue, other)
	})
}

func commonKeysAway(t *testing.T, store *redisstore.Store, queue, other string) {
	ctx := t.Context()
	quick := func(what string, call func() error) {
		t.Helper()
		began := time.Now()
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s took %v", what, took)
		}
	}
	// The first call may find out where the slots are.
	eventually(t, 30*time.Second, "a call works", func() bool { _, err := store.Stats(ctx, queue); return err == nil })
	for range 3 {
		quick("schedule", func() error {
			_, err := store.Schedule(ctx, []dueq.Item{item(queue, "a", past)})
			return err
		})
		quick("settings", func() error { _, err := store.Settings(ctx, queue); return err })
		quick("change of settings", func() error {
			_, err := store.SetSettings(ctx, queue, dueq.SettingsPatch{"retries": "7"})
			return err
		})
		quick("settings, changed", func() error {
			s, err := store.Settings(ctx, queue)
			if err == nil && s.Retries != 7 {
				err = fmt.Errorf("retries are %d", s.Retries)
			}
			return err
		})
		quick("claim", func() error {
			_, err := store.Claim(ctx, dueq.ClaimRequest{Queue: queue, Max: 1})
			return err
		})
	}
	if _, err := store.Stats(ctx); !isUnavailable(err) {
		t.Errorf("stats of all: got %v, want ErrUnavailable", err)
	}
	// A call for several shards does what it can.
	outcomes, err := store.Schedule(ctx, []dueq.Item{item(other, "a", past), item(queue, t.Name(), past)})
	if !isUnavailable(err) || outcomes[0].Status != dueq.StatusUnknown || outcomes[1].Status != dueq.StatusScheduled {
		t.Errorf("schedule for %s and %s: got %v, %v, want the second one scheduled", other, queue, outcomes, err)
	}
}

// Settings of a queue are live though nobody reads their versions.
func TestCluster_changed_settings_are_seen_by_other_processes(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	one, two := openStore(t, c.URL(), patient), openStore(t, c.URL(), patient)
	for round := range 3 {
		want := 10 + round
		set(t, one, "q", "batch", fmt.Sprint(want))
		began := time.Now()
		eventually(t, time.Second+slack, "the other process knows", func() bool {
			s, err := two.Settings(t.Context(), "q")
			must(t, err)
			return s.Batch == want
		})
		t.Logf("known after %v", time.Since(began))
	}
}

// Cases 49 and 80.
func TestCluster_no_call_for_many_queues_crosses_slots(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	store := openStore(t, c.URL(), patient)
	ctx := t.Context()
	var all []dueq.Item
	var queues []string
	for i := range 20 {
		queues = append(queues, fmt.Sprint("many:", i))
		all = append(all, items(queues[i], 25, past, "body")...)
	}
	outcomes, err := store.Schedule(ctx, all)
	must(t, err)
	for i, o := range outcomes {
		if o.Status != dueq.StatusScheduled {
			t.Fatalf("item %d: %v, %v", i, o.Status, o.Err)
		}
	}
	eventually(t, 10*time.Second, "all queues are listed", func() bool {
		stats, err := store.Stats(ctx)
		must(t, err)
		return len(stats) == len(queues)
	})
	stats, err := store.Stats(ctx, queues...)
	must(t, err)
	for i, st := range stats {
		if st.Queue != queues[i] || st.Scheduled != 25 || st.Err != nil {
			t.Errorf("%+v, want 25 of %s", st, queues[i])
		}
	}
	for _, queue := range queues {
		task := claim(t, store, queue, 1).Tasks[0]
		_, err := store.Settle(ctx, queue, []dueq.Result{{Task: task, Verdict: dueq.VerdictDead, Err: "why"}})
		must(t, err)
		for state, want := range map[dueq.State]int{dueq.StateScheduled: 24, dueq.StateDead: 1, dueq.StateActive: 0} {
			page, err := store.List(ctx, dueq.ListQuery{Queue: queue, State: state})
			must(t, err)
			if len(page.Tasks) != want {
				t.Errorf("%s: %d tasks %v, want %d", queue, len(page.Tasks), state, want)
			}
		}
	}
	for _, name := range []string{"a{b}c", "{}", "{x", "x}", "{a}{b}"} {
		outcomes, err := store.Schedule(ctx, []dueq.Item{item(name, "a", past)})
		if err != nil || outcomes[0].Status != dueq.StatusRefused {
			t.Errorf("queue %s: got %v, %v, want refused", name, outcomes, err)
		}
	}
	for _, id := range []string{"{1}", "{", "}{"} {
		scheduleAll(t, store, []dueq.Item{item(queues[0], id, past, "body")})
	}
	done := newLedger()
	startWorker(t, store, dueq.WorkerOptions{}, done, queues...)
	eventually(t, 20*time.Second, "all are handled", func() bool { return done.size() == 20*24+3 })
	for _, node := range c.Nodes() {
		noErrors(t, node, "CROSSSLOT", "ERR")
	}
}

func TestCluster_each_server_is_judged_by_its_own_clock(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0, redistest.WithRunningClock(), redistest.WithConfig("cluster-node-timeout", "100000000"))
	queues := queuePerShard(t, c)
	masters := c.Masters()
	masters[0].Advance(time.Hour)
	masters[1].Advance(-time.Hour)
	store := openStore(t, c.URL(), patient)
	for _, queue := range queues {
		scheduleAll(t, store, items(queue, 100, past)) // scripts are there, and clocks known
		claim(t, store, queue, 1)
	}
	const rounds = 20
	before := map[*redistest.Server]int64{}
	for node := range queues {
		before[node] = node.Commands(t)["evalsha"]
	}
	for range rounds {
		for _, queue := range queues {
			claim(t, store, queue, 1)
		}
	}
	for node := range queues {
		if n := node.Commands(t)["evalsha"] - before[node]; n != rounds {
			t.Errorf("%s ran %d scripts for %d claims: some came too late by the clock of another", node.Addr(), n, rounds)
		}
	}
	// And a deadline that has passed by its own clock holds.
	ahead := queues[masters[0]]
	masters[0].Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := store.Claim(ctx, dueq.ClaimRequest{Queue: ahead, Max: 10})
	wantUnavailable(t, "claim of a stopped server", err, "")
	pass(t, 200*time.Millisecond)
	masters[0].Resume()
	eventually(t, 10*time.Second, "the server found the claim", func() bool {
		return masters[0].Commands(t)["evalsha"] > before[masters[0]]+rounds
	})
	if st := statsOf(t, store, ahead); st.Active != rounds+1 {
		t.Errorf("%d active, want %d: a claim that came too late leased tasks to nobody", st.Active, rounds+1)
	}
}

func TestCluster_a_claim_without_an_answer_is_asked_after_at_its_own_server(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0, redistest.WithConfig("cluster-node-timeout", "60000"))
	store := openStore(t, c.URL(), redisstore.Options{Timeout: 300 * time.Millisecond})
	for stopped, queue := range queuePerShard(t, c) {
		scheduleAll(t, store, items(queue, 10, past))
		claim(t, store, queue, 1)
		stopped.Pause()
		for i := range 2 {
			_, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: queue, Max: 1})
			wantUnavailable(t, "claim of a stopped server", err, "")
			if mayHaveHappened(err) != (i == 0) {
				t.Errorf("claim %d: may have happened is %v, want it of the first only: %v", i, mayHaveHappened(err), err)
			}
		}
		stopped.Resume()
		before := map[*redistest.Server]int64{}
		for _, node := range c.Nodes() {
			before[node] = node.Commands(t)["ping"]
		}
		eventually(t, 10*time.Second, "a claim works", func() bool {
			_, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: queue, Max: 1})
			return err == nil
		})
		for _, node := range c.Nodes() {
			if n := node.Commands(t)["ping"] - before[node]; n > 0 != (node == stopped) {
				t.Errorf("%s got %d PINGs, its queue was claimed from: %v", node.Addr(), n, node == stopped)
			}
		}
	}
}

func TestCluster_a_process_that_ends_at_once_has_told_the_name_of_its_queue(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	for i := range 10 {
		store, err := redisstore.Open(c.URL(), patient)
		must(t, err)
		scheduleAll(t, store, []dueq.Item{item(fmt.Sprint("brief:", i), "a", past)})
		must(t, store.Close())
	}
	stats, err := openStore(t, c.URL(), patient).Stats(t.Context())
	must(t, err)
	if len(stats) != 10 {
		t.Errorf("%d queues are listed, want 10", len(stats))
	}
}
