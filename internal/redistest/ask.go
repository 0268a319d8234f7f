package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

const askTimeout = 10 * time.Second

// ask sends one command over a connection of its own and returns the reply. It
// speaks the protocol itself because a client would add commands to the counts.
func (s *Server) ask(args ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Addr(), askTimeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return "", err
	}
	replies := bufio.NewReader(conn)
	if password := s.password(); password != "" {
		if _, err := s.exchange(conn, replies, "AUTH", password); err != nil {
			return "", err
		}
	}
	return s.exchange(conn, replies, args...)
}

func (s *Server) exchange(conn io.Writer, replies *bufio.Reader, args ...string) (string, error) {
	if _, err := io.WriteString(conn, encode(args)); err != nil {
		return "", err
	}
	reply, err := decode(replies)
	if err == nil {
		s.countOwn(args)
	}
	return reply, err
}

func encode(args []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

// decode reads one reply that is not an array.
func decode(replies *bufio.Reader) (string, error) {
	line, err := replies.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", errors.New(rest)
	case '$':
		return decodeBulk(replies, rest)
	}
	return "", fmt.Errorf("unexpected reply %q", line)
}

func decodeBulk(replies io.Reader, length string) (string, error) {
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 {
		return "", fmt.Errorf("unexpected length %q", length)
	}
	text := make([]byte, n+len("\r\n"))
	_, err = io.ReadFull(replies, text)
	return string(text[:n]), err
}

func (s *Server) countOwn(args []string) {
	name := strings.ToLower(args[0])
	if name == "config" {
		name += "|" + strings.ToLower(args[1])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own[name]++
}
