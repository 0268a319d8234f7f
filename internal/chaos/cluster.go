package chaos

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// cluster is three masters with a replica each, over which the queues are
// spread and move; each call waits for the replica. clusterAsync is the same
// without waiting, so that a failover may lose what came last.
var (
	cluster      = Target{Name: "cluster", Open: standalone.Open, Start: func(t testing.TB) *System { return startCluster(t, true) }}
	clusterAsync = Target{Name: "cluster-async", Open: standalone.Open, Start: func(t testing.TB) *System { return startCluster(t, false) }}
)

func startCluster(t testing.TB, safe bool) *System {
	s := &shards{Cluster: redistest.StartCluster(t, 1, redistest.WithAOF())}
	return &System{Addr: s.URL(), Safe: safe, Masters: s.masters, Faults: []Fault{
		{Kind: "master killed", Hold: 2 * time.Second, Loses: lag, Begin: s.killMaster},
		{Kind: "master deposed", Hold: 2 * time.Second, Loses: lag, Deposes: true, Begin: s.deposeMaster},
		{Kind: "master frozen", Hold: time.Second, Begin: func() func() {
			master := s.next()
			master.Pause()
			return master.Resume
		}},
		{Kind: "replica killed", Hold: 2 * time.Second, Begin: s.killReplica},
		{Kind: "slot moved", Hold: time.Second, Begin: s.moveSlot},
		{Kind: "scripts flushed", Begin: sendAll(t, s.Masters, "SCRIPT", "FLUSH")},
		{Kind: "clients killed", Begin: sendAll(t, s.Masters, "CLIENT", "KILL", "TYPE", "normal")},
	}}
}

// shards is a cluster whose shards are hurt in turn.
type shards struct {
	*redistest.Cluster
	turn int
}

// next is the master of one queue after the other.
func (s *shards) next() *redistest.Server {
	return s.OwnerOf(s.nextKey())
}

func (s *shards) nextKey() string {
	s.turn++
	return redisstore.DefaultPrefix + queues[s.turn%len(queues)]
}

func (s *shards) masters() string {
	s.AwaitStable()
	return addresses(s.Masters())
}

func (s *shards) killMaster() func() {
	master := s.next()
	master.Kill()
	s.AwaitFailover(master)
	return func() {
		master.Restart()
		s.AwaitStable()
	}
}

// deposeMaster freezes a master for longer than the others wait for it.
func (s *shards) deposeMaster() func() {
	master := s.next()
	master.Pause()
	s.AwaitFailover(master)
	return func() {
		master.Resume()
		s.AwaitStable()
	}
}

func (s *shards) killReplica() func() {
	s.turn++
	replicas := s.Replicas()
	replica := replicas[s.turn%len(replicas)]
	replica.Kill()
	return func() {
		replica.Restart()
		s.AwaitStable()
	}
}

// moveSlot moves a queue to the next master, first some of its keys.
func (s *shards) moveSlot() func() {
	key, masters := s.nextKey(), s.Masters()
	owner := s.OwnerOf(key)
	to := masters[(slices.Index(masters, owner)+1)%len(masters)]
	moving := s.BeginReshard(s.SlotOf(key), to)
	moving.Move(3)
	return moving.Finish
}

func addresses(servers []*redistest.Server) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
