package chaos

import (
	"testing"
	"time"

	"github.com/dueq/dueq/internal/redistest"
)

// stepped is one redis-server that syncs every write and whose clock is set
// forward and back.
var stepped = Target{
	Name: "clock",
	Open: standalone.Open,
	Start: func(t testing.TB) *System {
		srv := redistest.Start(t, redistest.WithAOF(), redistest.WithRunningClock())
		step := func(kind string, by time.Duration) Fault {
			return Fault{Kind: kind, Step: by, Hold: 3 * time.Second, Begin: func() func() {
				srv.Advance(by)
				return func() { srv.Advance(-by) }
			}}
		}
		spared := func(f Fault) Fault {
			f.Spares = true
			return f
		}
		return &System{
			Addr: srv.URL(),
			Faults: []Fault{
				spared(step("clock +500 ms", 500*time.Millisecond)),
				spared(step("clock -500 ms", -500*time.Millisecond)),
				step("clock +1 h", time.Hour),
				step("clock -1 h", -time.Hour),
			},
			// What was scheduled while the clock was ahead comes due.
			Last: &Fault{Kind: "clock +1 h for good", Step: time.Hour, Begin: func() func() {
				srv.Advance(time.Hour)
				return nil
			}},
		}
	},
}
