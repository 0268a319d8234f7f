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

// view is what a node knows of the cluster; nothing if it does not answer.
type view struct {
	self    member
	members map[string]member // by id, self among them
}

func (s *Server) view() view {
	text, _ := s.ask("CLUSTER", "NODES")
	v := view{members: make(map[string]member)}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		epoch, _ := strconv.ParseInt(words[6], 10, 64)
		m := member{words[0], strings.Split(words[2], ","), epoch, words[8:]}
		v.members[m.id] = m
		if m.is("myself") {
			v.self = m
		}
	}
	return v
}

func (s *Server) self() member { return s.view().self }

func (s *Server) clusterID(t testing.TB) string {
	t.Helper()
	return s.mustCall(t, "CLUSTER", "MYID").text
}

// stable reports whether the nodes agree about each other, serve, and follow
// their masters.
func stable(nodes []*Server) bool {
	views := make([]view, len(nodes))
	for i, node := range nodes {
		views[i] = node.view()
	}
	for i, node := range nodes {
		if !views[i].confirms(views) || !node.serves() || views[i].self.is("slave") && !node.linked() {
			return false
		}
	}
	return true
}

// confirms reports whether a node sees each of the others as it sees itself, and
// takes none for failing. A former master that comes back has slots only in its
// own eyes at first.
func (v view) confirms(others []view) bool {
	for _, other := range others {
		m, known := v.members[other.self.id]
		if !known || m.is("fail") || m.is("fail?") || m.is("slave") != other.self.is("slave") ||
			len(m.slots) == 0 != (len(other.self.slots) == 0) {
			return false
		}
	}
	return true
}

func (s *Server) serves() bool {
	text, err := s.ask("CLUSTER", "INFO")
	return err == nil && strings.Contains(text, "cluster_state:ok")
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
