package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

func isUnavailable(err error) bool { return errors.Is(err, dueq.ErrUnavailable) }

func mayHaveHappened(err error) bool {
	var call *dueq.CallError
	return errors.As(err, &call) && call.MayHaveHappened
}

func TestOpen(t *testing.T) {
	t.Parallel()

	t.Run("refuses_a_server_that_is_too_old", func(t *testing.T) {
		for info, ok := range map[string]bool{
			"# Server\r\nredis_version:6.2.14\r\nredis_mode:standalone\r\n":                     false,
			"# Server\r\nredis_version:2.8.0\r\n":                                               false,
			"# Server\r\nredis_version:7.0.0\r\n":                                               true,
			"# Server\r\nredis_version:7.4.1\r\n":                                               true,
			"# Server\r\nredis_version:8.0\r\n":                                                 true,
			"# Server\r\nredis_version:10.0.0\r\n":                                              true,
			"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:7.2.5\r\n": true,
			"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\n": true,
			"# Server\r\nredis_version:255.255.255\r\n":                                         true,
			"": true, // it does not tell
		} {
			err := redisstore.CheckVersion(info)
			if ok != (err == nil) {
				t.Errorf("%q: got %v, want accepted %v", info, err, ok)
			}
			if err != nil && (!strings.Contains(err.Error(), "7.0") || !strings.Contains(err.Error(), "too old")) {
				t.Errorf("%q: the error does not say what is needed: %v", info, err)
			}
		}
	})

	t.Run("never_shows_the_password_of_a_URL_it_cannot_read", func(t *testing.T) {
		const secret = "s3cr3t"
		for _, url := range []string{
			"redis://:s3cr3t@127.0.0.1:99999999",
			"redis://user:s3cr3t@host:port/0",
			"redis://user:s3cr3t@[::1",
			"redis://user:s3cr3t@127.0.0.1:6379/not-a-number",
			"redis://user:s3cr3t@127.0.0.1:6379/0?dial_timeout=s3cr3t",
			"redis://user:s3cr3t@127.0.0.1:6379/0?nonsense=s3cr3t",
			"redis://user:s3cr3t%zz@127.0.0.1:6379",
			"redis://user:s3cr3t @127.0.0.1:6379",
			"redis://user:\x7fs3cr3t@127.0.0.1:6379",
			"redis://user:s3cr3t/@127.0.0.1:6379",
			"redis://us/er:s3cr3t@127.0.0.1:6379",
			"http://user:s3cr3t@127.0.0.1:6379",
			"user:s3cr3t@127.0.0.1:6379",
			"s3cr3t",
		} {
			store, err := redisstore.Open(url, redisstore.Options{Timeout: 50 * time.Millisecond})
			if err == nil {
				_ = store.Close()
				t.Errorf("%q was accepted", url)
				continue
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q: the error shows the password: %v", url, err)
			}
		}
	})

	t.Run("says_that_the_password_is_wrong_without_showing_it", func(t *testing.T) {
		srv := redistest.Start(t, redistest.WithConfig("requirepass", "right"))
		openStore(t, srv.URL(), redisstore.Options{})
		for url, want := range map[string]string{
			"redis://:wr0ng-s3cr3t@" + srv.Addr():    "WRONGPASS",
			"redis://eve:wr0ng-s3cr3t@" + srv.Addr(): "WRONGPASS",
			"redis://" + srv.Addr():                  "NOAUTH",
		} {
			_, err := redisstore.Open(url, redisstore.Options{})
			if err == nil || !strings.Contains(err.Error(), want) || isUnavailable(err) {
				t.Errorf("%s: got %v, want %s that is not ErrUnavailable", url, err, want)
			}
			if err != nil && strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("the error shows the password: %v", err)
			}
		}
	})

	t.Run("says_that_nobody_answers_within_its_timeout", func(t *testing.T) {
		srv := redistest.Start(t)
		srv.Pause()
		defer srv.Resume()
		began := time.Now()
		_, err := redisstore.Open(srv.URL(), redisstore.Options{Timeout: 300 * time.Millisecond})
		if took := time.Since(began); took > 300*time.Millisecond+slack {
			t.Errorf("took %v, want 300 ms", took)
		}
		wantUnavailable(t, "open of a silent server", err, "")
	})

	t.Run("says_that_nobody_listens", func(t *testing.T) {
		srv := redistest.Start(t)
		srv.Kill()
		_, err := redisstore.Open(srv.URL(), redisstore.Options{})
		wantUnavailable(t, "open of a dead server", err, "refused")
		if mayHaveHappened(err) {
			t.Errorf("nothing was sent, but the error says it may have happened: %v", err)
		}
	})
}

// TestPermissions gives users all but one right.
func TestPermissions(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	user := func(t *testing.T, rules ...string) string {
		_, name, _ := strings.Cut(t.Name(), "/")
		args := []string{"reset", "on", ">pw", "~delay:*", "~{delay:*", "&delay:*", "+@all", "-@dangerous", "+info", "-@admin"}
		must(t, admin.ACLSetUser(t.Context(), name, append(args, rules...)...).Err())
		return "redis://" + name + ":pw@" + srv.Addr()
	}

	works := func(t *testing.T, url, queue string) {
		log := &logCounter{}
		store := openStore(t, url, patient)
		done := newLedger()
		startWorker(t, store, dueq.WorkerOptions{Logger: log.logger()}, done, queue)
		client := dueq.NewClient(store, dueq.ClientOptions{})
		for i, when := range []dueq.When{dueq.In(0), dueq.In(50 * time.Millisecond), dueq.In(300 * time.Millisecond)} {
			o, err := client.Schedule(t.Context(), queue, dueq.Task{ID: string(rune('a' + i)), Body: []byte("b")}, when)
			if err != nil || o.Status != dueq.StatusScheduled {
				t.Fatalf("schedule: got %v, %v", o.Status, err)
			}
		}
		eventually(t, 3*time.Second+slack, "three tasks handled", func() bool { return done.size() == 3 })
		_, err := store.SetSettings(t.Context(), queue, dueq.SettingsPatch{"retries": "5"})
		must(t, err)
		eventually(t, slack, "all settled", func() bool { return statsOf(t, store, queue).Totals.Acked == 3 })
		if text := log.String(); strings.Contains(text, "level=ERROR") || strings.Contains(text, "store call failed") {
			t.Errorf("the worker complained:\n%s", text)
		}
	}

	t.Run("exactly_the_documented_ones_suffice", func(t *testing.T) {
		works(t, user(t), "acl:all")
	})
	t.Run("without_channels_it_works_by_scanning", func(t *testing.T) {
		works(t, user(t, "resetchannels"), "acl:channels")
	})
	t.Run("without_info_and_script_load_it_works", func(t *testing.T) {
		works(t, user(t, "-info", "-script"), "acl:info")
	})
	t.Run("without_subscribe_and_publish_it_works", func(t *testing.T) {
		works(t, user(t, "-subscribe", "-publish"), "acl:publish")
	})
	t.Run("without_evalsha_opening_fails_naming_it_and_is_not_to_be_retried", func(t *testing.T) {
		_, err := redisstore.Open(user(t, "-evalsha"), redisstore.Options{})
		if err == nil || !strings.Contains(err.Error(), "NOPERM") || !strings.Contains(err.Error(), "evalsha") || isUnavailable(err) {
			t.Errorf("got %v, want NOPERM naming evalsha that is not ErrUnavailable", err)
		}
	})
	t.Run("a_command_denied_later_inside_a_script_is_an_error_and_schedules_nothing", func(t *testing.T) {
		store := openStore(t, user(t), redisstore.Options{})
		user(t, "-zadd")
		_, err := store.Schedule(t.Context(), []dueq.Item{item("acl:zadd", "a", dueq.In(0), "body")})
		if err == nil || isUnavailable(err) {
			t.Errorf("got %v, want an error that is not ErrUnavailable", err)
		}
		t.Logf("the error is: %v", err)
		if st := statsOf(t, store, "acl:zadd"); st.Scheduled != 0 || st.Totals.Scheduled != 0 {
			t.Errorf("got %+v, want nothing scheduled", st)
		}
	})
	t.Run("opening_with_the_prefix_of_others_is_denied", func(t *testing.T) {
		_, err := redisstore.Open(user(t), redisstore.Options{Prefix: "other:"})
		if err == nil || !strings.Contains(err.Error(), "NOPERM") || isUnavailable(err) {
			t.Errorf("got %v, want NOPERM that is not ErrUnavailable", err)
		}
	})
}

// TestNew uses a client as its owner configured it.
func TestNew(t *testing.T) {
	t.Parallel()
	t.Run("leaves_the_client_open", func(t *testing.T) {
		srv := redistest.Start(t)
		raw := srv.Client(t)
		store, err := redisstore.New(raw, redisstore.Options{})
		must(t, err)
		must(t, store.Close())
		must(t, raw.Ping(t.Context()).Err())
		if _, err := store.Get(t.Context(), "q", []string{"a"}); !errors.Is(err, dueq.ErrClosed) {
			t.Errorf("Get after Close: got %v, want ErrClosed", err)
		}
	})
	t.Run("works_over_RESP2", func(t *testing.T) {
		srv := redistest.Start(t)
		client := redis.NewClient(&redis.Options{Addr: srv.Addr(), Protocol: 2})
		defer client.Close()
		store, err := redisstore.New(client, redisstore.Options{})
		must(t, err)
		done := newLedger()
		startWorker(t, store, dueq.WorkerOptions{}, done, "q")
		scheduleAll(t, store, items("q", 10, dueq.In(10*time.Millisecond)))
		eventually(t, 3*time.Second, "all handled", func() bool { return done.size() == 10 })
	})
	for _, commands := range [][]string{{"HELLO"}, {"CLIENT"}, {"HELLO", "CLIENT"}} {
		t.Run("works_without_"+strings.Join(commands, "_and_"), func(t *testing.T) {
			var opts []redistest.Option
			for _, command := range commands {
				opts = append(opts, redistest.WithConfig("rename-command", command+` ""`))
			}
			srv := redistest.Start(t, opts...)
			client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
			defer client.Close()
			theirs, err := redisstore.New(client, redisstore.Options{})
			must(t, err)
			for i, store := range []dueq.Store{openStore(t, srv.URL(), redisstore.Options{}), theirs} {
				queue := fmt.Sprint("q", i)
				done := newLedger()
				startWorker(t, store, dueq.WorkerOptions{}, done, queue)
				scheduleAll(t, store, items(queue, 10, dueq.In(10*time.Millisecond)))
				eventually(t, 5*time.Second, "all are handled", func() bool { return done.size() == 10 })
			}
		})
	}
}

func TestRefusals_of_a_server_are_unavailable_and_change_nothing(t *testing.T) {
	t.Parallel()
	schedule := func(t *testing.T, store dueq.Store) error {
		_, err := store.Schedule(t.Context(), []dueq.Item{item("q", "new", past, "body")})
		return err
	}
	claims := func(t *testing.T, store dueq.Store) error {
		_, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 10})
		return err
	}
	check := func(t *testing.T, store dueq.Store, want string, calls ...func(*testing.T, dueq.Store) error) {
		t.Helper()
		for i, call := range calls {
			err := call(t, store)
			wantUnavailable(t, fmt.Sprintf("call %d", i), err, want)
			if mayHaveHappened(err) {
				t.Errorf("call %d: %v, but the server refused", i, err)
			}
		}
	}

	t.Run("READONLY_and_MASTERDOWN_of_a_replica", func(t *testing.T) {
		master := redistest.Start(t, redistest.WithConfig("repl-diskless-sync-delay", "0"))
		replica := redistest.Start(t)
		scheduleAll(t, openStore(t, master.URL(), redisstore.Options{}), items("q", 10, past))
		store := openStore(t, replica.URL(), redisstore.Options{})
		raw := replica.Client(t)
		host, port, _ := strings.Cut(master.Addr(), ":")
		must(t, raw.ReplicaOf(t.Context(), host, port).Err())
		eventually(t, 20*time.Second, "the replica has the data", func() bool { return statsOf(t, store, "q").Scheduled == 10 })
		check(t, store, "READONLY", schedule, claims)
		if st := statsOf(t, store, "q"); st.Scheduled != 10 || st.Active != 0 {
			t.Errorf("a replica was written to: %+v", st)
		}
		must(t, raw.ConfigSet(t.Context(), "replica-serve-stale-data", "no").Err())
		master.Kill()
		stats := func(t *testing.T, store dueq.Store) error {
			_, err := store.Stats(t.Context(), "q")
			return err
		}
		eventually(t, 10*time.Second, "the replica noticed", func() bool { return stats(t, store) != nil })
		check(t, store, "MASTERDOWN", stats)
		must(t, raw.ReplicaOf(t.Context(), "NO", "ONE").Err())
		must(t, schedule(t, store)) // failed over
		if c := claim(t, store, "q", 100); len(c.Tasks) != 11 {
			t.Errorf("claimed %d after the failover, want 11", len(c.Tasks))
		}
	})
	t.Run("MISCONF_when_it_cannot_save", func(t *testing.T) {
		srv := redistest.Start(t, redistest.WithConfig("save", "3600 1"), redistest.WithConfig("stop-writes-on-bgsave-error", "yes"))
		raw := srv.Client(t)
		store := openStore(t, srv.URL(), redisstore.Options{})
		dir := raw.ConfigGet(t.Context(), "dir").Val()["dir"]
		must(t, os.Mkdir(filepath.Join(dir, "dump.rdb"), 0o700)) // in the way of the file
		eventually(t, 10*time.Second, "saving failed", func() bool {
			_ = raw.BgSave(t.Context()).Err()
			return strings.Contains(fmt.Sprint(schedule(t, store)), "MISCONF")
		})
		check(t, store, "MISCONF", schedule, claims)
	})
	t.Run("NOREPLICAS_when_it_needs_some", func(t *testing.T) {
		srv := redistest.Start(t)
		store := openStore(t, srv.URL(), redisstore.Options{})
		must(t, srv.Client(t).ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
		check(t, store, "NOREPLICAS", schedule, claims)
	})
	t.Run("BUSY_with_a_script_of_somebody_else", func(t *testing.T) {
		srv := redistest.Start(t, redistest.WithConfig("busy-reply-threshold", "50"))
		raw := srv.Client(t)
		store := openStore(t, srv.URL(), redisstore.Options{})
		endless := make(chan error, 1)
		go func() { endless <- raw.Eval(context.WithoutCancel(t.Context()), "while true do end", nil).Err() }()
		eventually(t, 10*time.Second, "the script runs", func() bool {
			return strings.Contains(fmt.Sprint(srv.Client(t).Ping(t.Context()).Err()), "BUSY")
		})
		check(t, store, "BUSY", schedule, claims)
		must(t, raw.ScriptKill(t.Context()).Err())
		<-endless
		must(t, schedule(t, store))
	})
	t.Run("CLUSTERDOWN_of_a_node_without_slots", func(t *testing.T) {
		srv := redistest.Start(t, redistest.WithConfig("cluster-enabled", "yes"))
		check(t, openStore(t, srv.URL(), redisstore.Options{}), "CLUSTERDOWN", schedule, claims)
	})
	t.Run("too_many_clients", func(t *testing.T) {
		srv := redistest.Start(t)
		raw := srv.Client(t)
		store := openStore(t, srv.URL(), redisstore.Options{})
		must(t, raw.Do(t.Context(), "client", "kill", "type", "normal").Err())
		must(t, raw.ConfigSet(t.Context(), "maxclients", "1").Err()) // this one
		seen := map[bool]int{}
		for range 30 { // the server hangs up at once, so its reason is not always read
			err := claims(t, store)
			if !isUnavailable(err) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
			seen[strings.Contains(fmt.Sprint(err), "max number of clients")]++
		}
		t.Logf("the reason was read: %v", seen)
		must(t, raw.ConfigSet(t.Context(), "maxclients", "100").Err())
		must(t, schedule(t, store))
	})
	t.Run("a_connection_that_the_server_closed_is_replaced", func(t *testing.T) {
		srv := redistest.Start(t)
		raw := srv.Client(t)
		store := openStore(t, srv.URL(), redisstore.Options{})
		for range 5 {
			must(t, raw.Do(t.Context(), "client", "kill", "type", "normal").Err())
			err := schedule(t, store)
			if err != nil && !errors.Is(err, dueq.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			must(t, schedule(t, store))
		}
	})
}
