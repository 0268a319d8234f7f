package redistest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Cluster is a Redis Cluster of three shards. A node that has been missed for
// 1.5 s is failing, and if it is a master, a replica of it is promoted.
type Cluster struct {
	t      testing.TB
	shards [][]*Server // a node stays in its shard, whatever its role
}

const (
	shardCount = 3
	slotCount  = 16384
	settling   = 10 * time.Second // more than a new master waits before it serves
)

// StartCluster starts three masters, each with the given number of replicas,
// and returns when every node serves and the replicas are in step. The options
// are those of every node; a requirepass holds between them too.
//
// Slots without a master do not stop the others, unless WithConfig sets
// cluster-require-full-coverage. A frozen clock stops failovers; it is stepped
// by ten seconds here, before which no master would serve.
func StartCluster(t testing.TB, replicas int, opts ...Option) *Cluster {
	t.Helper()
	opts = slices.Concat([]Option{withCluster}, opts, []Option{withMasterAuth})
	c := &Cluster{t: t, shards: make([][]*Server, shardCount)}
	for i, node := range startAll(t, shardCount*(1+replicas), opts...) {
		c.shards[i%shardCount] = append(c.shards[i%shardCount], node)
	}
	for i, shard := range c.shards {
		c.found(i, shard[0])
	}
	await(t, "the nodes to know each other", c.Nodes(), c.acquainted)
	for _, node := range c.Nodes() {
		if node.clock != nil && !node.clock.running {
			node.Advance(settling)
		}
	}
	for _, shard := range c.shards {
		for _, replica := range shard[1:] {
			replica.mustCall(t, "CLUSTER", "REPLICATE", shard[0].clusterID(t))
		}
	}
	c.AwaitStable()
	await(t, "all nodes to know all slots", c.Nodes(), func() bool {
		return !slices.ContainsFunc(c.Masters(), func(master *Server) bool { return !c.known(master) })
	})
	return c
}

func withCluster(o *options) {
	o.ports = append(o.ports, "cluster-port")
	o.settings = append(o.settings,
		setting{"cluster-enabled", "yes"},
		setting{"cluster-node-timeout", "1500"},
		setting{"cluster-require-full-coverage", "no"},
		setting{"cluster-allow-replica-migration", "no"})
}

// found gives shard i its slots and makes the first node of all meet the shard.
// Distinct epochs spare the nodes a quarrel about them.
func (c *Cluster) found(i int, master *Server) {
	c.t.Helper()
	first, last := i*slotCount/shardCount, (i+1)*slotCount/shardCount-1
	master.mustCall(c.t, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
	master.mustCall(c.t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	for _, node := range c.shards[i] {
		c.shards[0][0].mustCall(c.t, "CLUSTER", "MEET", "127.0.0.1",
			strconv.Itoa(node.port), strconv.Itoa(node.morePorts["cluster-port"]))
	}
}

func (c *Cluster) acquainted() bool {
	nodes := c.Nodes()
	for _, node := range nodes {
		members := node.view().members
		if len(members) != len(nodes) || strings.Contains(fmt.Sprint(members), "handshake") {
			return false
		}
	}
	return true
}

// URL returns redis+cluster://host:port,… of all nodes, with the password in it
// if there is a requirepass.
func (c *Cluster) URL() string {
	nodes := c.Nodes()
	return newURL("redis+cluster", strings.Join(addrs(nodes), ","), nodes[0].password()).String()
}

// Nodes returns all nodes, dead or alive: the masters of the beginning first.
func (c *Cluster) Nodes() []*Server {
	var nodes []*Server
	for i := range c.shards[0] {
		for _, shard := range c.shards {
			nodes = append(nodes, shard[i])
		}
	}
	return nodes
}

// Masters returns the living masters by shard. A shard that has none, because it
// is dead or amid a failover, is left out.
func (c *Cluster) Masters() []*Server {
	var masters []*Server
	for _, shard := range c.shards {
		if master := masterOf(shard); master != nil {
			masters = append(masters, master)
		}
	}
	return masters
}

// Replicas returns the living nodes besides Masters.
func (c *Cluster) Replicas() []*Server {
	return without(alive(c.Nodes()), c.Masters()...)
}

// masterOf returns the living master of a shard, nil if there is none. A former
// one that just came back has the lower epoch.
func masterOf(shard []*Server) *Server {
	var master *Server
	var epoch int64
	for _, node := range alive(shard) {
		if self := node.self(); self.is("master") && self.epoch > epoch {
			master, epoch = node, self.epoch
		}
	}
	return master
}

// SlotOf returns the slot of a key.
func (c *Cluster) SlotOf(key string) int {
	c.t.Helper()
	slot, err := strconv.Atoi(alive(c.Nodes())[0].mustCall(c.t, "CLUSTER", "KEYSLOT", key).text)
	if err != nil {
		c.t.Fatalf("redistest: slot of %q: %v", key, err)
	}
	return slot
}

// OwnerOf returns the living master that owns the slot of a key. Without one the
// test ends.
func (c *Cluster) OwnerOf(key string) *Server {
	c.t.Helper()
	slot := c.SlotOf(key)
	owner := c.ownerOf(slot)
	if owner == nil {
		c.t.Fatalf("redistest: slot %d of %q has no living master", slot, key)
	}
	return owner
}

func (c *Cluster) ownerOf(slot int) *Server {
	for _, master := range c.Masters() {
		if master.self().owns(slot) {
			return master
		}
	}
	return nil
}

// AwaitFailover waits until another node of old's shard is master and every
// living node knows it. It returns the new master. To begin a failover, kill or
// pause old, which must have had a replica.
func (c *Cluster) AwaitFailover(old *Server) *Server {
	c.t.Helper()
	var master *Server
	await(c.t, "a failover", c.Nodes(), func() bool {
		master = masterOf(without(c.shardOf(old), old))
		return master != nil && c.known(master)
	})
	c.AwaitStable()
	return master
}

func (c *Cluster) shardOf(node *Server) []*Server {
	for _, shard := range c.shards {
		if len(without(shard, node)) < len(shard) {
			return shard
		}
	}
	return nil
}

// known reports whether every living node takes master for one with slots.
func (c *Cluster) known(master *Server) bool {
	self := master.self()
	for _, node := range alive(c.Nodes()) {
		if m := node.view().members[self.id]; !m.is("master") || len(m.slots) == 0 {
			return false
		}
	}
	return true
}

// AwaitStable waits until every living node serves, takes no other living one
// for failing, and follows its master if it is a replica.
func (c *Cluster) AwaitStable() {
	c.t.Helper()
	await(c.t, "a stable cluster", c.Nodes(), func() bool {
		return stable(alive(c.Nodes()))
	})
}
