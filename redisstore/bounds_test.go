package redisstore_test

import (
	"bytes"
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

// What is large, many or broken on one queue costs that queue alone.

func TestBounds_large_bodies_do_not_keep_redis_busy(t *testing.T) {
	t.Parallel()
	srv := startQuick(t)
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), patient)
	_, err := store.SetSettings(t.Context(), "large", dueq.SettingsPatch{"body_max": fmt.Sprint(1 << 20)})
	must(t, err)
	body := bytes.Repeat([]byte("x"), 1<<20)
	const n = 64
	for i := range n {
		scheduleAll(t, store, []dueq.Item{{Queue: "large", Task: dueq.Task{ID: fmt.Sprint(i), Body: body}, When: past}})
	}
	must(t, raw.ConfigSet(t.Context(), "slowlog-log-slower-than", "0").Err())
	least := time.Hour
	for range 3 {
		must(t, raw.SlowLogReset(t.Context()).Err())
		if c := claim(t, store, "large", n); len(c.Tasks) != 1 || !bytes.Equal(c.Tasks[0].Body, body) {
			t.Fatalf("claimed %d tasks, want one with its body of 1 MiB", len(c.Tasks))
		}
		entries, err := raw.SlowLogGet(t.Context(), 100).Result()
		must(t, err)
		most := time.Duration(0)
		for _, e := range entries {
			if strings.HasPrefix(strings.ToLower(e.Args[0]), "eval") {
				most = max(most, e.Duration)
			}
		}
		least = min(least, most)
	}
	t.Logf("claim of one of %d bodies of 1 MiB: %v", n, least)
	if least == 0 || least > 100*time.Millisecond { // reading them all took 0.8 s
		t.Errorf("the claim took %v, want a few ms", least)
	}
}

func TestBounds_a_broken_queue_does_not_keep_others_from_being_scheduled_to(t *testing.T) {
	t.Parallel()
	srv := startQuick(t)
	store := openStore(t, srv.URL(), patient)
	must(t, srv.Client(t).Set(t.Context(), keysOf("broken")[keyScheduled], "x", 0).Err())
	all := []dueq.Item{item("broken", "x", past)}
	for i := range 20 { // more than one round trip carries
		all = append(all, item("good", fmt.Sprint(i), past, strings.Repeat("x", 64<<10)))
	}
	all = append(all, item("broken", "y", past))
	outcomes, err := store.Schedule(t.Context(), all)
	if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("got %v, want WRONGTYPE", err)
	}
	for i, o := range outcomes {
		if good := all[i].Queue == "good"; good != (o.Status == dueq.StatusScheduled) {
			t.Errorf("%s of %s: %+v", all[i].Task.ID, all[i].Queue, o)
		}
	}
}

func TestBounds_two_changes_of_settings_at_once_leave_valid_ones(t *testing.T) {
	t.Parallel()
	store := openStore(t, startQuick(t).URL(), patient)
	for i := range 50 {
		queue := fmt.Sprint("set:", i)
		var both sync.WaitGroup
		for name, value := range map[string]string{"lease": "1h", "lease_max": "10m"} {
			both.Go(func() {
				_, err := store.SetSettings(t.Context(), queue, dueq.SettingsPatch{name: value})
				if err != nil && !errors.Is(err, dueq.ErrInvalid) {
					t.Error(err)
				}
			})
		}
		both.Wait()
		_, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: queue, Max: 1})
		must(t, err)
	}
}

func TestBounds_an_unreadable_setting_stops_nobody_and_can_be_mended(t *testing.T) {
	t.Parallel()
	srv := startQuick(t)
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), patient)
	settings := keysOf("odd")[keySettings]
	must(t, raw.HSet(t.Context(), settings, "retries", "200000", "retry_first_ms", "soon", "max_late_ms", "never").Err())
	done := newLedger()
	startWorker(t, store, dueq.WorkerOptions{}, done, "odd")
	scheduleAll(t, store, []dueq.Item{item("odd", "a", past)})
	eventually(t, 10*time.Second, "the task is handled", func() bool { return done.size() == 1 })
	if _, err := store.Settings(t.Context(), "odd"); !errors.Is(err, dueq.ErrInvalid) || !strings.Contains(err.Error(), "retries") {
		t.Errorf("got %v, want ErrInvalid naming retries", err)
	}
	got, err := store.SetSettings(t.Context(), "odd", dueq.SettingsPatch{"retries": "5", "retry_first": dueq.Default, "max_late": "off"})
	must(t, err)
	if want := 5; got.Retries != want || got.RetryFirst != dueq.DefaultSettings().RetryFirst {
		t.Errorf("got %+v", got)
	}
}

func TestBounds_pages_list_what_waits_and_is_scheduled_once_more_once(t *testing.T) {
	t.Parallel()
	srv := startQuick(t)
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), patient)
	want := []string{"a", "b", "c", "d"}
	var all []dueq.Item
	for _, id := range want {
		all = append(all, dueq.Item{Queue: "twice", Task: dueq.Task{ID: id}, When: past})
	}
	scheduleAll(t, store, all)
	claim(t, store, "twice", 10)
	scheduleAll(t, store, all)
	claim(t, store, "twice", 10) // they wait behind their runs now
	for _, id := range want[:3] {
		must(t, raw.ZAdd(t.Context(), keysOf("twice")[keyScheduled], redis.Z{Score: 4e12, Member: id}).Err())
	}
	for limit := 1; limit <= 5; limit++ {
		var got []string
		for q := (dueq.ListQuery{Queue: "twice", State: dueq.StateScheduled, Limit: limit}); ; {
			page, err := store.List(t.Context(), q)
			must(t, err)
			for _, info := range page.Tasks {
				got = append(got, info.Member)
			}
			if q.Cursor = page.Cursor; q.Cursor == "" || len(got) > 10 {
				break
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d list %v, want %v", limit, got, want)
		}
	}
}

func TestBounds_who_may_not_subscribe_does_not_try_every_second(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	must(t, raw.Do(t.Context(), "ACL", "SETUSER", "w", "on", ">pw", "+@all", "~delay:*", "~{delay:*", "resetchannels").Err())
	store := openStore(t, "redis://w:pw@"+srv.Addr(), redisstore.Options{})
	hints, err := store.Wake(t.Context())
	must(t, err)
	denied := func() int {
		entries, err := raw.Do(t.Context(), "ACL", "LOG").Slice()
		must(t, err)
		return len(entries)
	}
	eventually(t, 5*time.Second, "the first attempt is denied", func() bool { return denied() > 0 })
	connections := func() string {
		for line := range strings.Lines(raw.Info(t.Context(), "stats").Val()) {
			if n, ok := strings.CutPrefix(line, "total_connections_received:"); ok {
				return n
			}
		}
		return ""
	}
	before := connections()
	pass(t, 2500*time.Millisecond)
	if after := connections(); after != before {
		t.Errorf("connections went from %s to %s", before, after)
	}
	select {
	case hint, open := <-hints:
		t.Errorf("got hint %v, open %v", hint, open)
	default:
	}
}
