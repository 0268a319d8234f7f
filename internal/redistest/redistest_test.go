package redistest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestStart(t *testing.T) {
	t.Parallel()

	t.Run("gives_each_test_an_empty_server_of_its_own", func(t *testing.T) {
		t.Parallel()
		addrs := make(chan string, 8)
		var group sync.WaitGroup
		for range cap(addrs) {
			group.Go(func() {
				s := Start(t)
				if size, err := s.Client(t).DBSize(t.Context()).Result(); size != 0 || err != nil {
					t.Errorf("DBSIZE: got %d, %v, want an empty server", size, err)
				}
				addrs <- s.Addr()
			})
		}
		group.Wait()
		close(addrs)
		seen := make(map[string]bool)
		for addr := range addrs {
			if seen[addr] {
				t.Errorf("two servers on %s", addr)
			}
			seen[addr] = true
		}
	})

	t.Run("address_and_URL_lead_to_the_process", func(t *testing.T) {
		t.Parallel()
		s := Start(t)
		if got, want := s.URL(), "redis://"+s.Addr(); got != want {
			t.Errorf("URL: got %s, want %s", got, want)
		}
		info, err := s.Client(t).InfoMap(t.Context(), "server").Result()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := info["Server"]["process_id"], itoa(s.PID()); got != want {
			t.Errorf("process_id: got %s, want %s", got, want)
		}
	})

	t.Run("takes_configuration_and_a_password", func(t *testing.T) {
		t.Parallel()
		s := Start(t, WithConfig("requirepass", "s3:cret/"), WithConfig("maxmemory-policy", "allkeys-lru"))
		opt, err := redis.ParseURL(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		byURL := redis.NewClient(opt)
		defer byURL.Close()
		for _, c := range []*redis.Client{byURL, s.Client(t)} {
			got, err := c.ConfigGet(t.Context(), "maxmemory-policy").Result()
			if err != nil || got["maxmemory-policy"] != "allkeys-lru" {
				t.Errorf("maxmemory-policy: got %v, %v, want allkeys-lru", got, err)
			}
		}
		if calls := s.Commands(t); calls["auth"] != 0 || calls["config|get"] != 2 {
			t.Errorf("commands: got %v, want two config|get and no auth", calls)
		}
	})

	t.Run("reports_the_log_of_a_server_that_cannot_start", func(t *testing.T) {
		t.Parallel()
		s, err := newServer(t, []Option{WithConfig("no-such-setting", "1")})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.startOnFreePort(); err == nil || !strings.Contains(err.Error(), "no-such-setting") {
			t.Errorf("got %v, want the log's complaint about no-such-setting", err)
		}
	})

	t.Run("knows_a_taken_port", func(t *testing.T) {
		t.Parallel()
		first := Start(t)
		second, err := newServer(t, nil)
		if err != nil {
			t.Fatal(err)
		}
		second.port = first.port
		if err := second.launch(); !errors.Is(err, errPortTaken) {
			t.Errorf("got %v, want errPortTaken", err)
		}
	})

	t.Run("refuses_a_clock_it_cannot_set", func(t *testing.T) {
		t.Parallel()
		if _, err := newServer(t, []Option{WithClock(time.Unix(-1, 0))}); err == nil {
			t.Error("got no error for 1969")
		}
	})
}

func TestStartWithoutRedisServerFails(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s, err := newServer(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.startOnFreePort(); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v, want exec.ErrNotFound", err)
	}
}

func TestLifecycle(t *testing.T) {
	t.Parallel()

	t.Run("kill_and_restart_with_AOF_keep_the_data", func(t *testing.T) {
		t.Parallel()
		s := Start(t, WithAOF())
		c, addr, pid := s.Client(t), s.Addr(), s.PID()
		mustSet(t, c, "a", "1")
		s.Kill()
		mustRefuse(t, s)
		s.Restart()
		mustGet(t, c, "a", "1")
		mustSet(t, c, "b", "2")
		if s.Addr() != addr || s.PID() == pid {
			t.Errorf("got %s with pid %d, want %s with a new pid", s.Addr(), s.PID(), addr)
		}
	})

	t.Run("kill_and_restart_without_AOF_lose_the_data", func(t *testing.T) {
		t.Parallel()
		s := Start(t)
		c := s.Client(t)
		mustSet(t, c, "a", "1")
		s.Kill()
		s.Restart()
		if err := c.Get(t.Context(), "a").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("GET: got %v, want redis.Nil", err)
		}
	})

	t.Run("stop_is_polite_and_may_be_repeated", func(t *testing.T) {
		t.Parallel()
		s := Start(t, WithAOF())
		c := s.Client(t)
		mustSet(t, c, "a", "1")
		s.Stop()
		mustRefuse(t, s)
		if log := s.logTail(); !strings.Contains(log, "ready to exit") {
			t.Errorf("log does not tell of a polite end:\n%s", log)
		}
		s.Stop()
		s.Kill()
		s.Restart()
		mustGet(t, c, "a", "1")
	})

	t.Run("restart_of_a_running_server_stops_it_first", func(t *testing.T) {
		t.Parallel()
		s := Start(t, WithAOF())
		mustSet(t, s.Client(t), "a", "1")
		s.Restart()
		mustGet(t, s.Client(t), "a", "1")
	})

	t.Run("pause_makes_a_client_time_out_and_resume_answers", func(t *testing.T) {
		t.Parallel()
		s := Start(t)
		s.Pause()
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, ReadTimeout: 50 * time.Millisecond})
		defer c.Close()
		var timeout net.Error
		if err := c.Get(t.Context(), "a").Err(); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("GET while paused: got %v, want a timeout", err)
		}
		s.Resume()
		mustSet(t, s.Client(t), "a", "1")
	})

	t.Run("a_paused_server_can_be_stopped_and_killed", func(t *testing.T) {
		t.Parallel()
		s := Start(t)
		s.Pause()
		s.Stop()
		s.Restart()
		s.Pause()
		s.Kill()
		mustRefuse(t, s)
	})
}

// TestServersDieWithTheTestProcess runs itself in a child, which starts a server
// and is killed.
func TestServersDieWithTheTestProcess(t *testing.T) {
	t.Parallel()
	if os.Getenv("REDISTEST_CHILD") != "" {
		_, _ = os.Stdout.WriteString(Start(t).Addr() + "\n")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "REDISTEST_CHILD=1", "TMPDIR="+t.TempDir())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, readErr := bufio.NewReader(stdout).ReadString('\n')
	conn, dialErr := net.Dial("tcp", strings.TrimSpace(line))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if readErr != nil || dialErr != nil {
		t.Fatalf("child's server %q: %v, %v", line, readErr, dialErr)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("connection to the child's server: got %v, want it closed", err)
	}
}

func TestFill(t *testing.T) {
	t.Parallel()

	t.Run("makes_writes_fail_until_relieved", func(t *testing.T) {
		t.Parallel()
		s := Start(t, WithConfig("maxmemory", "100mb"), WithConfig("maxmemory-policy", "allkeys-lru"))
		c := s.Client(t)
		mustSet(t, c, "a", "1")
		s.Fill(t)
		s.Fill(t)
		mustOOM(t, c)
		mustGet(t, c, "a", "1")
		s.Relieve(t)
		s.Relieve(t)
		mustSet(t, c, "a", "2")
		got := c.ConfigGet(t.Context(), "maxmemory*").Val()
		if got["maxmemory"] != "104857600" || got["maxmemory-policy"] != "allkeys-lru" {
			t.Errorf("limits after Relieve: got %v, want those from before", got)
		}
	})

	t.Run("ends_with_a_restart", func(t *testing.T) {
		t.Parallel()
		s := Start(t)
		c := s.Client(t)
		s.Fill(t)
		s.Restart()
		mustSet(t, c, "a", "1")
		s.Fill(t)
		mustOOM(t, c)
		s.Relieve(t)
		mustSet(t, c, "a", "1")
	})
}

func TestCommandsAndProcessedCountTheTestsCommandsOnly(t *testing.T) {
	t.Parallel()
	s := Start(t)
	if n, calls := s.Processed(t), s.Commands(t); n != 0 || len(calls) != 0 {
		t.Errorf("fresh server: got %d, %v, want nothing", n, calls)
	}
	c := s.Client(t)
	mustSet(t, c, "a", "1")
	s.Fill(t)
	s.Relieve(t)
	c.Get(t.Context(), "a")
	c.Get(t.Context(), "a")
	c.Eval(t.Context(), "return redis.call('GET', KEYS[1])", []string{"a"})
	c.ConfigGet(t.Context(), "port")
	want := map[string]int64{"hello": 1, "set": 1, "get": 3, "eval": 1, "config|get": 1}
	var sum int64
	got := s.Commands(t)
	for name, n := range want {
		sum += n
		if got[name] != n {
			t.Errorf("%s: got %d calls, want %d", name, got[name], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("commands: got %v, want %v", got, want)
	}
	if n := s.Processed(t); n != sum {
		t.Errorf("processed: got %d, want %d", n, sum)
	}
	s.Restart()
	if n, calls := s.Processed(t), s.Commands(t); n != 0 || len(calls) != 0 {
		t.Errorf("after restart: got %d, %v, want nothing", n, calls)
	}
}

// The start of the clock tests: a leap day, with every decimal used.
var start = time.Date(2024, time.February, 29, 23, 59, 58, 123456789, time.UTC)

func TestClock(t *testing.T) {
	t.Parallel()

	t.Run("stands_still_and_steps_to_the_microsecond", func(t *testing.T) {
		t.Parallel()
		s := Start(t, WithClock(start))
		c := s.Client(t)
		mustShow(t, s, c, start)
		mustShow(t, s, c, start)
		for i, step := range []time.Duration{time.Microsecond, -time.Microsecond, -time.Hour, 48 * time.Hour, 999 * time.Millisecond} {
			want := s.Now().Add(step)
			s.Advance(step)
			mustShow(t, s, c, want)
			if t.Failed() {
				t.Fatalf("at step %d, %v", i, step)
			}
		}
	})

	t.Run("shows_extremes_and_other_zones", func(t *testing.T) {
		t.Parallel()
		s := Start(t, WithClock(start))
		c := s.Client(t)
		for _, at := range []time.Time{
			time.Unix(1, 0),
			time.Date(2038, 1, 19, 3, 14, 8, 999_999_999, time.UTC),
			time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
			time.Date(2026, 3, 29, 2, 30, 0, 1000, time.FixedZone("", 2*3600)),
			time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		} {
			s.SetTime(at)
			mustShow(t, s, c, at)
		}
	})

	t.Run("answers_200_stepped_times_exactly", func(t *testing.T) {
		t.Parallel()
		s := Start(t, WithClock(start))
		c := s.Client(t)
		const step = 13*time.Hour + 7*time.Second + 1234567*time.Microsecond
		for i := range 200 {
			s.SetTime(start.Add(time.Duration(i*i%211) * step))
			mustShow(t, s, c, s.Now())
		}
	})

	t.Run("rules_expiry_and_scripts", func(t *testing.T) {
		t.Parallel()
		s := Start(t, WithClock(start))
		c := s.Client(t)
		if err := c.Set(t.Context(), "a", "1", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		s.Advance(time.Hour - time.Millisecond)
		mustGet(t, c, "a", "1")
		s.Advance(2 * time.Millisecond)
		if err := c.Get(t.Context(), "a").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("GET after expiry: got %v, want redis.Nil", err)
		}
		got, err := c.Eval(t.Context(), "return redis.call('TIME')", nil).StringSlice()
		want := []string{itoa(int(s.Now().Unix())), itoa(s.Now().Nanosecond() / 1000)}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("TIME in a script: got %v, %v, want %v", got, err, want)
		}
	})

	t.Run("rules_the_timeout_of_blocking_commands", func(t *testing.T) {
		t.Parallel()
		s := Start(t, WithClock(start))
		c := s.Client(t)
		answered := make(chan error, 1)
		go func() { answered <- c.BLPop(t.Context(), time.Hour, "list").Err() }()
		eventually(t, "a blocked client", func() bool {
			return s.mustInfo(t, "clients")["blocked_clients"] == "1"
		})
		s.Advance(time.Hour + time.Second)
		select {
		case err := <-answered:
			if !errors.Is(err, redis.Nil) {
				t.Errorf("BLPOP: got %v, want redis.Nil", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("BLPOP did not time out after the clock passed its timeout")
		}
	})

	t.Run("survives_restarts_and_may_step_while_the_server_is_down", func(t *testing.T) {
		t.Parallel()
		s := Start(t, WithClock(start), WithAOF())
		c := s.Client(t)
		if err := c.Set(t.Context(), "a", "1", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		s.Kill()
		s.Restart()
		mustShow(t, s, c, start)
		mustGet(t, c, "a", "1")
		s.Stop()
		s.Advance(2 * time.Hour)
		s.Restart()
		mustShow(t, s, c, start.Add(2*time.Hour))
		if err := c.Get(t.Context(), "a").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("GET after expiry: got %v, want redis.Nil", err)
		}
	})

	t.Run("lets_the_server_rewrite_its_AOF", func(t *testing.T) {
		t.Parallel()
		s := Start(t, WithClock(start), WithAOF())
		c := s.Client(t)
		mustSet(t, c, "a", "1")
		if err := c.BgRewriteAOF(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the rewrite", func() bool {
			info := s.mustInfo(t, "persistence")
			return info["aof_rewrite_in_progress"] == "0" && info["aof_rewrites"] == "1"
		})
		if got := s.mustInfo(t, "persistence")["aof_last_bgrewrite_status"]; got != "ok" {
			t.Errorf("rewrite: got %s, want ok", got)
		}
		s.Kill()
		s.Restart()
		mustGet(t, c, "a", "1")
	})

	t.Run("belongs_to_one_server", func(t *testing.T) {
		t.Parallel()
		a, b := Start(t, WithClock(start)), Start(t, WithClock(start))
		a.Advance(time.Minute)
		mustShow(t, a, a.Client(t), start.Add(time.Minute))
		mustShow(t, b, b.Client(t), start)
		b.Kill()
		b.Restart()
		mustShow(t, a, a.Client(t), start.Add(time.Minute))
	})

	t.Run("leaves_no_shared_memory", func(t *testing.T) {
		t.Parallel()
		s := Start(t, WithClock(start))
		for _, path := range []string{"/dev/shm/faketime_shm_", "/dev/shm/sem.faketime_sem_"} {
			if _, err := os.Stat(path + itoa(s.PID())); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s%d: got %v, want os.ErrNotExist", path, s.PID(), err)
			}
		}
	})
}

func TestRunningClock(t *testing.T) {
	t.Parallel()

	t.Run("runs_with_the_machine_and_steps_both_ways", func(t *testing.T) {
		t.Parallel()
		s := Start(t, WithRunningClock())
		c := s.Client(t)
		offset := time.Duration(0)
		mustRun(t, s, c, offset)
		for _, step := range []time.Duration{
			500 * time.Millisecond, -500 * time.Millisecond, -time.Hour, time.Hour, -1500 * time.Microsecond, 48 * time.Hour,
		} {
			s.Advance(step)
			offset += step
			mustRun(t, s, c, offset)
		}
		at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		offset = time.Until(at)
		s.SetTime(at)
		mustRun(t, s, c, offset)
	})

	t.Run("keeps_its_step_over_restarts", func(t *testing.T) {
		t.Parallel()
		s := Start(t, WithRunningClock(), WithAOF())
		c := s.Client(t)
		s.Advance(-time.Hour)
		s.Kill()
		s.Restart()
		mustRun(t, s, c, -time.Hour)
		s.Stop()
		s.Advance(3 * time.Hour)
		s.Restart()
		mustRun(t, s, c, 2*time.Hour)
	})

	t.Run("moves_on_by_itself", func(t *testing.T) {
		t.Parallel()
		s := Start(t, WithRunningClock())
		c := s.Client(t)
		s.Advance(time.Hour)
		first := c.Time(t.Context()).Val()
		eventually(t, "the clock to move on", func() bool { return c.Time(t.Context()).Val().After(first) })
	})
}

// mustRun fails unless Redis and Now tell the machine's time plus the offset,
// within what it takes to ask.
func mustRun(t *testing.T, s *Server, c *redis.Client, offset time.Duration) {
	t.Helper()
	const slack = 20 * time.Millisecond
	before := time.Now().Add(offset - slack)
	got, err := c.Time(t.Context()).Result()
	now := s.Now()
	after := time.Now().Add(offset + slack)
	for _, shown := range []time.Time{got, now} {
		if err != nil || shown.Before(before) || shown.After(after) {
			t.Fatalf("TIME: got %v, %v, Now %v, want %v to %v", got, err, now, before, after)
		}
	}
}
