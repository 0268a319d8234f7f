package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

// TestKill kills a dueq work or a dueq schedule by SIGKILL, round after round.
// Whatever a schedule acknowledged, by exit code 0 and what it printed, is
// handled in the end; DUEQ_KILL_ROUNDS sets the number of rounds.
func TestKill(t *testing.T) {
	t.Parallel()
	rounds := 5
	if text := os.Getenv("DUEQ_KILL_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for name, open := range map[string]func(*testing.T) *cli{"on the default store": onDefault, "on redis": onRedis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			k := &killing{cli: open(t), random: rand.New(rand.NewPCG(seed, 0)), asked: map[string]bool{}, stored: map[string]bool{}}
			short := dueq.SettingsPatch{"lease": "1s", "retries": "1000", "retry_first": "1ms", "retry_cap": "1ms"}
			if _, err := k.store.SetSettings(t.Context(), "q", short); err != nil {
				t.Fatal(err)
			}
			for round := range rounds {
				k.round(t, round)
			}
			k.finish(t)
			k.check(t, rounds)
		})
	}
}

// killing is a test in which processes are killed.
type killing struct {
	*cli
	random  *rand.Rand
	handled deliveries
	worker  *working

	asked, stored    map[string]bool // ids given to a schedule, and those it acknowledged
	workers, cutDown int             // workers and schedules that were killed while they ran
}

// round has a worker, if there is none, and producers, and kills one of them at
// some moment.
func (k *killing) round(t *testing.T, round int) {
	if k.worker == nil {
		k.worker = k.startWork(t, &k.handled, "q")
	}
	singles := k.produce(t, k.singles(round, 6))
	load := k.produce(t, k.load(round, 2000))
	time.Sleep(time.Duration(k.random.IntN(150)) * time.Millisecond)
	switch k.random.IntN(4) {
	case 0:
		singles.kill()
	case 1:
		load.kill()
	default:
		k.worker.kill()
		k.worker = nil
		k.workers++
	}
	k.note(singles)
	k.note(load)
}

func (k *killing) note(p *producer) {
	<-p.ended
	for _, o := range p.begun {
		for _, id := range o.ids {
			k.asked[id] = true
			if o.done {
				k.stored[id] = true
			}
		}
		if o.killed {
			k.cutDown++
		}
	}
}

// finish handles what is left, with nobody killed any more.
func (k *killing) finish(t *testing.T) {
	if k.worker == nil {
		k.worker = k.startWork(t, &k.handled, "q")
	}
	eventually(t, func() bool { s := k.stats(t, "q"); return s.Scheduled+s.Active == 0 })
	k.worker.end(syscall.SIGTERM)
	if code := k.worker.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the last worker: exit code %d: %s", code, k.worker.stderr.String())
	}
}

func (k *killing) check(t *testing.T, rounds int) {
	all := k.handled.list()
	handled, lost, foreign := map[string]bool{}, 0, 0
	for _, d := range all {
		if handled[d.ID] = true; !k.asked[d.ID] {
			foreign++
		}
	}
	for id := range k.stored {
		if !handled[id] {
			lost++
		}
	}
	s := k.stats(t, "q")
	t.Logf("%d rounds: killed %d workers and %d schedules; %d tasks asked for, %d acknowledged, %d handled, %d times; %d leases ended",
		rounds, k.workers, k.cutDown, len(k.asked), len(k.stored), len(handled), len(all), s.Totals.Ended)
	if lost > 0 || foreign > 0 || s.Dead > 0 || len(k.stored) == 0 {
		t.Errorf("%d of %d acknowledged tasks are lost, %d were handled that nobody scheduled, %d are dead", lost, len(k.stored), foreign, s.Dead)
	}
}

// order is one command line that schedules ids.
type order struct {
	ids   []string
	args  []string
	stdin string
	says  string // on stdout, when all of it was done

	done, killed bool
}

// singles are n schedules of a task each, load is one of n tasks.
func (k *killing) singles(round, n int) []order {
	orders := make([]order, n)
	for i := range orders {
		id := fmt.Sprintf("r%d_one_%d", round, i)
		orders[i] = order{
			ids: []string{id}, says: "scheduled " + id + " on q, due ",
			args: []string{"schedule", "q", id, "--in", fmt.Sprint(k.random.IntN(300), "ms")},
		}
	}
	return orders
}

func (k *killing) load(round, n int) []order {
	o := order{args: []string{"schedule", "q", "--from", "-", "--format", "csv"}, says: fmt.Sprintf("q: %d scheduled, 0 replaced", n)}
	var text strings.Builder
	text.WriteString("id,delay,body\n")
	for i := range n {
		o.ids = append(o.ids, fmt.Sprintf("r%d_many_%d", round, i))
		fmt.Fprintf(&text, "%s,%dms,%d\n", o.ids[i], k.random.IntN(300), i)
	}
	o.stdin = text.String()
	return []order{o}
}

// producer runs orders one after the other, until it is killed.
type producer struct {
	ended chan struct{} // closed when begun may be read
	begun []order

	mu      sync.Mutex // guards what follows
	running *exec.Cmd
	killed  bool
}

func (k *killing) produce(t *testing.T, orders []order) *producer {
	p := &producer{ended: make(chan struct{})}
	commands := make([]*exec.Cmd, len(orders))
	for i, o := range orders {
		commands[i] = k.command(t, o.args...)
		commands[i].Stdin = strings.NewReader(o.stdin)
	}
	go func() {
		defer close(p.ended)
		for i, o := range orders {
			if !p.do(t, commands[i], &o) {
				return
			}
			p.begun = append(p.begun, o)
		}
	}()
	t.Cleanup(p.kill)
	return p
}

// do runs one order to its end; it is false if it was not begun.
func (p *producer) do(t *testing.T, cmd *exec.Cmd, o *order) bool {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if !p.start(t, cmd) {
		return false
	}
	_ = cmd.Wait()
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	o.killed = status.Signaled()
	o.done = cmd.ProcessState.ExitCode() == 0 && strings.Contains(stdout.String(), o.says)
	if !o.done && !o.killed {
		t.Errorf("%v: %v: %s%s", o.args, cmd.ProcessState, stdout.String(), stderr.String())
	}
	return true
}

func (p *producer) start(t *testing.T, cmd *exec.Cmd) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed {
		return false
	}
	p.running = cmd
	if err := cmd.Start(); err != nil {
		t.Error(err)
		p.running = nil
		return false
	}
	return true
}

// kill kills what runs, and lets no more begin.
func (p *producer) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed = true; p.running != nil {
		_ = p.running.Process.Kill()
	}
}
