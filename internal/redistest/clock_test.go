package redistest

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

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
