package chaos

import (
	"slices"
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
	return &System{Addr: s.URL(), Safe: safe, Masters: s.masters, Faults: slices.Concat(
		hurtMasters(s, s.master, time.Second),
		[]Fault{
			killed("replica killed", s, s.replica),
			{Kind: "slot moved", Hold: time.Second, Begin: s.moveSlot},
		},
		ordered(t, s.Masters),
	)}
}

// shards is a cluster whose shards are hurt in turn.
type shards struct {
	*redistest.Cluster
	turn int
}

func (s *shards) masters() string {
	s.AwaitStable()
	return addresses(s.Masters())
}

// key is that of one queue after the other.
func (s *shards) key() string {
	s.turn++
	return redisstore.DefaultPrefix + queues[s.turn%len(queues)]
}

func (s *shards) master() *redistest.Server { return s.OwnerOf(s.key()) }

func (s *shards) replica() *redistest.Server {
	s.turn++
	replicas := s.Replicas()
	return replicas[s.turn%len(replicas)]
}

// moveSlot moves a queue to the next master, first some of its keys.
func (s *shards) moveSlot() func() {
	key, masters := s.key(), s.Masters()
	to := masters[(slices.Index(masters, s.OwnerOf(key))+1)%len(masters)]
	moving := s.BeginReshard(s.SlotOf(key), to)
	moving.Move(3)
	return moving.Finish
}
