package chaos

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// standalone is one redis-server that syncs every write before it answers, so
// that it loses nothing.
var standalone = Target{
	Name: "standalone",
	Open: func(addr string) (dueq.Store, error) { return opened(redisstore.Open(addr, redisstore.Options{})) },
	Start: func(t testing.TB) *System {
		srv := redistest.Start(t, redistest.WithAOF())
		return &System{Addr: srv.URL(), Faults: []Fault{
			{Kind: "redis killed", Hold: 4 * time.Second, Begin: func() func() {
				srv.Kill()
				return srv.Restart
			}},
			{Kind: "redis frozen", Hold: 5 * time.Second, Begin: func() func() {
				srv.Pause()
				return srv.Resume
			}},
			{Kind: "redis full", Hold: 3 * time.Second, Begin: func() func() {
				srv.Fill(t)
				return func() { srv.Relieve(t) }
			}},
			{Kind: "scripts flushed", Begin: send(t, srv, "SCRIPT", "FLUSH")},
			{Kind: "clients killed", Begin: send(t, srv, "CLIENT", "KILL", "TYPE", "normal")},
			{Kind: "listeners killed", Begin: send(t, srv, "CLIENT", "KILL", "TYPE", "pubsub")},
		}}
	},
}

// send is a fault that is one command.
func send(t testing.TB, srv *redistest.Server, command ...any) func() (end func()) {
	client := srv.Client(t)
	return func() func() {
		cmd := redis.NewCmd(t.Context(), command...)
		if err := client.Process(t.Context(), cmd); err != nil {
			t.Errorf("%v: %v", command, err)
		}
		return nil
	}
}

// opened makes the store of a package the interface, nil if there is none.
func opened[S dueq.Store](store S, err error) (dueq.Store, error) {
	if err != nil {
		return nil, err
	}
	return store, nil
}
