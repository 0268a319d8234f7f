package redistest

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func sentinelClient(t *testing.T, s *Sentinel) *redis.Client {
	t.Helper()
	u, err := url.Parse(s.URL())
	if err != nil || u.Scheme != "redis+sentinel" || !slices.Equal(strings.Split(u.Host, ","), s.Addrs()) {
		t.Fatalf("URL: got %s, %v", s.URL(), err)
	}
	password, _ := u.User.Password()
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: strings.TrimPrefix(u.Path, "/"), SentinelAddrs: s.Addrs(), Password: password,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestSentinel(t *testing.T) {
	t.Parallel()

	t.Run("promotes_a_replica_of_a_killed_master_and_takes_it_back", func(t *testing.T) {
		t.Parallel()
		began := time.Now()
		s := StartSentinel(t, WithAOF(), WithConfig("requirepass", "secret"))
		t.Logf("up after %v", time.Since(began))
		client := sentinelClient(t, s)
		mustSet(t, client, "a", "1")
		if n := client.Wait(t.Context(), 2, 0).Val(); n != 2 {
			t.Fatalf("WAIT: got %d replicas, want 2", n)
		}
		old := s.Master()
		old.Kill()
		began = time.Now()
		master := s.AwaitFailover(old)
		t.Logf("failover after %v", time.Since(began))
		if master == old || s.Master() != master || len(s.Replicas()) != 2 {
			t.Fatalf("master: got %s, want %s", s.Master().Addr(), master.Addr())
		}
		mustGet(t, client, "a", "1")
		mustSet(t, client, "a", "2")
		old.Restart()
		eventually(t, "the old master follows the new one", func() bool {
			s.AwaitStable()
			return s.Master() == master && followed(master, s.nodes)
		})
		mustGet(t, old.Client(t), "a", "2")
	})

	t.Run("forgets_what_the_replicas_did_not_get", func(t *testing.T) {
		t.Parallel()
		s := StartSentinel(t)
		old, replicas := s.Master(), s.Replicas()
		mustSet(t, old.Client(t), "a", "1")
		old.Client(t).Wait(t.Context(), 2, 0)
		old.CutReplicas(replicas...)
		mustSet(t, old.Client(t), "a", "2")
		old.Kill()
		for _, replica := range replicas {
			replica.Resume()
		}
		master := s.AwaitFailover(old)
		mustGet(t, master.Client(t), "a", "1")
	})
}
