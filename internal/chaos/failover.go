package chaos

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq/internal/redistest"
)

// lag is how much a replica may lack, and so a failover may lose.
const lag = 2 * time.Second

// replicated is servers that take each other's place.
type replicated interface {
	AwaitFailover(old *redistest.Server) *redistest.Server
	AwaitStable()
}

// choice chooses a server to be hurt.
type choice func() *redistest.Server

// hurtMasters are faults of the chosen masters. One that is frozen briefly is
// missed by nobody, one that is deposed comes back when another has its place.
func hurtMasters(r replicated, next choice, brief time.Duration) []Fault {
	return []Fault{
		{Kind: "master killed", Hold: 2 * time.Second, Loses: lag, Begin: func() func() {
			master := next()
			master.Kill()
			r.AwaitFailover(master)
			return func() {
				master.Restart()
				r.AwaitStable()
			}
		}},
		{Kind: "master deposed", Hold: 2 * time.Second, Loses: lag, Deposes: true, Begin: func() func() {
			master := next()
			master.Pause()
			r.AwaitFailover(master)
			return func() {
				master.Resume()
				r.AwaitStable()
			}
		}},
		{Kind: "master frozen", Hold: brief, Begin: func() func() {
			master := next()
			master.Pause()
			return master.Resume
		}},
	}
}

// killed is a fault of servers whose place nobody takes.
func killed(kind string, r replicated, next choice) Fault {
	return Fault{Kind: kind, Hold: 2 * time.Second, Begin: func() func() {
		victim := next()
		victim.Kill()
		return func() {
			victim.Restart()
			r.AwaitStable()
		}
	}}
}

// ordered are faults that are one command to each of the masters.
func ordered(t testing.TB, masters func() []*redistest.Server) []Fault {
	all := func(command ...any) func() func() {
		return func() func() {
			for _, master := range masters() {
				send(t, master, command...)()
			}
			return nil
		}
	}
	return []Fault{
		{Kind: "scripts flushed", Begin: all("SCRIPT", "FLUSH")},
		{Kind: "clients killed", Begin: all("CLIENT", "KILL", "TYPE", "normal")},
	}
}

// addresses names servers in one order.
func addresses(servers []*redistest.Server) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
