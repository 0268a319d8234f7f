package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

var errPortTaken = errors.New("port is taken")

// Ports are picked below the range from which Linux gives ports to outgoing
// connections, so that nothing takes the port of a server that is down.
const (
	firstPort = 10000
	endPort   = 32768
)

func freePort() (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(endPort-firstPort)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port found")
}

// launch writes the configuration and runs the server. It does so once on a
// port, because Sentinel and CONFIG REWRITE keep in that file what they changed.
func (s *Server) launch() error {
	if err := os.WriteFile(s.confPath(), []byte(s.config()), 0o600); err != nil {
		return err
	}
	return s.run()
}

// run starts a process and waits until it serves. After an error no process
// is left; errPortTaken says that another one listens on the port.
func (s *Server) run() error {
	cmd, err := s.command()
	if err != nil {
		return err
	}
	log, err := os.Create(s.logPath())
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	p, err := startProcess(cmd)
	if err != nil {
		return err
	}
	s.adopt(p)
	return s.awaitReady(p)
}

func (s *Server) command() (*exec.Cmd, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, s.confPath())
	if s.sentinel {
		cmd.Args = append(cmd.Args, "--sentinel")
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TZ=UTC", "LC_ALL=C"}
	if s.clock == nil {
		return cmd, nil
	}
	env, err := s.clock.env()
	cmd.Env = append(cmd.Env, env...)
	return cmd, err
}

func (s *Server) adopt(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc = p
	s.own = make(map[string]int64)
}

func (s *Server) awaitReady(p *process) error {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	defer removeShared(p.pid())
	for {
		select {
		case <-p.done:
			return s.explainEnd()
		case <-timeout.C:
			p.kill()
			return fmt.Errorf("not ready within %v\n%s", startTimeout, s.logTail())
		case <-tick.C:
			if s.ready(p) {
				return nil
			}
		}
	}
}

// ready reports whether p serves. It compares process ids because another
// test's server may have got the port first.
func (s *Server) ready(p *process) bool {
	info, err := s.info("default")
	if err != nil || info["process_id"] != strconv.Itoa(p.pid()) || info["loading"] == "1" {
		return false
	}
	pong, err := s.ask("PING")
	return err == nil && pong == "PONG"
}

func (s *Server) explainEnd() error {
	tail := s.logTail()
	if strings.Contains(tail, "Address already in use") {
		return fmt.Errorf("%w: %s\n%s", errPortTaken, s.Addr(), tail)
	}
	return fmt.Errorf("redis-server ended at once\n%s", tail)
}

func (s *Server) confPath() string {
	return filepath.Join(s.dir, "redis.conf")
}

func (s *Server) logPath() string {
	return filepath.Join(s.dir, "redis.log")
}

// logTail returns the last 2,000 bytes the current process logged.
func (s *Server) logTail() string {
	text, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}
