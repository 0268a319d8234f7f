package redistest

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Sentinel is a master with two replicas, and three sentinels that promote a
// replica when two of them have missed the master for a second.
type Sentinel struct {
	t         testing.TB
	nodes     []*Server
	sentinels []*Server
}

// masterName is what the sentinels call the master.
const masterName = "mymaster"

// StartSentinel starts all six processes and returns when the replicas are in
// step and the sentinels know everybody. The options are those of the three data
// nodes; a requirepass holds between them too, the sentinels ask for none.
func StartSentinel(t testing.TB, opts ...Option) *Sentinel {
	t.Helper()
	s := &Sentinel{t: t, nodes: startAll(t, 3, slices.Concat(opts, []Option{withMasterAuth})...)}
	master := s.nodes[0]
	for _, replica := range s.nodes[1:] {
		replica.Follow(master)
	}
	s.sentinels = startAll(t, 3, watching(master))
	for _, sentinel := range s.sentinels {
		sentinel.mustCall(t, "SENTINEL", "DEBUG", "info-period", "200", "publish-period", "200", "tilt-period", "2000")
	}
	await(t, "the sentinels to know everybody", s.sentinels, s.acquainted)
	return s
}

// withMasterAuth lets a node log in to another of the same options.
func withMasterAuth(o *options) {
	for _, line := range o.settings {
		if line.name == "requirepass" {
			o.settings = append(o.settings, setting{"masterauth", line.value})
		}
	}
}

func watching(master *Server) Option {
	return func(o *options) {
		o.sentinel = true
		lines := []string{
			"monitor " + masterName + " 127.0.0.1 " + strconv.Itoa(master.port) + " 2",
			"down-after-milliseconds " + masterName + " 1000",
			"failover-timeout " + masterName + " 3000",
		}
		if password := master.password(); password != "" {
			lines = append(lines, "auth-pass "+masterName+" "+password)
		}
		for _, line := range lines {
			o.settings = append(o.settings, setting{"sentinel", line})
		}
	}
}

func (s *Sentinel) acquainted() bool {
	for _, sentinel := range s.sentinels {
		info, err := sentinel.info("sentinel")
		if err != nil || !strings.HasSuffix(info["master0"], "slaves=2,sentinels=3") {
			return false
		}
	}
	return true
}

// URL returns redis+sentinel://host:port,host:port,host:port/mymaster, with the
// data nodes' password in it if there is a requirepass.
func (s *Sentinel) URL() string {
	u := newURL("redis+sentinel", strings.Join(s.Addrs(), ","), s.nodes[0].password())
	u.Path = "/" + masterName
	return u.String()
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinel) Addrs() []string { return addrs(s.sentinels) }

// Sentinels returns the sentinels, to be killed, paused or asked.
func (s *Sentinel) Sentinels() []*Server { return s.sentinels }

// Master returns the node that the sentinels name, whether it lives or not.
func (s *Sentinel) Master() *Server {
	s.t.Helper()
	for _, sentinel := range alive(s.sentinels) {
		if named := s.named(sentinel); named != nil {
			return named
		}
	}
	s.t.Fatal("redistest: no sentinel answers")
	return nil
}

// Replicas returns the data nodes besides Master, whether they live or not.
func (s *Sentinel) Replicas() []*Server {
	s.t.Helper()
	return without(s.nodes, s.Master())
}

// named returns the master that one sentinel names, nil if it does not answer.
func (s *Sentinel) named(sentinel *Server) *Server {
	v, err := sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName)
	if err != nil || len(v.items) != 2 {
		return nil
	}
	addr := net.JoinHostPort(v.items[0].text, v.items[1].text)
	for _, node := range s.nodes {
		if node.Addr() == addr {
			return node
		}
	}
	return nil
}

// AwaitFailover waits until another node than old is master, all living
// sentinels name it and all living replicas, old aside, follow it. It returns
// the new master. To begin a failover, kill or pause old.
func (s *Sentinel) AwaitFailover(old *Server) *Server {
	s.t.Helper()
	var master *Server
	await(s.t, "a failover", slices.Concat(s.sentinels, s.nodes), func() bool {
		master = s.Master()
		return master != old && s.agreed(master) && followed(master, without(alive(s.nodes), old))
	})
	return master
}

// AwaitStable waits until all living sentinels name the same master and all
// other living data nodes follow it.
func (s *Sentinel) AwaitStable() {
	s.t.Helper()
	await(s.t, "a stable master", slices.Concat(s.sentinels, s.nodes), func() bool {
		master := s.Master()
		return s.agreed(master) && followed(master, alive(s.nodes))
	})
}

func (s *Sentinel) agreed(master *Server) bool {
	for _, sentinel := range alive(s.sentinels) {
		if s.named(sentinel) != master {
			return false
		}
	}
	return true
}

// followed reports whether master is one and the other nodes are in step with it.
func followed(master *Server, nodes []*Server) bool {
	info, err := master.info("replication")
	if err != nil || info["role"] != "master" {
		return false
	}
	for _, node := range without(nodes, master) {
		if !node.linked() || !master.counts(node) {
			return false
		}
	}
	return true
}
