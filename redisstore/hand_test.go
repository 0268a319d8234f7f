package redisstore_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// An active task is its lease: there is no second structure that could still
// call it active when the lease is gone.
func TestHand_an_active_entry_that_somebody_deletes_is_nowhere_counted_as_active(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), patient)
	scheduleAll(t, store, []dueq.Item{item("q", "x", past, "body")})
	task := claim(t, store, "q", 1).Tasks[0]
	must(t, raw.ZRem(t.Context(), keysOf("q")[keyActive], "x:k").Err())
	if st := statsOf(t, store, "q"); st.Active != 0 {
		t.Errorf("%d are active, want none", st.Active)
	}
	if infos, err := store.Get(t.Context(), "q", []string{"x:k"}); err != nil || infos[0].State != dueq.StateNone {
		t.Errorf("got %v, %v, want no such task", infos, err)
	}
	for what, call := range map[string]func() ([]dueq.Outcome, error){
		"extend": func() ([]dueq.Outcome, error) {
			return store.Extend(t.Context(), "q", []dueq.Lease{task.Lease}, time.Minute)
		},
		"ack": func() ([]dueq.Outcome, error) { return store.Settle(t.Context(), "q", []dueq.Result{{Task: task}}) },
	} {
		outcomes, err := call()
		must(t, err)
		if outcomes[0].Status != dueq.StatusLeaseLost {
			t.Errorf("%s: got %v, want lease lost", what, outcomes[0].Status)
		}
	}
	scheduleAll(t, store, []dueq.Item{item("q", "x", past)}) // somebody misses it
	if c := claim(t, store, "q", 1); len(c.Tasks) != 1 || len(c.Tasks[0].Body) != 0 || c.Tasks[0].Attempt != 1 {
		t.Errorf("claimed %+v, want the task as it was scheduled", c.Tasks)
	}
}

// Whatever somebody writes among the active ones comes back or is set aside.
func TestHand_an_active_entry_that_dueq_never_wrote_is_recovered_or_set_aside(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), patient)
	_, err := store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"retry_first": "1ms"})
	must(t, err)
	now := float64(time.Now().Unix()) * 1e6
	must(t, raw.ZAdd(t.Context(), keysOf("q")[keyActive],
		redis.Z{Score: 0, Member: "zero:k"}, redis.Z{Score: -1, Member: "negative:k"}, redis.Z{Score: math.Inf(-1), Member: "minus_inf:k"},
		redis.Z{Score: 0.5, Member: "fraction:k"}, redis.Z{Score: now, Member: "now:k"}, redis.Z{Score: now + 2e6 + 7.5, Member: "soon:k"},
		redis.Z{Score: 1, Member: "no member"}).Err())
	done := newLedger()
	startWorker(t, store, dueq.WorkerOptions{}, done, "q")
	eventually(t, 20*time.Second, "all that can run has run", func() bool { return done.size() == 6 })
	eventually(t, 10*time.Second, "none is active", func() bool { return statsOf(t, store, "q").Active == 0 })
	infos, err := store.Get(t.Context(), "q", []string{"no member"})
	must(t, err)
	if infos[0].State != dueq.StateDead || infos[0].LastError == "" {
		t.Errorf("what is no member: got %+v, want it dead with the reason", infos[0])
	}
}

// Scores that no clock ever shows neither run nor keep a worker busy.
func TestHand_scores_from_before_the_epoch_and_beyond_all_time_are_set_aside_and_cost_nothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), patient)
	done := newLedger()
	startWorker(t, openStore(t, srv.URL(), patient), dueq.WorkerOptions{}, done, "q")
	for i, score := range []float64{0, -1, -14400000, -62135596800000, math.Inf(-1), 1717023456, math.Inf(1), 1e300} {
		must(t, raw.ZAdd(t.Context(), keysOf("q")[keyScheduled], redis.Z{Score: score, Member: fmt.Sprint("bad", i, ":k")}).Err())
	}
	scheduleAll(t, store, []dueq.Item{item("q", "good", dueq.In(300*time.Millisecond))})
	eventually(t, 5*time.Second, "the good one is handled", func() bool { return done.size() == 1 })
	eventually(t, 5*time.Second, "the others are set aside", func() bool { return statsOf(t, store, "q").Dead == 8 })
	quieten(t, srv, 3)
	page, err := store.List(t.Context(), dueq.ListQuery{Queue: "q", State: dueq.StateDead})
	must(t, err)
	for _, info := range page.Tasks {
		if info.LastError == "" {
			t.Errorf("%s is dead without a reason", info.Member)
		}
	}
	if n, _ := done.of("q", "good"); n != 1 || done.size() != 1 {
		t.Errorf("%d ids ran, want the good one only", done.size())
	}
}

// A queue whose keys are unusable stops neither the others nor, once it is
// repaired, itself.
func TestHand_a_poisoned_queue_leaves_the_others_alone_and_recovers_when_repaired(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), redisstore.Options{})
	done, log := newLedger(), &logCounter{}
	startWorker(t, openStore(t, srv.URL(), redisstore.Options{}), dueq.WorkerOptions{Logger: log.logger()}, done, "a", "b")
	scheduleAll(t, store, []dueq.Item{item("a", "before", past), item("b", "before", past)})
	eventually(t, 5*time.Second, "both work", func() bool { return done.size() == 2 })
	for _, key := range []string{keysOf("a")[keyActive], keysOf("a")[keyStats], keysOf("a")[keyScheduled]} {
		must(t, raw.Rename(t.Context(), keysOf("a")[keyStats], "kept").Err())
		must(t, raw.Del(t.Context(), key).Err())
		must(t, raw.Set(t.Context(), key, "somebody else's", 0).Err())
		id := "while " + key
		id = strings.NewReplacer(" ", "_", "{", "", "}", "").Replace(id)
		outcomes, err := store.Schedule(t.Context(), []dueq.Item{item("b", id, dueq.In(500*time.Millisecond))})
		must(t, err)
		eventually(t, 10*time.Second, "the other queue works", func() bool { n, _ := done.of("b", id); return n == 1 })
		if _, at := done.of("b", id); at.Sub(outcomes[0].Due) > time.Second {
			t.Errorf("with a bad %s the other queue's task ran %v late, want at most 1 s", key, at.Sub(outcomes[0].Due))
		}
		must(t, raw.Del(t.Context(), key).Err())
		must(t, raw.Rename(t.Context(), "kept", keysOf("a")[keyStats]).Err())
		scheduleAll(t, store, []dueq.Item{item("a", id, past)})
		eventually(t, 15*time.Second, "it recovers", func() bool { n, _ := done.of("a", id); return n == 1 })
	}
	if !strings.Contains(log.String(), "WRONGTYPE") {
		t.Errorf("the log does not say what is wrong:\n%s", log)
	}
}

// Failing for ever leaves no more behind than failing once.
func TestHand_a_thousand_failures_with_long_errors_do_not_grow(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), patient)
	_, err := store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"retries": "10000"})
	must(t, err)
	scheduleAll(t, store, []dueq.Item{item("q", "x", past)})
	text := strings.Repeat("because ", 12_800) // 100 KiB
	size := func() (sum int64) {
		for _, key := range keysOf("q") {
			if n, err := raw.MemoryUsage(t.Context(), key).Result(); err == nil {
				sum += n
			} else if !errors.Is(err, redis.Nil) {
				t.Fatal(err)
			}
		}
		return sum
	}
	var first int64
	for i := range 1000 {
		var c dueq.Claim
		eventually(t, 5*time.Second, "it is due again", func() bool { c = claim(t, store, "q", 1); return len(c.Tasks) == 1 })
		if c.Tasks[0].Attempt != i+1 {
			t.Fatalf("attempt %d, want %d", c.Tasks[0].Attempt, i+1)
		}
		_, err := store.Settle(t.Context(), "q", []dueq.Result{{Task: c.Tasks[0], Verdict: dueq.VerdictRetry, Delay: time.Microsecond, Err: text}})
		must(t, err)
		if i == 0 {
			first = size()
		}
	}
	if last := size(); last > first+512 {
		t.Errorf("%d bytes after a thousand failures, %d after the first", last, first)
	}
	must(t, dueq.NewClient(store, dueq.ClientOptions{}).Cancel(t.Context(), "q", "x:k"))
	for i, key := range keysOf("q") {
		if i != keySettings && i != keyStats && raw.Exists(t.Context(), key).Val() != 0 {
			t.Errorf("%s is left after the cancel", key)
		}
	}
}

func TestHand_acks_of_members_that_no_task_has_change_nothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	store := openStore(t, srv.URL(), patient)
	scheduleAll(t, store, []dueq.Item{item("q", "a", past), item("q", "b", past)})
	claimed := claim(t, store, "q", 2).Tasks
	var results []dueq.Result
	for _, member := range []string{"a:k b:k", "", " "} {
		other := *claimed[0]
		other.Lease.Member = member
		results = append(results, dueq.Result{Task: &other})
	}
	results = append(results, dueq.Result{Task: claimed[0]}, dueq.Result{Task: claimed[1]})
	outcomes, err := store.Settle(t.Context(), "q", results)
	must(t, err)
	for i, o := range outcomes {
		want := dueq.StatusLeaseLost
		if i >= 3 {
			want = dueq.StatusDone
		}
		if o.Status != want {
			t.Errorf("ack of %q: %v, want %v", results[i].Task.Lease.Member, o.Status, want)
		}
	}
}
