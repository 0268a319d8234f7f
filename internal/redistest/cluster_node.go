package redistest

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// member is one line of CLUSTER NODES: a node as another one, or itself, sees it.
type member struct {
	id    string
	flags []string
	epoch int64
	slots []string // "5" or "5-9", and in brackets what is being moved
}

func (m member) is(flag string) bool { return slices.Contains(m.flags, flag) }

func (m member) owns(slot int) bool {
	return slices.ContainsFunc(m.slots, func(slots string) bool {
		first, last, isRange := strings.Cut(slots, "-")
		if !isRange {
			last = first
		}
		low, lowErr := strconv.Atoi(first)
		high, highErr := strconv.Atoi(last)
		return lowErr == nil && highErr == nil && low <= slot && slot <= high
	})
}

// members returns what a node knows of the cluster, by id; nothing if it does
// not answer.
func (s *Server) members() map[string]member {
	text, _ := s.ask("CLUSTER", "NODES")
	members := make(map[string]member)
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		epoch, _ := strconv.ParseInt(words[6], 10, 64)
		members[words[0]] = member{words[0], strings.Split(words[2], ","), epoch, words[8:]}
	}
	return members
}

func (s *Server) self() member {
	for _, m := range s.members() {
		if m.is("myself") {
			return m
		}
	}
	return member{}
}

func (s *Server) clusterID(t testing.TB) string {
	t.Helper()
	return s.mustCall(t, "CLUSTER", "MYID").text
}

// stable reports whether a node serves, takes none of the given for failing, and
// follows its master if it has one.
func (s *Server) stable(nodes []*Server) bool {
	text, err := s.ask("CLUSTER", "INFO")
	if err != nil || !strings.Contains(text, "cluster_state:ok") {
		return false
	}
	members := s.members()
	for _, node := range nodes {
		m, known := members[node.self().id]
		if !known || m.is("fail") || m.is("fail?") || m.is("slave") != node.self().is("slave") {
			return false
		}
	}
	return !s.self().is("slave") || s.linked()
}

func addrs(servers []*Server) []string {
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

func without(servers []*Server, some ...*Server) []*Server {
	return slices.DeleteFunc(slices.Clone(servers), func(s *Server) bool {
		return slices.Contains(some, s)
	})
}
