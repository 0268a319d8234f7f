package chaos

import (
	"slices"
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
	return &System{Addr: g.URL(), Safe: safe, Masters: g.master, Faults: slices.Concat(
		hurtMasters(g, g.Master, 600*time.Millisecond),
		[]Fault{
			killed("replica killed", g, func() *redistest.Server { return g.inTurn(g.Replicas()) }),
			killed("sentinel killed", g, func() *redistest.Server { return g.inTurn(g.Sentinels()) }),
		},
		ordered(t, func() []*redistest.Server { return []*redistest.Server{g.Master()} }),
	)}
}

// guarded is servers that sentinels watch.
type guarded struct {
	*redistest.Sentinel
	turn int
}

func (g *guarded) master() string {
	g.AwaitStable()
	return g.Master().Addr()
}

func (g *guarded) inTurn(servers []*redistest.Server) *redistest.Server {
	g.turn++
	return servers[g.turn%len(servers)]
}
