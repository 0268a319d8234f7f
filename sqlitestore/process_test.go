//go:build unix

package sqlitestore_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/sqlitestore"
)

// Three processes write as fast as they can: none starves. Runs alone, so that
// the other tests do not take the disk away.
func TestProcessesShareTheFileFairly(t *testing.T) {
	lasts := 4 * time.Second
	if raced {
		lasts = 2 * time.Second
	}
	if text := os.Getenv("DUEQ_SHARE_TIME"); text != "" {
		var err error
		lasts, err = time.ParseDuration(text)
		must(t, err)
	}
	path := file(t)
	var children [3]*child
	var start [3]io.WriteCloser
	for i := range children {
		children[i], start[i] = startCommitter(t, path, lasts)
	}
	for i, c := range children {
		if line := <-c.lines; line != "ready" {
			t.Fatalf("process %d says %q", i, line)
		}
	}
	for _, w := range start {
		_, err := io.WriteString(w, "go\n")
		must(t, err)
	}
	var commits, p99, longest [3]int
	total := 0
	for i, c := range children {
		_, err := fmt.Sscan(strings.Join(c.end(t, false), " "), &commits[i], &p99[i], &longest[i])
		must(t, err)
		total += commits[i]
	}
	t.Logf("in %v: %v commits, p99 %v ms, longest %v ms", lasts, commits, p99, longest)
	for i := range children {
		if commits[i]*5 < total {
			t.Errorf("process %d made %d of %d commits, want 20 %% at least", i, commits[i], total)
		}
		if p99[i] > 100 && !raced {
			t.Errorf("process %d waited %d ms for 1 %% of its commits, want 100 ms at most", i, p99[i])
		}
	}
	store := open(t, path, sqlitestore.Options{})
	if got := stats(t, store, "q").Scheduled; got != int64(total) {
		t.Errorf("%d tasks are there, %d were acknowledged", got, total)
	}
}

func startCommitter(t *testing.T, path string, lasts time.Duration) (*child, io.WriteCloser) {
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	t.Cleanup(func() { w.Close() })
	return startChild(t, "commit", path, r, "DUEQ_LASTS="+lasts.String()), w
}

func TestIdleWorkerTakesNoTime(t *testing.T) {
	path := file(t)
	store := open(t, path, sqlitestore.Options{})
	for i := range 100 {
		put(t, store, "q"+strconv.Itoa(i), "x", dueq.In(time.Hour))
	}
	const limit = 10_000
	share := limit + 1
	for try := 0; share > limit && try < 3 && !(raced && try > 0); try++ { // a busy machine makes waking up dearer
		var err error
		share, err = strconv.Atoi(strings.Join(startChild(t, "idle", path, nil).end(t, false), ""))
		must(t, err)
		t.Logf("an idle worker takes %.2f %% of a core", float64(share)/10_000)
	}
	if share > limit && !raced {
		t.Error("want 1 % at most")
	}
}

// A producer and a worker are killed again and again. Every task that was
// acknowledged is handled; DUEQ_KILL_ROUNDS sets the number of rounds.
func TestKill(t *testing.T) {
	t.Parallel()
	rounds := 5
	if text := os.Getenv("DUEQ_KILL_ROUNDS"); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		must(t, err)
	}
	path := file(t)
	store := open(t, path, sqlitestore.Options{})
	_, err := store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"lease": "1s", "retries": "1000", "retry_first": "1ms", "retry_cap": "1ms"})
	must(t, err)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	scheduled, handled := map[string]bool{}, map[string]bool{}
	for round := range rounds {
		for _, line := range killRound(t, path, round, random) {
			what, id, _ := strings.Cut(line, " ")
			map[string]map[string]bool{"scheduled": scheduled, "handled": handled}[what][id] = true
		}
		if answer, err := store.Integrity(); err != nil || answer != "ok\n" {
			t.Fatalf("integrity after round %d: %s, %v", round, answer, err)
		}
		dump(t, store, "q") // checks the counts
	}
	t.Logf("%d tasks were acknowledged, %d handled before the end", len(scheduled), len(handled))
	drain(t, store, handled)
	lost := 0
	for id := range scheduled {
		if !handled[id] {
			lost++
			t.Logf("lost: %s", id)
		}
	}
	if lost > 0 || len(scheduled) == 0 {
		t.Errorf("%d of %d acknowledged tasks were lost", lost, len(scheduled))
	}
}

// killRound runs a producer and a worker for a while, kills them in turn and
// returns what they said.
func killRound(t *testing.T, path string, round int, random *rand.Rand) []string {
	writer := startChild(t, "write", path, nil, "DUEQ_ROUND="+strconv.Itoa(round))
	worker := startChild(t, "work", path, nil)
	lines := []string{<-writer.lines}
	victims := []*child{writer, worker}
	random.Shuffle(2, func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	for _, c := range victims {
		time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
		must(t, c.cmd.Process.Kill())
	}
	for _, c := range victims {
		lines = append(lines, c.end(t, true)...)
	}
	return lines
}

// drain handles what is left until the queue is empty.
func drain(t *testing.T, store *sqlitestore.Store, handled map[string]bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		claim, err := store.Claim(ctx, dueq.ClaimRequest{Queue: "q", Max: dueq.MaxItems})
		must(t, err)
		results := make([]dueq.Result, len(claim.Tasks))
		for i, task := range claim.Tasks {
			handled[task.ID], results[i].Task = true, task
		}
		_, err = store.Settle(ctx, "q", results)
		must(t, err)
		if s := stats(t, store, "q"); s.Scheduled+s.Active == 0 {
			return
		}
		if len(claim.Tasks) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
	}
	t.Fatalf("the queue does not get empty: %+v", stats(t, store, "q"))
}
