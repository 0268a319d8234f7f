package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// WithReplicaOf makes the server a replica of master, which must run already.
// Start returns when the replica is in step and master counts it.
func WithReplicaOf(master *Server) Option {
	return func(o *options) {
		o.master = master
		o.settings = append(o.settings, setting{"replicaof", "127.0.0.1 " + strconv.Itoa(master.port)})
		if password := master.password(); password != "" {
			o.settings = append(o.settings, setting{"masterauth", password})
		}
	}
}

// Promote makes a replica a master with the data that it has, over restarts as
// well. Others learn nothing of it: tell replicas by Follow, clients by
// Proxy.SetTarget. Sentinels and clusters promote by themselves.
func (s *Server) Promote() {
	s.t.Helper()
	s.mustCall(s.t, "REPLICAOF", "NO", "ONE")
	s.mustCall(s.t, "CONFIG", "REWRITE")
	s.master = nil
}

// Follow makes a running server a replica of master, over restarts as well, and
// returns when it is in step. What it had beyond the master's data is lost.
func (s *Server) Follow(master *Server) {
	s.t.Helper()
	if password := master.password(); password != "" {
		s.mustCall(s.t, "CONFIG", "SET", "masterauth", password)
	}
	s.mustCall(s.t, "REPLICAOF", "127.0.0.1", strconv.Itoa(master.port))
	s.mustCall(s.t, "CONFIG", "REWRITE")
	s.master = master
	s.awaitOnline(s.t)
}

// CutReplicas parts a running master from its replicas: they are paused and
// their connections closed, so they never get what the master accepts from now
// on if it is killed before they are resumed. If it lives, Resume of each
// replica brings it in step again.
func (s *Server) CutReplicas(replicas ...*Server) {
	s.t.Helper()
	for _, replica := range replicas {
		replica.Pause()
	}
	s.mustCall(s.t, "CLIENT", "KILL", "TYPE", "replica")
}

// awaitOnline waits until the replica is in step and its master counts it.
func (s *Server) awaitOnline(t testing.TB) {
	t.Helper()
	await(t, "the replica to be in step", []*Server{s, s.master}, func() bool {
		return s.linked() && s.master.counts(s)
	})
}

// linked reports whether a replica is in step with its master.
func (s *Server) linked() bool {
	info, err := s.info("replication")
	return err == nil && info["master_link_status"] == "up"
}

// counts reports whether a master has the replica online.
func (s *Server) counts(replica *Server) bool {
	text, err := s.ask("INFO", "replication")
	return err == nil && strings.Contains(text, fmt.Sprintf("port=%d,state=online", replica.port))
}
