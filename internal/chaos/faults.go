package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/dueq/dueq/internal/history"
)

const (
	maxGap    = 1500 * time.Millisecond // between two faults of the system, and between two of processes
	maxFreeze = 6 * time.Second         // longer than a lease, so that some end
)

// step is one fault of a plan: what the seed alone decides.
type step struct {
	gap, hold time.Duration
	which     int
}

// planner draws the steps of one kind of victim.
type planner struct {
	random *rand.Rand
	hold   []time.Duration // by fault, at most
}

func (p *planner) next() step {
	s := step{gap: upTo(p.random, maxGap), which: p.random.IntN(len(p.hold))}
	s.hold = upTo(p.random, p.hold[s.which])
	return s
}

func upTo(random *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(most) + 1))
}

// hurtSystem injects faults of the system, one after the other, until ctx
// ends. It runs in the goroutine of the test.
func (c *crew) hurtSystem(ctx context.Context) {
	p := &planner{random: seeded(c.seed, "system")}
	for _, f := range c.sys.Faults {
		p.hold = append(p.hold, f.Hold)
	}
	if len(p.hold) == 0 {
		<-ctx.Done()
		return
	}
	c.watchMasters(true)
	for s := p.next(); pass(ctx, s.gap); s = p.next() {
		c.watchMasters(false)
		c.inject(ctx, c.sys.Faults[s.which], s.hold)
	}
}

func (c *crew) inject(ctx context.Context, f Fault, hold time.Duration) {
	fault := history.Fault{Kind: f.Kind, Step: f.Step, Loses: f.Loses, Spares: f.Spares, Deposes: f.Deposes, From: history.Now()}
	if end := f.Begin(); end != nil {
		pass(ctx, hold)
		end()
	}
	c.watchMasters(f.Loses > 0)
	fault.Until = history.Now()
	c.rec.Fault(fault)
}

// watch is who had the data when somebody last looked.
type watch struct {
	masters string
	at      history.Instant
}

// watchMasters makes a fault of it if others have the data than when it last
// looked, and that was not to be expected.
func (c *crew) watchMasters(expected bool) {
	if c.sys.Masters == nil {
		return
	}
	last := c.watch
	c.watch = watch{c.sys.Masters(), history.Now()}
	if !expected && c.watch.masters != last.masters {
		c.rec.Fault(history.Fault{Kind: "by itself", Loses: lag, Deposes: true, From: last.at, Until: c.watch.at})
	}
}

// hurtProcesses kills and freezes workers and the producer until ctx ends.
func (c *crew) hurtProcesses(ctx context.Context) {
	faults := []func(ctx context.Context, s step, random *rand.Rand){c.killWorker, c.freezeWorker, c.killProducer}
	p := &planner{random: seeded(c.seed, "processes"), hold: []time.Duration{0, maxFreeze, 0}}
	for s := p.next(); pass(ctx, s.gap); s = p.next() {
		faults[s.which](ctx, s, p.random)
	}
}

func (c *crew) killWorker(_ context.Context, _ step, random *rand.Rand) {
	i := random.IntN(len(c.work))
	c.kill("worker killed", c.work[i])
	c.work[i] = c.startWorker()
}

func (c *crew) killProducer(context.Context, step, *rand.Rand) {
	c.kill("producer killed", c.produce)
	c.produce = c.startProducer()
}

func (c *crew) kill(kind string, m *member) {
	fault := history.Fault{Kind: kind, Process: m.name, From: history.Now()}
	m.Kill()
	fault.Until = history.Now()
	c.rec.Fault(fault)
}

func (c *crew) freezeWorker(ctx context.Context, s step, random *rand.Rand) {
	m := c.work[random.IntN(len(c.work))]
	fault := history.Fault{Kind: "worker frozen", Process: m.name, From: history.Now()}
	if err := m.Freeze(); err != nil {
		c.t.Errorf("%s: %v", m.name, err)
	}
	pass(ctx, s.hold)
	if err := m.Thaw(); err != nil {
		c.t.Errorf("%s: %v", m.name, err)
	}
	fault.Until = history.Now()
	c.rec.Fault(fault)
}

// pass lets time pass. It reports false when ctx ended first.
func pass(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
