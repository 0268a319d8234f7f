package redistest

import (
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"
)

// limits are the memory settings of a server.
type limits struct{ maxmemory, policy string }

// Fill makes the server refuse writes that need memory with an OOM error, until
// Relieve or Restart. Reads and deletions go on. Filling twice is filling once.
func (s *Server) Fill(t testing.TB) {
	t.Helper()
	if s.limit == nil {
		info := s.mustInfo(t, "memory")
		s.limit = &limits{info["maxmemory"], info["maxmemory_policy"]}
	}
	s.setLimits(t, limits{"1", "noeviction"})
}

// Relieve undoes Fill. It does nothing on a server that is not filled.
func (s *Server) Relieve(t testing.TB) {
	t.Helper()
	if s.limit != nil {
		s.setLimits(t, *s.limit)
		s.limit = nil
	}
}

func (s *Server) setLimits(t testing.TB, l limits) {
	t.Helper()
	_, err := s.ask("CONFIG", "SET", "maxmemory-policy", l.policy, "maxmemory", l.maxmemory)
	if err != nil {
		t.Fatalf("redistest: set memory limit of %s: %v", s.Addr(), err)
	}
}

// Commands returns how often each command was called since the server started,
// under its lower-case name; a subcommand is "config|set". Commands never
// called are absent.
//
// What scripts call counts beside the script, and what other servers send does.
// What this package sent does not count. The HELLO of each connection does. CONFIG RESETSTAT makes the counts
// wrong, so take differences instead.
func (s *Server) Commands(t testing.TB) map[string]int64 {
	t.Helper()
	calls := make(map[string]int64)
	for key, value := range s.mustInfo(t, "commandstats") {
		name := strings.TrimPrefix(key, "cmdstat_")
		text, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		calls[name] = parseCount(t, text)
	}
	for name, n := range s.reported() {
		calls[name] -= n
	}
	maps.DeleteFunc(calls, func(_ string, n int64) bool { return n == 0 })
	return calls
}

// Processed returns the number of commands processed since the server started,
// counted the way Commands does.
func (s *Server) Processed(t testing.TB) int64 {
	t.Helper()
	n := parseCount(t, s.mustInfo(t, "stats")["total_commands_processed"])
	for _, own := range s.reported() {
		n -= own
	}
	return n
}

func parseCount(t testing.TB, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("redistest: count in INFO: %v", err)
	}
	return n
}

// reported returns the commands of this package that the INFO just received
// includes: all but that INFO, which Redis counts after answering it.
func (s *Server) reported() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := maps.Clone(s.own)
	own["info"]--
	return own
}

func (s *Server) mustInfo(t testing.TB, section string) map[string]string {
	t.Helper()
	info, err := s.info(section)
	if err != nil {
		t.Fatalf("redistest: INFO %s of %s: %v", section, s.Addr(), err)
	}
	return info
}

func (s *Server) info(section string) (map[string]string, error) {
	text, err := s.ask("INFO", section)
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[key] = value
		}
	}
	return info, err
}

// CPU returns how much processor time the server has used since it started.
func (s *Server) CPU(t testing.TB) time.Duration {
	t.Helper()
	info := s.mustInfo(t, "cpu")
	var sum float64
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info[name], 64)
		if err != nil {
			t.Fatalf("redistest: %s of %s: %v", name, s.Addr(), err)
		}
		sum += seconds
	}
	return time.Duration(sum * float64(time.Second))
}
