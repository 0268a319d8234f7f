// Package redistest runs real redis-server processes for tests: single ones,
// replicas, sentinels and clusters. It starts, stops, kills, pauses and fills
// them, sets their wall clock, and breaks the connections to them with a proxy.
//
// It needs Linux and redis-server 7 on the PATH; a clock needs libfaketime as
// well (Debian: apt-get install faketime). What is missing fails the test.
//
// Methods end the test they belong to when something goes wrong, so call them
// from the goroutine of that test unless their comment says otherwise.
package redistest

import (
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 15 * time.Second
	pollInterval = 5 * time.Millisecond
	portTries    = 20
)

// Server is one redis-server on a loopback port, with a directory of its own.
type Server struct {
	options
	t         testing.TB
	dir       string
	port      int
	morePorts map[string]int // by setting
	clock     *clock         // nil: the machine's
	limit     *limits        // what Fill replaced; nil unless filled

	mu   sync.Mutex       // guards what follows
	proc *process         // the last one started; nil before the first
	own  map[string]int64 // commands this package sent to proc, by name
}

// Start launches a redis-server on a free loopback port and returns when it
// answers and has loaded its data. The server is killed when the test ends,
// and when the test process dies.
//
// It persists nothing unless asked to by an option. A server that cannot be
// started ends the test with the tail of its log.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := startAll(t, 1, opts...)[0]
	if s.master != nil {
		s.awaitOnline(t)
	}
	return s
}

// startAll starts n servers at the same time.
func startAll(t testing.TB, n int, opts ...Option) []*Server {
	t.Helper()
	servers, errs := make([]*Server, n), make([]error, n)
	var group sync.WaitGroup
	for i := range servers {
		group.Go(func() { servers[i], errs[i] = startOne(t, opts) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("redistest: start redis-server: %v", err)
	}
	return servers
}

func startOne(t testing.TB, opts []Option) (*Server, error) {
	s, err := newServer(t, opts)
	if err != nil {
		return nil, err
	}
	t.Cleanup(s.Kill)
	return s, s.startOnFreePort()
}

func newServer(t testing.TB, opts []Option) (*Server, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	s := &Server{options: o, t: t, dir: t.TempDir(), morePorts: make(map[string]int)}
	if o.tls {
		if err := writeCertificates(s.dir); err != nil {
			return nil, err
		}
	}
	if o.clockAt.IsZero() && !o.running {
		return s, nil
	}
	s.clock = &clock{path: filepath.Join(s.dir, "clock"), running: o.running, now: o.clockAt}
	return s, s.clock.move(func(now time.Time) time.Time { return now })
}

func (s *Server) startOnFreePort() error {
	var err error
	for range portTries {
		if err = s.pickPorts(); err != nil {
			return err
		}
		if err = s.launch(); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

func (s *Server) pickPorts() (err error) {
	if s.port, err = freePort(); err != nil {
		return err
	}
	for _, name := range s.ports {
		if s.morePorts[name], err = freePort(); err != nil {
			return err
		}
	}
	return nil
}

// Addr returns the address as 127.0.0.1:port. It outlives restarts.
func (s *Server) Addr() string {
	return loopback(s.port)
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// URL returns the address as redis://127.0.0.1:port, with the password in it if
// there is a requirepass.
func (s *Server) URL() string {
	return newURL("redis", s.Addr(), s.password()).String()
}

func newURL(scheme, host, password string) *url.URL {
	u := &url.URL{Scheme: scheme, Host: host}
	if password != "" {
		u.User = url.UserPassword("", password)
	}
	return u
}

// Client returns a new client of the server, closed when t ends.
//
// It has go-redis' default options (three retries among them), except that it
// sends nothing but HELLO when it connects. For others, parse URL.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr:            s.Addr(),
		Password:        s.password(),
		DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// PID returns the process id of the server as last started. Safe from any
// goroutine.
func (s *Server) PID() int {
	return s.process().pid()
}

// Stop ends the server politely, by SIGTERM, and returns when it is gone. A
// paused server is resumed for it. Stopping a stopped server does nothing.
func (s *Server) Stop() {
	s.t.Helper()
	if !s.process().terminate(stopTimeout) {
		s.t.Fatalf("redistest: %s did not stop within %v, so it was killed\n%s", s.Addr(), stopTimeout, s.logTail())
	}
}

// Kill ends the server at once, by SIGKILL, and returns when it is gone.
// Killing a stopped server does nothing. Safe from any goroutine.
func (s *Server) Kill() {
	if p := s.process(); p != nil {
		p.kill()
	}
}

// Restart starts the server again, on the same port and directory, and returns
// when it answers and has loaded its data. A running server is stopped first.
// The clock stays where it is; what CONFIG SET changed is forgotten, unless
// CONFIG REWRITE kept it. A replica comes back as one and need not be in step yet.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.limit = nil
	if err := s.run(); err != nil {
		s.t.Fatalf("redistest: restart %s: %v", s.Addr(), err)
	}
}

// Pause freezes the process with SIGSTOP and returns when it has stopped
// running: connections stay open and are accepted, nothing is answered.
func (s *Server) Pause() {
	s.t.Helper()
	if err := s.process().pause(stopTimeout); err != nil {
		s.t.Fatalf("redistest: pause %s: %v", s.Addr(), err)
	}
}

// Resume lets a paused process go on; it then answers what came in meanwhile.
// Safe from any goroutine.
func (s *Server) Resume() {
	s.process().resume()
}

func (s *Server) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}
