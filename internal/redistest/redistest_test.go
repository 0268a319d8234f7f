package redistest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
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
