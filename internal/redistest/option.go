package redistest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Option changes how Start runs a server.
type Option func(*options)

type options struct {
	settings []setting
	ports    []string  // settings whose value is a free port, besides port
	clockAt  time.Time // zero: the clock is not frozen
	running  bool      // WithRunningClock
	tls      bool
	sentinel bool
	users    map[string]string // passwords by name
	master   *Server           // of a replica
}

type setting struct{ name, value string }

// WithAOF makes the server append every write to a file and sync it before it
// answers, so that Kill and Restart lose nothing that was acknowledged.
func WithAOF() Option {
	return func(o *options) {
		o.settings = append(o.settings, setting{"appendonly", "yes"}, setting{"appendfsync", "always"})
	}
}

// WithConfig adds one line of redis.conf, after the defaults of this package.
// The value stands there as given: several words are several arguments. Port,
// bind and dir belong to this package.
func WithConfig(name, value string) Option {
	return func(o *options) {
		o.settings = append(o.settings, setting{name, value})
	}
}

// WithClock runs the server with its wall clock frozen at the given instant,
// which must be of the years 1970 to 9999 and is cut to the microsecond. The
// clock moves by SetTime and Advance only, over restarts as well.
//
// Whatever Redis measures by the wall clock follows: TIME, expiry, the timeout
// of a blocking command. Its event loop keeps running on the monotonic clock,
// so a timeout that the clock has passed is noticed within about 100 ms.
func WithClock(at time.Time) Option {
	return func(o *options) { o.clockAt = at }
}

// WithRunningClock runs the server with a wall clock of its own that starts as
// the machine's and runs as fast. SetTime and Advance step it; a step outlives
// restarts.
func WithRunningClock() Option {
	return func(o *options) { o.running = true }
}

// config returns the text of redis.conf. Background rewrites are off because
// their child would outlive a Kill.
func (s *Server) config() string {
	var b strings.Builder
	fmt.Fprintf(&b, "port %d\n", s.port)
	for _, name := range s.ports {
		fmt.Fprintf(&b, "%s %d\n", name, s.morePorts[name])
	}
	fmt.Fprintf(&b, "dir %q\n", s.dir)
	b.WriteString(`bind 127.0.0.1
protected-mode yes
daemonize no
loglevel notice
save ""
stop-writes-on-bgsave-error no
appendonly no
auto-aof-rewrite-percentage 0
repl-diskless-sync yes
repl-diskless-sync-delay 0
`)
	for _, line := range s.settings {
		fmt.Fprintf(&b, "%s %s\n", line.name, line.value)
	}
	return b.String()
}

func (s *Server) password() string { return s.setting("requirepass") }

// setting returns the value that the options gave, or "". The last one counts.
func (s *Server) setting(name string) string {
	for _, line := range slices.Backward(s.settings) {
		if line.name == name {
			return line.value
		}
	}
	return ""
}
