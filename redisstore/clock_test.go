package redisstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
)

// runs records when each id was started, by a clock, and what ran beside itself.
type runs struct {
	clock  func() time.Time
	lasts  time.Duration
	mu     sync.Mutex // guards what follows
	starts map[string][]time.Time
	early  time.Duration // the most that a run started before its due
	beside []string
	going  map[string]int
}

func newRuns(clock func() time.Time, lasts time.Duration) *runs {
	return &runs{clock: clock, lasts: lasts, starts: map[string][]time.Time{}, going: map[string]int{}}
}

// Handle implements dueq.Handler.
func (r *runs) Handle(ctx context.Context, task *dueq.Task) error {
	r.begin(task)
	defer r.end(task)
	select {
	case <-time.After(r.lasts):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *runs) begin(task *dueq.Task) {
	now := r.clock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starts[task.ID] = append(r.starts[task.ID], now)
	r.early = max(r.early, task.Due.Sub(now))
	if r.going[task.ID]++; r.going[task.ID] > 1 {
		r.beside = append(r.beside, task.ID)
	}
}

func (r *runs) end(task *dueq.Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.going[task.ID]--
}

// count is how many tasks were started, and how many starts there were beyond
// the first of each.
func (r *runs) count() (tasks, again int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, starts := range r.starts {
		again += len(starts) - 1
	}
	return len(r.starts), again
}

// Leases of 3 s, handlers of 2 s, a flow of tasks: the server's clock is half a
// second off and back, again and again.
func TestClock_half_a_second_to_and_fro_delivers_nothing_twice_or_early(t *testing.T) {
	t.Parallel()
	const step = 500 * time.Millisecond
	srv := redistest.Start(t, redistest.WithRunningClock())
	store := openStore(t, srv.URL(), patient)
	_, err := store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"lease": "3s", "timeout": "30s"})
	must(t, err)
	handled := newRuns(srv.Now, 2*time.Second)
	for range 2 {
		startWorker(t, openStore(t, srv.URL(), patient), dueq.WorkerOptions{}, handled, "q")
	}
	var accepted int
	began := time.Now()
	for i := 0; time.Since(began) < 8*time.Second; i++ {
		scheduleAll(t, store, []dueq.Item{
			item("q", fmt.Sprint("now", i), dueq.In(0)), item("q", fmt.Sprint("soon", i), dueq.In(700*time.Millisecond)),
		})
		accepted += 2
		srv.Advance([]time.Duration{step, -step, -step, step}[i%4])
		pass(t, 250*time.Millisecond)
	}
	eventually(t, 20*time.Second, "all is settled", func() bool { return statsOf(t, store, "q").Totals.Acked == int64(accepted) })
	tasks, again := handled.count()
	st := statsOf(t, store, "q")
	t.Logf("%d tasks over %d steps, the earliest start %v before its due by the clock as it stood then", tasks, accepted/2, handled.early)
	if tasks != accepted || again != 0 || st.Totals.Ended != 0 || len(handled.beside) > 0 {
		t.Errorf("%d of %d tasks handled, %d second deliveries, %d leases ended, beside themselves %q", tasks, accepted, again, st.Totals.Ended, handled.beside)
	}
	if handled.early > step+50*time.Millisecond {
		t.Errorf("a task started %v before its due, more than the step of %v", handled.early, step)
	}
}

// After an hour's step who renews within five seconds keeps its tasks; what a
// dead worker held comes back once.
func TestClock_a_step_of_an_hour_takes_tasks_only_from_those_who_are_gone(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"ahead": time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t, redistest.WithRunningClock())
			store := openStore(t, srv.URL(), patient)
			_, err := store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"lease": "3s", "timeout": "60s"})
			must(t, err)
			const held, gone = 20, 5
			scheduleAll(t, store, items("q", gone, past))
			lost, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: gone, Lease: time.Minute}) // and is never heard of again
			must(t, err)
			handled := newRuns(srv.Now, 9*time.Second)
			for range 2 {
				startWorker(t, openStore(t, srv.URL(), patient), dueq.WorkerOptions{}, handled, "q")
			}
			keepHouse(t, srv.URL(), "q")
			pass(t, 6*time.Second) // in the grace that the first claim began, a lease that ends in it may be taken at once
			var running []dueq.Item
			for i := range held {
				running = append(running, item("q", fmt.Sprint("running", i), dueq.In(0)))
			}
			scheduleAll(t, store, running)
			eventually(t, 5*time.Second, "the handlers run", func() bool { n, _ := handled.count(); return n == held })
			srv.Advance(step)
			eventually(t, 30*time.Second, "the running ones have ended", func() bool { return statsOf(t, store, "q").Totals.Acked >= held })
			st := statsOf(t, store, "q")
			_, again := handled.count()
			t.Logf("%d second deliveries; leases ended: %d of the %d of a dead process", again, st.Totals.Ended, gone)
			if again != 0 || len(handled.beside) > 0 {
				t.Errorf("%d second deliveries of tasks whose holders lived: %q", again, handled.beside)
			}
			if st.Totals.Ended > gone {
				t.Errorf("%d leases ended, but only %d had no holder", st.Totals.Ended, gone)
			}
			if step > 0 { // by the clock their leases ended long ago
				eventually(t, 20*time.Second, "the dead one's tasks are handled", func() bool { n, _ := handled.count(); return n == held+gone })
				outcomes, err := store.Settle(t.Context(), "q", []dueq.Result{{Task: lost.Tasks[0]}})
				must(t, err)
				if outcomes[0].Status != dueq.StatusLeaseLost {
					t.Errorf("ack of the dead process: got %v, want lease lost", outcomes[0].Status)
				}
			}
		})
	}
}

// buildSkewed builds the worker of testdata/skewed with a package time whose
// wall clock is off by $SKEW_SECONDS; its monotonic clock is as ever. Go asks
// the kernel itself, so nothing that is preloaded would do.
func buildSkewed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	must(t, err)
	original := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time", "time.go")
	text, err := os.ReadFile(original)
	must(t, err)
	const reading = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if !strings.Contains(string(text), reading) {
		reading := "func Now() Time {\n\tsec, nsec, mono := now()\n" // before Go 1.26
		text = []byte(strings.Replace(string(text), reading, reading+"\tsec += skew\n", 1))
	}
	skewed := strings.Replace(string(text), reading, reading+"\tsec += skew\n", 1) + `
var skew = func() (n int64) {
	text, _ := syscall.Getenv("SKEW_SECONDS")
	for _, c := range text {
		if c != '-' {
			n = 10*n + int64(c-'0')
		}
	}
	if len(text) > 0 && text[0] == '-' {
		n = -n
	}
	return n
}()
`
	skewed = strings.Replace(skewed, "import (", "import (\n\t\"syscall\"", 1)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: filepath.Join(dir, "time.go")}})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "time.go"), []byte(skewed), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	binary := filepath.Join(dir, "skewed")
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, "./testdata/skewed")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build on %s: %v\n%s", runtime.Version(), err, out)
	}
	return binary
}

// skewedRun is a line that the worker of testdata/skewed prints.
type skewedRun struct {
	id    string
	clock time.Time // of the worker
	drift time.Duration
	at    time.Time // by our clock
}

// startSkewed runs the worker until the test ends.
func startSkewed(t *testing.T, binary, url, queue string, skew time.Duration) <-chan skewedRun {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, url, queue)
	cmd.Env = append(os.Environ(), fmt.Sprint("SKEW_SECONDS=", int(skew.Seconds())))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := make(chan skewedRun, 100)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for range lines {
		}
		_ = cmd.Wait()
	})
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			var r skewedRun
			var ms, drift int64
			if _, err := fmt.Sscan(in.Text(), &r.id, &ms, &drift); err != nil {
				t.Errorf("the worker printed %q", in.Text())
			}
			r.clock, r.drift, r.at = time.UnixMilli(ms), time.Duration(drift), time.Now()
			lines <- r
		}
	}()
	return lines
}

func TestClock_a_worker_two_minutes_off_works_like_any_other(t *testing.T) {
	t.Parallel()
	binary := buildSkewed(t)
	for name, skew := range map[string]time.Duration{"ahead": 2 * time.Minute, "behind": -2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			store := openStore(t, srv.URL(), patient)
			_, err := store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"lease": "1s", "timeout": "30s"})
			must(t, err)
			startWorker(t, store, dueq.WorkerOptions{}, dueq.HandlerFunc(func(context.Context, *dueq.Task) error { return nil }), "elsewhere")
			lines := startSkewed(t, binary, srv.URL(), "q", skew)
			slow := item("q", "slow", dueq.In(0))
			slow.Task.Kind = "slow"
			outcomes, err := store.Schedule(t.Context(), []dueq.Item{
				item("q", "overdue", past), slow, item("q", "soon", dueq.In(1500*time.Millisecond)), item("q", "later", dueq.In(3*time.Second)),
				item("q", "instant", dueq.At(time.Now().Add(2*time.Second))),
			})
			must(t, err)
			dues := map[string]time.Time{"overdue": outcomes[0].Due, "slow": outcomes[1].Due, "soon": outcomes[2].Due, "later": outcomes[3].Due, "instant": outcomes[4].Due}
			timeout := time.After(30 * time.Second)
			for seen := map[string]bool{}; len(seen) < len(dues); {
				select {
				case r := <-lines:
					if off := r.clock.Sub(r.at) - skew; off < -2*time.Second || off > 2*time.Second {
						t.Fatalf("the worker's clock is off by %v, want %v", r.clock.Sub(r.at), skew)
					}
					late := r.at.Sub(dues[r.id])
					if seen[r.id] || late < 0 || r.id != "overdue" && late > time.Second+slack || r.drift < 0 || r.id != "overdue" && r.drift > time.Second+slack {
						t.Errorf("%s (again %v) ran %v after its due, drift %v", r.id, seen[r.id], late, r.drift)
					}
					seen[r.id] = true
				case <-timeout:
					t.Fatalf("ran within 30 s: %v", seen)
				}
			}
			eventually(t, 15*time.Second, "all are settled", func() bool { return statsOf(t, store, "q").Totals.Acked == int64(len(dues)) })
			if st := statsOf(t, store, "q"); st.Totals.Ended != 0 || st.Totals.Claimed != int64(len(dues)) {
				t.Errorf("got %+v, want each claimed once: the slow one kept its lease of 1 s for 4 s", st)
			}
		})
	}
}
