package redistest

import (
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

const askTimeout = 10 * time.Second

// ask sends one command over a connection of its own and returns the reply's
// text, which is empty if the reply is an array.
func (s *Server) ask(args ...string) (string, error) {
	v, err := s.call(args...)
	return v.text, err
}

// mustCall is call for commands that the server must accept.
func (s *Server) mustCall(t testing.TB, args ...string) value {
	t.Helper()
	v, err := s.call(args...)
	if err != nil {
		t.Fatalf("redistest: %s at %s: %v\n%s", strings.Join(args, " "), s.Addr(), err, s.logTail())
	}
	return v
}

// call is ask for any reply. It speaks the protocol itself because a client
// would add commands to the counts.
func (s *Server) call(args ...string) (value, error) {
	conn, err := net.DialTimeout("tcp", s.Addr(), askTimeout)
	if err != nil {
		return value{}, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return value{}, err
	}
	replies := newRespReader(conn)
	if password := s.password(); password != "" {
		if _, err := s.exchange(conn, replies, "AUTH", password); err != nil {
			return value{}, err
		}
	}
	return s.exchange(conn, replies, args...)
}

func (s *Server) exchange(conn io.Writer, replies *respReader, args ...string) (value, error) {
	if _, err := io.WriteString(conn, encode(args)); err != nil {
		return value{}, err
	}
	reply, err := replies.next()
	if err == nil {
		err = reply.err()
	}
	if err == nil {
		s.countOwn(args)
	}
	return reply, err
}

// containers are the commands that Redis counts by subcommand.
var containers = []string{"acl", "client", "cluster", "config"}

func (s *Server) countOwn(args []string) {
	name := strings.ToLower(args[0])
	if slices.Contains(containers, name) {
		name += "|" + strings.ToLower(args[1])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own[name]++
}
