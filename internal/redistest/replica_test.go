package redistest

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestReplica(t *testing.T) {
	t.Parallel()

	t.Run("follows_a_master_with_a_password_and_counts_for_WAIT", func(t *testing.T) {
		t.Parallel()
		master := Start(t, WithConfig("requirepass", "secret"))
		replica := Start(t, WithReplicaOf(master))
		c := master.Client(t)
		mustSet(t, c, "a", "1")
		if n := c.Wait(t.Context(), 1, 0).Val(); n != 1 {
			t.Fatalf("WAIT: got %d replicas, want 1", n)
		}
		mustGet(t, replica.Client(t), "a", "1")
		err := replica.Client(t).Set(t.Context(), "a", "2", 0).Err()
		if err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
			t.Errorf("SET at the replica: got %v, want READONLY", err)
		}
	})

	t.Run("gets_nothing_after_the_cut_if_the_master_dies", func(t *testing.T) {
		t.Parallel()
		master := Start(t)
		replica := Start(t, WithReplicaOf(master))
		c := master.Client(t)
		mustSet(t, c, "a", "1")
		c.Wait(t.Context(), 1, 0)
		master.CutReplicas(replica)
		mustSet(t, c, "lost", "1")
		master.Kill()
		replica.Resume()
		replica.Promote()
		mustGet(t, replica.Client(t), "a", "1")
		if err := replica.Client(t).Get(t.Context(), "lost").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("GET lost: got %v, want redis.Nil", err)
		}
	})

	t.Run("catches_up_after_a_cut_if_the_master_lives", func(t *testing.T) {
		t.Parallel()
		master := Start(t)
		replica := Start(t, WithReplicaOf(master))
		master.CutReplicas(replica)
		mustSet(t, master.Client(t), "a", "1")
		replica.Resume()
		c := replica.Client(t)
		eventually(t, "the replica to catch up", func() bool { return c.Get(t.Context(), "a").Val() == "1" })
	})

	t.Run("keeps_its_role_over_restarts", func(t *testing.T) {
		t.Parallel()
		master := Start(t)
		replica := Start(t, WithReplicaOf(master))
		replica.Promote()
		master.Follow(replica)
		for server, want := range map[*Server]string{replica: "master", master: "slave"} {
			server.Restart()
			if got := server.mustInfo(t, "replication")["role"]; got != want {
				t.Errorf("role: got %s, want %s", got, want)
			}
		}
	})
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	s := Start(t)
	c := s.Client(t)
	mustSet(t, c, "a", "1")
	s.SaveSnapshot(t)
	for range 2 {
		mustSet(t, c, "a", "2")
		s.RestartFromSnapshot()
		mustGet(t, c, "a", "1")
	}
	mustSet(t, c, "a", "3")
	s.SaveSnapshot(t)
	s.RestartFromSnapshot()
	mustGet(t, c, "a", "3")
}
