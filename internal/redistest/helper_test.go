package redistest

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func itoa(n int) string { return strconv.Itoa(n) }

func mustSet(t *testing.T, c *redis.Client, key, value string) {
	t.Helper()
	if err := c.Set(t.Context(), key, value, 0).Err(); err != nil {
		t.Fatalf("SET %s: %v", key, err)
	}
}

func mustGet(t *testing.T, c *redis.Client, key, want string) {
	t.Helper()
	if got, err := c.Get(t.Context(), key).Result(); got != want || err != nil {
		t.Fatalf("GET %s: got %q, %v, want %q", key, got, err, want)
	}
}

func mustOOM(t *testing.T, c *redis.Client) {
	t.Helper()
	if err := c.Set(t.Context(), "full", "1", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "OOM") {
		t.Fatalf("SET on a full server: got %v, want OOM", err)
	}
}

// mustRefuse fails unless nothing listens at the server's address.
func mustRefuse(t *testing.T, s *Server) {
	t.Helper()
	if conn, err := net.Dial("tcp", s.Addr()); err == nil {
		conn.Close()
		t.Fatalf("%s accepts connections, want none", s.Addr())
	}
}

// mustShow fails unless Redis and Now both tell want, cut to the microsecond.
func mustShow(t *testing.T, s *Server, c *redis.Client, want time.Time) {
	t.Helper()
	want = want.Truncate(time.Microsecond)
	got, err := c.Time(t.Context()).Result()
	if err != nil || !got.Equal(want) || !s.Now().Equal(want) {
		t.Fatalf("TIME: got %v, %v, Now %v, want %v", got, err, s.Now(), want)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !holds() {
		select {
		case <-timeout.C:
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}
