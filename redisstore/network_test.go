package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// behindProxy is a store that reaches a server through a proxy, and another
// that reaches it straight.
func behindProxy(t *testing.T, opts ...redistest.Option) (*redistest.Server, *redistest.Proxy, *redisstore.Store, *redisstore.Store) {
	t.Helper()
	srv := redistest.Start(t, opts...)
	proxy := redistest.StartProxy(t, srv.Addr())
	return srv, proxy, openStore(t, proxy.URL(), redisstore.Options{}), openStore(t, srv.URL(), patient)
}

func TestNetwork_a_request_cut_before_it_arrives_did_not_happen(t *testing.T) {
	t.Parallel()
	_, proxy, store, direct := behindProxy(t)
	scheduleAll(t, direct, items("q", 10, past))
	for name, call := range map[string]func() error{
		"schedule": func() error {
			_, err := store.Schedule(t.Context(), []dueq.Item{item("q", "new", past, "body")})
			return err
		},
		"claim": func() error {
			_, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 5})
			return err
		},
		"forward": func() error {
			_, err := store.Forward(t.Context(), dueq.ForwardRequest{Queue: "q", Max: 2, Destination: "list"})
			return err
		},
	} {
		before := statsOf(t, direct, "q")
		proxy.SetFault(redistest.Next(1, redistest.CutBefore, "evalsha"))
		err := call()
		wantUnavailable(t, name, err, "")
		after := statsOf(t, direct, "q")
		if before.Totals != after.Totals || after.Scheduled != before.Scheduled || after.Active != before.Active {
			t.Errorf("%s: a request that never arrived changed the queue:\n got %+v\nwant %+v", name, after, before)
		}
		must(t, call()) // the very next one goes through
	}
	if st := statsOf(t, direct, "q"); st.Scheduled != 4 || st.Active != 5 || st.Totals.Forwarded != 2 {
		t.Errorf("got %+v, want the 11 tasks, 5 of them active and 2 forwarded", st)
	}
}

func TestNetwork_a_schedule_whose_answer_is_lost_may_have_happened_and_is_there_once(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]redistest.Action{"cut": redistest.CutAfter, "silent": redistest.MuteAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, proxy, store, direct := behindProxy(t)
			done := newLedger()
			task := []dueq.Item{item("q", "new", dueq.In(time.Hour), "body")}
			proxy.SetFault(redistest.Next(1, fault, "evalsha"))
			began := time.Now()
			_, err := store.Schedule(t.Context(), task)
			wantUnavailable(t, "schedule", err, "")
			if !mayHaveHappened(err) {
				t.Errorf("got %v, want it said that it may have happened", err)
			}
			if took := time.Since(began); took > time.Second+slack {
				t.Errorf("took %v, the time-out is 1 s", took)
			}
			if st := statsOf(t, direct, "q"); st.Scheduled != 1 || st.Totals.Scheduled != 1 {
				t.Errorf("got %+v, want the task there once: it was not sent again", st)
			}
			task[0].When = past
			scheduleAll(t, store, task) // who asks again changes nothing else
			startWorker(t, direct, dueq.WorkerOptions{}, done, "q")
			eventually(t, 5*time.Second, "it is settled", func() bool { return statsOf(t, direct, "q").Totals.Acked == 1 })
			if n, _ := done.of("q", "new"); n != 1 {
				t.Errorf("handled %d times, want once", n)
			}
		})
	}
}

func TestNetwork_tasks_of_a_lost_claim_come_back_once_for_each_lost_answer(t *testing.T) {
	t.Parallel()
	_, proxy, store, direct := behindProxy(t)
	_, err := direct.SetSettings(t.Context(), "q", dueq.SettingsPatch{"lease": "1s", "retries": "3"})
	must(t, err)
	const n, lost = 30, 2
	scheduleAll(t, direct, items("q", n, past))
	for i := range lost {
		proxy.SetFault(redistest.Next(1, redistest.CutAfter, "evalsha"))
		_, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 10})
		if !isUnavailable(err) || !mayHaveHappened(err) {
			t.Fatalf("claim %d: got %v, want ErrUnavailable that may have happened", i, err)
		}
	}
	if st := statsOf(t, direct, "q"); st.Active != 10*lost {
		t.Errorf("%d are active, want the %d of the lost answers", st.Active, 10*lost)
	}
	done := newLedger()
	startWorker(t, store, dueq.WorkerOptions{}, done, "q")
	eventually(t, 20*time.Second, "all are handled", func() bool { return done.size() == n })
	eventually(t, 5*time.Second, "all are settled", func() bool { return statsOf(t, direct, "q").Totals.Acked == n })
	if repeated := done.repeated(); len(repeated) > 0 {
		t.Errorf("handled more than once: %q", repeated)
	}
	if st := statsOf(t, direct, "q"); st.Totals.Ended != 10*lost || st.Dead+st.Scheduled+st.Active != 0 {
		t.Errorf("got %+v, want %d leases ended, one for each task of a lost answer", st, 10*lost)
	}
}

func TestNetwork_a_connection_that_died_in_silence_costs_one_time_out(t *testing.T) {
	t.Parallel()
	_, proxy, store, direct := behindProxy(t)
	done := newLedger()
	startWorker(t, openStore(t, proxy.URL(), redisstore.Options{}), dueq.WorkerOptions{}, done, "q")
	scheduleAll(t, store, []dueq.Item{item("q", "first", past)})
	eventually(t, 5*time.Second, "the worker works", func() bool { return done.size() == 1 })
	proxy.Mute() // all that are open, for good
	proxy.Unmute()
	began := time.Now()
	_, err := store.Stats(t.Context(), "q")
	if took := time.Since(began); err == nil || took > time.Second+slack {
		t.Errorf("the call over it: got %v after %v, want an error within 1 s", err, took)
	}
	_, err = store.Schedule(t.Context(), []dueq.Item{item("q", "second", dueq.In(0))})
	must(t, err)
	eventually(t, 5*time.Second, "the worker works again", func() bool { return done.size() == 2 })
	if st := statsOf(t, direct, "q"); st.Totals.Ended != 0 {
		t.Errorf("got %+v, want no lease ended", st)
	}
}

func TestNetwork_answers_300_ms_late_never_meet_another_question(t *testing.T) {
	t.Parallel()
	_, proxy, store, direct := behindProxy(t)
	const n = 1000
	all := make([]dueq.Item, n)
	for i := range all {
		all[i] = item("q", fmt.Sprintf("t%06d", i), dueq.In(time.Hour), fmt.Sprintf("body of t%06d", i))
	}
	scheduleAll(t, direct, all)
	get := func(ctx context.Context, i int) error {
		id := fmt.Sprintf("t%06d", i)
		infos, err := store.Get(ctx, "q", []string{id + ":k"})
		if err == nil && (infos[0].ID != id || string(infos[0].Body) != "body of "+id) {
			t.Errorf("asked for %s, got %s with %q", id, infos[0].ID, infos[0].Body)
		}
		return err
	}
	var group sync.WaitGroup
	answered := newCounter()
	proxy.SetDelay(0, 300*time.Millisecond)
	for i := range n {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if get(ctx, i) == nil {
				answered.add("in time", 1)
			}
		})
	}
	group.Wait()
	if k := answered.of("in time"); k > 0 {
		t.Errorf("%d calls with 100 ms were answered after 300 ms", k)
	}
	proxy.SetDelay(0, 0)
	for i := range n / 5 {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for get(ctx, i) != nil { // over whatever connections are left, and new ones
				if ctx.Err() != nil {
					t.Error("no answer within 20 s")
					return
				}
			}
		})
	}
	group.Wait()
}

// refusal is how a server answers that is there and cannot do what it is asked.
type refusal struct {
	line      string
	transient bool
}

var refusals = map[string]refusal{
	"LOADING":     {"-LOADING Redis is loading the dataset in memory", true},
	"READONLY":    {"-READONLY You can't write against a read only replica.", true},
	"MASTERDOWN":  {"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", true},
	"OOM":         {"-OOM command not allowed when used memory > 'maxmemory'.", true},
	"BUSY":        {"-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", true},
	"NOREPLICAS":  {"-NOREPLICAS Not enough good replicas to write.", true},
	"TRYAGAIN":    {"-TRYAGAIN Multiple keys request during rehashing of slot", true},
	"CLUSTERDOWN": {"-CLUSTERDOWN The cluster is down", true},
	"MISCONF":     {"-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", true},
	"max_clients": {"-ERR max number of clients reached", true},
	"unknown":     {"-ERR something that nobody has heard of", false},
}

func TestNetwork_a_refusal_is_told_changes_nothing_and_passes(t *testing.T) {
	t.Parallel()
	for name, r := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, proxy, store, direct := behindProxy(t)
			_, err := direct.SetSettings(t.Context(), "work", dueq.SettingsPatch{"lease": "1s"}) // Cut may lose the answer to a claim
			must(t, err)
			done := newLedger()
			startWorker(t, openStore(t, proxy.URL(), redisstore.Options{}), dueq.WorkerOptions{}, done, "work")
			check := func(what string, err error) {
				t.Helper()
				if err == nil || isUnavailable(err) != r.transient || mayHaveHappened(err) {
					t.Errorf("%s: got %v, want unavailable %v and certainly not happened", what, err, r.transient)
				}
				if text, _, _ := strings.Cut(r.line[1:], " "); err != nil && !strings.Contains(err.Error(), text) {
					t.Errorf("%s: got %v, want the server's words", what, err)
				}
			}
			proxy.SetFault(func(cmd []string) redistest.Action {
				if strings.EqualFold(cmd[0], "evalsha") || strings.EqualFold(cmd[0], "ping") {
					return redistest.Answer(r.line)
				}
				return redistest.Pass
			})
			for range 2 {
				_, err := store.Schedule(t.Context(), []dueq.Item{item("q", "a", past)})
				check("schedule", err)
				_, err = store.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 10})
				check("claim", err)
				_, err = store.Get(t.Context(), "q", []string{"a"})
				check("get", err)
			}
			scheduleAll(t, direct, items("work", 10, past))
			proxy.SetFault(nil)
			eventually(t, 5*time.Second, "the worker works again", func() bool { return done.size() == 10 })
			if c := claim(t, store, "q", 10); len(c.Tasks) != 0 {
				t.Errorf("claimed %d tasks, want none: all schedules were refused", len(c.Tasks))
			}

			// While connections are made.
			proxy.Cut()
			proxy.SetFault(redistest.Next(1<<30, redistest.Answer(r.line), "hello", "client", "ping"))
			scheduleAll(t, direct, []dueq.Item{item("work", "in_between", past)})
			_, err = store.Schedule(t.Context(), []dueq.Item{item("q", "b", past)})
			if err != nil && !isUnavailable(err) && r.transient {
				t.Errorf("schedule over a new connection: got %v", err)
			}
			proxy.SetFault(nil)
			proxy.Cut()
			eventually(t, 20*time.Second, "the worker works again", func() bool { n, _ := done.of("work", "in_between"); return n == 1 })
			if srv.Commands(t)["evalsha"] == 0 {
				t.Error("the server was not asked")
			}
		})
	}
}

func TestNetwork_what_does_not_know_HELLO_and_CLIENT_is_served_over_RESP2(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault redistest.Action
		param string
	}{
		"unknown_command":                         {redistest.Answer("-ERR unknown command"), ""},
		"unknown_command_protocol_2":              {redistest.Answer("-ERR unknown command"), "?protocol=2"},
		"connection_closed_with_a_documented_way": {redistest.CutBefore, "?protocol=2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t, redistest.WithConfig("requirepass", "pw"))
			proxy := redistest.StartProxy(t, srv.Addr())
			proxy.SetFault(redistest.Next(1<<30, tc.fault, "hello", "client"))
			log := &logCounter{}
			store := openStore(t, strings.Replace(proxy.URL(), "://", "://:pw@", 1)+tc.param, redisstore.Options{})
			done := newLedger()
			startWorker(t, store, dueq.WorkerOptions{Logger: log.logger()}, done, "q")
			scheduleAll(t, store, items("q", 100, dueq.In(10*time.Millisecond)))
			eventually(t, 5*time.Second, "all are handled", func() bool { return done.size() == 100 })
			if text := log.String(); strings.Contains(text, "level=WARN") || strings.Contains(text, "level=ERROR") {
				t.Errorf("the worker complained:\n%s", text)
			}
		})
	}
}

func TestNetwork_protocol_2_goes_with_TLS_and_with_idle_connections_that_the_server_closes(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.WithTLS(), redistest.WithConfig("timeout", "1"))
	for queue, url := range map[string]string{"tls": srv.TLSURL() + "?protocol=2&ca=" + srv.CAFile(), "plain": srv.URL() + "?protocol=2"} {
		store := openStore(t, url, redisstore.Options{})
		scheduleAll(t, store, items(queue, 10, past))
		pass(t, 2500*time.Millisecond) // the server looks once a second
		if _, err := store.Stats(t.Context(), queue); err != nil && queue == "plain" {
			t.Errorf("%s: after the server closed the connection: %v", url, err)
		}
		if c := claim(t, store, queue, 20); len(c.Tasks) != 10 {
			t.Errorf("%s: claimed %d tasks, want 10", url, len(c.Tasks))
		}
		if n := srv.Commands(t)["hello"]; n != 0 {
			t.Errorf("%s: %d HELLOs were sent", url, n)
		}
	}
}

func TestNetwork_another_master_behind_the_same_address_is_found_without_help(t *testing.T) {
	t.Parallel()
	old := redistest.Start(t)
	next := redistest.Start(t, redistest.WithReplicaOf(old))
	proxy := redistest.StartProxy(t, old.Addr())
	store := openStore(t, proxy.URL(), redisstore.Options{})
	done := newLedger()
	startWorker(t, openStore(t, proxy.URL(), redisstore.Options{}), dueq.WorkerOptions{}, done, "q")
	scheduleAll(t, store, items("q", 10, past))
	scheduleAll(t, store, []dueq.Item{item("q", "later", dueq.In(2*time.Second))})
	eventually(t, 5*time.Second, "the worker works", func() bool { return done.size() == 10 })
	eventually(t, 5*time.Second, "the replica has it all", func() bool {
		return next.Client(t).ZCard(t.Context(), redisstore.DefaultPrefix+"q").Val() == 1
	})

	must(t, next.Client(t).ReplicaOf(t.Context(), "NO", "ONE").Err())
	proxy.SetTarget(next.Addr()) // open connections stay with the old one
	host, port, _ := strings.Cut(next.Addr(), ":")
	must(t, old.Client(t).ReplicaOf(t.Context(), host, port).Err())
	swapped := time.Now()
	eventually(t, 5*time.Second, "schedules go to the new one", func() bool {
		_, err := store.Schedule(t.Context(), []dueq.Item{item("q", "after", dueq.In(0))})
		if err != nil {
			wantUnavailable(t, "schedule", err, "READONLY")
		}
		return err == nil
	})
	eventually(t, 10*time.Second, "the worker works again", func() bool {
		n, _ := done.of("q", "after")
		m, _ := done.of("q", "later")
		return n == 1 && m == 1
	})
	t.Logf("all well %v after the swap", time.Since(swapped))
}

func TestNetwork_connections_that_the_server_closes_when_idle_are_replaced_unseen(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.WithConfig("timeout", "1"))
	store := openStore(t, srv.URL(), redisstore.Options{})
	done, log := newLedger(), &logCounter{}
	startWorker(t, openStore(t, srv.URL(), redisstore.Options{}), dueq.WorkerOptions{Logger: log.logger()}, done, "q")
	for i := range 3 {
		_, err := store.Schedule(t.Context(), []dueq.Item{item("q", fmt.Sprint(i), dueq.In(0))})
		if err != nil {
			t.Errorf("schedule after %d idle pauses: %v", i, err)
		}
		eventually(t, time.Second+slack, "it is handled", func() bool { n, _ := done.of("q", fmt.Sprint(i)); return n == 1 })
		pass(t, 2500*time.Millisecond) // the server looks once a second
	}
	if strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("the worker complained:\n%s", log)
	}
}

// blackhole makes an address of one where a connection is never established:
// its queue of unaccepted connections is full.
func blackhole(t *testing.T, addr string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	must(t, syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	var port int
	_, err = fmt.Sscanf(addr, "127.0.0.1:%d", &port)
	must(t, err)
	must(t, syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}))
	must(t, syscall.Listen(fd, 0))
	fillBacklog(t, addr)
}

func TestNetwork_calls_to_an_address_that_swallows_connections_end_with_their_deadlines(t *testing.T) {
	t.Parallel()
	labelled(t)
	_, proxy, store, direct := behindProxy(t)
	client := dueq.NewClient(store, dueq.ClientOptions{})
	scheduleAll(t, store, []dueq.Item{item("q", "first", dueq.In(time.Hour))})
	proxy.Refuse()
	proxy.Cut()
	blackhole(t, proxy.Addr())
	baseline, _ := goroutines(t)

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
	t.Logf("200 calls with 500 ms: the longest took %v", slices.Max(took))
	if most := slices.Max(took); most > 700*time.Millisecond+slack/2 {
		t.Errorf("a call with 500 ms took %v", most)
	}
	for i, err := range errs {
		if !isUnavailable(err) || !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "timeout") {
			t.Fatalf("call %d: got %v, want ErrUnavailable because of its deadline", i, err)
		}
	}
	settled(t, 15*time.Second, baseline+2)
	if st := statsOf(t, direct, "q"); st.Scheduled != 1 {
		t.Errorf("%d are stored, want the one of before", st.Scheduled)
	}
}

func TestNetwork_five_seconds_without_a_server_do_not_reset_the_waiting(t *testing.T) {
	t.Parallel()
	_, proxy, store, direct := behindProxy(t)
	done := newLedger()
	startWorker(t, store, dueq.WorkerOptions{}, done, "q")
	outcomes, err := direct.Schedule(t.Context(), []dueq.Item{
		item("q", "during", dueq.In(3*time.Second)), item("q", "after", dueq.In(8*time.Second)),
	})
	must(t, err)
	pass(t, 500*time.Millisecond)
	proxy.Refuse()
	proxy.Cut()
	pass(t, 5*time.Second)
	proxy.Accept()
	back := time.Now()
	eventually(t, 15*time.Second, "both are handled", func() bool { return done.size() == 2 })
	_, during := done.of("q", "during")
	_, after := done.of("q", "after")
	t.Logf("due in the outage: handled %v after it; due later: %v after its due time", during.Sub(back), after.Sub(outcomes[1].Due))
	if late := during.Sub(back); late > time.Second+slack {
		t.Errorf("due in the outage: handled %v after it", late)
	}
	if late := after.Sub(outcomes[1].Due); late < 0 || late > time.Second {
		t.Errorf("due after the outage: handled %v after its due time, want at most 1 s", late)
	}
}

// fillBacklog connects until a connection is not established any more.
func fillBacklog(t *testing.T, addr string) {
	t.Helper()
	for range 10 {
		conn, err := net.DialTimeout("tcp", addr, 300*time.Millisecond)
		if err != nil {
			return
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatalf("%s still takes connections", addr)
}
