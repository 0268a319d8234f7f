package chaos

import (
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq/internal/redistest"
)

// proxied is one redis-server that syncs every write, behind a network that
// loses, delays and makes up what passes.
var proxied = Target{
	Name: "proxied",
	Open: standalone.Open,
	Start: func(t testing.TB) *System {
		p := redistest.StartProxy(t, redistest.Start(t, redistest.WithAOF()).Addr())
		return &System{Addr: p.URL(), Faults: []Fault{
			{Kind: "connections cut", Begin: func() func() { p.Cut(); return nil }},
			{Kind: "requests lost", Hold: 2 * time.Second, Begin: everyFew(p, redistest.CutBefore)},
			{Kind: "replies lost", Hold: 2 * time.Second, Begin: everyFew(p, redistest.CutAfter)},
			{Kind: "requests swallowed", Hold: 2 * time.Second, Begin: everyFew(p, redistest.MuteBefore)},
			{Kind: "replies swallowed", Hold: 2 * time.Second, Begin: everyFew(p, redistest.MuteAfter)},
			{Kind: "errors answered", Hold: 2 * time.Second, Begin: everyFew(p,
				redistest.Answer("-LOADING Redis is loading the dataset in memory"),
				redistest.Answer("-READONLY You can't write against a read only replica."),
				redistest.Answer("-OOM command not allowed when used memory > 'maxmemory'."))},
			{Kind: "slow network", Hold: 3 * time.Second, Begin: delay(p, 100*time.Millisecond)},
			{Kind: "very slow network", Hold: 3 * time.Second, Begin: delay(p, 700*time.Millisecond)}, // each call times out
			{Kind: "black hole", Hold: 4 * time.Second, Begin: func() func() {
				p.Mute()
				return p.Unmute
			}},
			{Kind: "connection refused", Hold: 4 * time.Second, Begin: func() func() {
				p.Refuse()
				p.Cut()
				return p.Accept
			}},
		}}
	},
}

const few = 7

// everyFew does something to every few scripts, one action after the other.
func everyFew(p *redistest.Proxy, actions ...redistest.Action) func() func() {
	return func() func() {
		n := 0
		p.SetFault(func(cmd []string) redistest.Action {
			if !strings.HasPrefix(strings.ToLower(cmd[0]), "eval") {
				return redistest.Pass
			}
			if n++; n%few > 0 {
				return redistest.Pass
			}
			return actions[n/few%len(actions)]
		})
		return func() { p.SetFault(nil) }
	}
}

// delay makes requests and replies late by the same time.
func delay(p *redistest.Proxy, by time.Duration) func() func() {
	return func() func() {
		p.SetDelay(by, by)
		return func() { p.SetDelay(0, 0) }
	}
}
