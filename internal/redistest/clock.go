package redistest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// SetTime sets the server's wall clock to the given instant, earlier or later,
// cut to the microsecond; a running clock runs on from there. Commands sent
// after it returns see it. The server must have been started WithClock or
// WithRunningClock. Safe from any goroutine, like Advance and Now.
func (s *Server) SetTime(at time.Time) {
	s.t.Helper()
	s.moveClock(func(time.Time) time.Time { return at })
}

// Advance steps the server's wall clock by d, back if d is negative.
func (s *Server) Advance(d time.Duration) {
	s.t.Helper()
	s.moveClock(func(now time.Time) time.Time { return now.Add(d) })
}

// Now returns what the server's wall clock shows, in UTC.
func (s *Server) Now() time.Time {
	s.t.Helper()
	s.needClock()
	return s.clock.read()
}

func (s *Server) moveClock(step func(time.Time) time.Time) {
	s.t.Helper()
	s.needClock()
	if err := s.clock.move(step); err != nil {
		s.t.Fatalf("redistest: set clock of %s: %v", s.Addr(), err)
	}
}

func (s *Server) needClock() {
	s.t.Helper()
	if s.clock == nil {
		s.t.Fatal("redistest: the server has no clock of its own; start it WithClock or WithRunningClock")
	}
}

// clock is a file from which libfaketime reads the time at every call.
type clock struct {
	path    string
	running bool

	mu     sync.Mutex    // guards what follows and the file
	now    time.Time     // where a frozen clock stands
	offset time.Duration // from the machine's clock to a running one
}

// clockLayout is libfaketime's format of a frozen time. It parses the fraction
// as a float and cuts it, so the file holds the middle of the microsecond.
const clockLayout = "2006-01-02 15:04:05.000000000"

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		return time.Now().Add(c.offset).UTC()
	}
	return c.now
}

func (c *clock) move(step func(time.Time) time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		return c.run(step)
	}
	return c.freeze(step(c.now).UTC().Truncate(time.Microsecond))
}

func (c *clock) run(step func(time.Time) time.Time) error {
	now := time.Now()
	offset := step(now.Add(c.offset)).Sub(now)
	if err := replaceFile(c.path, fmt.Sprintf("%+.6f\n", offset.Seconds())); err != nil {
		return err
	}
	c.offset = offset
	return nil
}

func (c *clock) freeze(at time.Time) error {
	if at.Year() < 1970 || at.Year() > 9999 {
		return fmt.Errorf("%v is not of the years 1970 to 9999", at)
	}
	text := at.Add(500*time.Nanosecond).Format(clockLayout) + "\n"
	if err := replaceFile(c.path, text); err != nil {
		return err
	}
	c.now = at
	return nil
}

// replaceFile writes by rename, so that a reader sees the old text or the new.
func replaceFile(path, text string) error {
	next := path + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// env returns what makes a child read this clock. The C library is preloaded as
// well so that its malloc comes before jemalloc's: jemalloc asks for the time
// while it initialises, libfaketime allocates to answer, and both wait forever.
func (c *clock) env() ([]string, error) {
	lib, err := faketimeLibrary()
	return []string{
		"LD_PRELOAD=" + lib + ":libc.so.6",
		"FAKETIME_TIMESTAMP_FILE=" + c.path,
		"FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
		"DONT_FAKE_MONOTONIC=1",
		"NO_FAKE_STAT=1",
	}, err
}

func faketimeLibrary() (string, error) {
	for _, pattern := range []string{
		"/usr/lib/*/faketime/libfaketime.so.1",
		"/usr/lib*/faketime/libfaketime.so.1",
		"/usr/local/lib*/faketime/libfaketime.so.1",
	} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0], nil
		}
	}
	return "", errors.New("libfaketime.so.1 not found (Debian: apt-get install faketime)")
}

// removeShared unlinks the shared memory that libfaketime makes for its children
// and would leave behind if the process is killed. The process keeps its mapping.
func removeShared(pid int) {
	_ = os.Remove(fmt.Sprintf("/dev/shm/faketime_shm_%d", pid))
	_ = os.Remove(fmt.Sprintf("/dev/shm/sem.faketime_sem_%d", pid))
}
