package redistest

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	s := Start(t, WithTLS(), WithConfig("requirepass", "secret"))
	mustSet(t, s.Client(t), "a", "1")

	t.Run("serves_who_trusts_the_authority", func(t *testing.T) {
		t.Parallel()
		pem, err := os.ReadFile(s.CAFile())
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		mustGet(t, tlsClient(t, s, roots), "a", "1")
	})

	t.Run("is_refused_by_who_does_not", func(t *testing.T) {
		t.Parallel()
		err := tlsClient(t, s, x509.NewCertPool()).Ping(t.Context()).Err()
		if err == nil || !strings.Contains(err.Error(), "unknown authority") {
			t.Errorf("got %v, want an unknown authority", err)
		}
	})

	t.Run("comes_back_after_a_restart", func(t *testing.T) {
		t.Parallel()
		other := Start(t, WithTLS())
		url := other.TLSURL()
		other.Restart()
		if other.TLSURL() != url {
			t.Errorf("URL: got %s, want %s", other.TLSURL(), url)
		}
	})
}

func tlsClient(t *testing.T, s *Server, roots *x509.CertPool) *redis.Client {
	t.Helper()
	opt, err := redis.ParseURL(s.TLSURL())
	if err != nil || opt.TLSConfig == nil {
		t.Fatalf("TLSURL: got %s, %v", s.TLSURL(), err)
	}
	opt.TLSConfig = &tls.Config{RootCAs: roots, ServerName: opt.TLSConfig.ServerName, MinVersion: tls.VersionTLS12}
	c := redis.NewClient(opt)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestUser(t *testing.T) {
	t.Parallel()
	s := Start(t, WithUser("worker", `p"a:s/s`, "~delay:*", "+@all"), WithUser("idle", "x"))
	worker := userClient(t, s, "worker")
	mustSet(t, worker, "delay:a", "1")
	if n := s.Denied(t); n != 0 {
		t.Fatalf("denied: got %v, want none", s.Denials(t))
	}
	for range 3 {
		mustNOPERM(t, worker.Get(t.Context(), "other").Err())
	}
	mustNOPERM(t, userClient(t, s, "idle").Get(t.Context(), "delay:a").Err())
	denials := s.Denials(t)
	if !slices.Contains(denials, Denial{3, "key", "other", "worker"}) || !slices.Contains(denials, Denial{1, "command", "get", "idle"}) {
		t.Errorf("denials: got %v", denials)
	}
	s.ResetDenials(t)
	if n := s.Denied(t); n != 0 {
		t.Errorf("denied after the reset: got %d, want 0", n)
	}
}

func mustNOPERM(t *testing.T, err error) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("got %v, want NOPERM", err)
	}
}

func userClient(t *testing.T, s *Server, name string) *redis.Client {
	t.Helper()
	opt, err := redis.ParseURL(s.UserURL(name))
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(opt)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
