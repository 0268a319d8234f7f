package chaos

import (
	"testing"
	"time"

	"github.com/dueq/dueq/internal/redistest"
)

// sentinel is a master with two replicas, watched by three sentinels; each call
// waits for one replica. sentinelAsync is the same without waiting, so that a
// failover may lose what came last.
var (
	sentinel      = Target{Name: "sentinel", Open: standalone.Open, Start: func(t testing.TB) *System { return startSentinel(t, true) }}
	sentinelAsync = Target{Name: "sentinel-async", Open: standalone.Open, Start: func(t testing.TB) *System { return startSentinel(t, false) }}
)

func startSentinel(t testing.TB, safe bool) *System {
	g := &guarded{Sentinel: redistest.StartSentinel(t, redistest.WithAOF())}
	return &System{Addr: g.URL(), Safe: safe, Masters: g.master, Faults: []Fault{
		{Kind: "master killed", Hold: 2 * time.Second, Loses: lag, Begin: g.killMaster},
		{Kind: "master deposed", Hold: 2 * time.Second, Loses: lag, Deposes: true, Begin: g.deposeMaster},
		{Kind: "master frozen", Hold: 600 * time.Millisecond, Begin: func() func() {
			master := g.Master()
			master.Pause()
			return master.Resume
		}},
		{Kind: "replica killed", Hold: 2 * time.Second, Begin: func() func() { return g.kill(g.Replicas()) }},
		{Kind: "sentinel killed", Hold: 2 * time.Second, Begin: func() func() { return g.kill(g.Sentinels()) }},
		{Kind: "scripts flushed", Begin: sendAll(t, g.masters, "SCRIPT", "FLUSH")},
		{Kind: "clients killed", Begin: sendAll(t, g.masters, "CLIENT", "KILL", "TYPE", "normal")},
	}}
}

// guarded is servers that sentinels watch, hurt in turn.
type guarded struct {
	*redistest.Sentinel
	turn int
}

func (g *guarded) master() string {
	g.AwaitStable()
	return g.Master().Addr()
}

func (g *guarded) masters() []*redistest.Server { return []*redistest.Server{g.Master()} }

func (g *guarded) killMaster() func() {
	master := g.Master()
	master.Kill()
	g.AwaitFailover(master)
	return func() {
		master.Restart()
		g.AwaitStable()
	}
}

// deposeMaster freezes the master for longer than the sentinels wait for it.
func (g *guarded) deposeMaster() func() {
	master := g.Master()
	master.Pause()
	g.AwaitFailover(master)
	return func() {
		master.Resume()
		g.AwaitStable()
	}
}

// kill kills the next of some servers.
func (g *guarded) kill(some []*redistest.Server) func() {
	g.turn++
	victim := some[g.turn%len(some)]
	victim.Kill()
	return func() {
		victim.Restart()
		g.AwaitStable()
	}
}
