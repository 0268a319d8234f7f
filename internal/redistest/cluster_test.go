package redistest

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func clusterClient(t *testing.T, c *Cluster) *redis.ClusterClient {
	t.Helper()
	u, err := url.Parse(c.URL())
	if err != nil || u.Scheme != "redis+cluster" {
		t.Fatalf("URL: got %s, %v", c.URL(), err)
	}
	password, _ := u.User.Password()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:    strings.Split(u.Host, ","),
		Password: password,
		// When a master dies nothing else makes go-redis look again.
		ClusterStateReloadInterval: 100 * time.Millisecond,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func setKeys(t *testing.T, client redis.Cmdable, n int, name string) {
	t.Helper()
	for i := range n {
		if err := client.Set(t.Context(), fmt.Sprintf(name, i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func mustHaveKeys(t *testing.T, client redis.Cmdable, n int, name string) {
	t.Helper()
	for i := range n {
		key := fmt.Sprintf(name, i)
		if got, err := client.Get(t.Context(), key).Int(); got != i || err != nil {
			t.Fatalf("GET %s: got %d, %v, want %d", key, got, err, i)
		}
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()

	t.Run("serves_every_slot_within_seconds_and_with_a_password", func(t *testing.T) {
		t.Parallel()
		began := time.Now()
		c := StartCluster(t, 0, WithConfig("requirepass", "secret"))
		t.Logf("up after %v", time.Since(began))
		setKeys(t, clusterClient(t, c), 100, "key%d")
		for _, master := range c.Masters() {
			if n := master.Client(t).DBSize(t.Context()).Val(); n == 0 {
				t.Errorf("%s got none of 100 keys", master.Addr())
			}
		}
	})

	t.Run("promotes_the_replica_of_a_killed_master_and_takes_it_back", func(t *testing.T) {
		t.Parallel()
		began := time.Now()
		c := StartCluster(t, 1, WithAOF())
		t.Logf("up after %v", time.Since(began))
		if m, r := len(c.Masters()), len(c.Replicas()); m != 3 || r != 3 {
			t.Fatalf("got %d masters, %d replicas, want 3 of each", m, r)
		}
		client := clusterClient(t, c)
		setKeys(t, client, 100, "key%d")
		old := c.OwnerOf("key1")
		awaitReplicated(t, old)
		old.Kill()
		master := c.AwaitFailover(old)
		if master == old || c.OwnerOf("key1") != master {
			t.Fatalf("owner after failover: got %s, want %s", c.OwnerOf("key1").Addr(), master.Addr())
		}
		eventually(t, "the client to learn of it", func() bool {
			return client.Get(t.Context(), "key1").Err() == nil
		})
		mustHaveKeys(t, client, 100, "key%d")
		old.Restart()
		c.AwaitStable()
		if !slices.Contains(c.Replicas(), old) || len(c.Masters()) != 3 {
			t.Errorf("after the restart %s is no replica", old.Addr())
		}
	})

	t.Run("loses_the_slots_of_a_killed_master_only", func(t *testing.T) {
		t.Parallel()
		c := StartCluster(t, 0)
		masters := c.Masters()
		dead := c.OwnerOf("a")
		other := without(masters, dead)[0]
		dead.Kill()
		if got := c.Masters(); !slices.Equal(got, without(masters, dead)) {
			t.Errorf("masters: got %v, want the two living ones", addrs(got))
		}
		key := keyOf(c, other)
		mustSet(t, other.Client(t), key, "1")
	})

	t.Run("stops_as_a_whole_when_told_to_cover_all_slots", func(t *testing.T) {
		t.Parallel()
		c := StartCluster(t, 0, WithConfig("cluster-require-full-coverage", "yes"))
		other := c.Masters()[1]
		key := keyOf(c, other)
		c.Masters()[0].Kill()
		client := other.Client(t)
		eventually(t, "CLUSTERDOWN", func() bool {
			err := client.Get(t.Context(), key).Err()
			return err != nil && strings.HasPrefix(err.Error(), "CLUSTERDOWN")
		})
	})
}

// keyOf returns a key of a slot that node owns.
func keyOf(c *Cluster, node *Server) string {
	self := node.self()
	for i := 0; ; i++ {
		if key := itoa(i); self.owns(c.SlotOf(key)) {
			return key
		}
	}
}

// awaitReplicated waits until a replica has all that the master has.
func awaitReplicated(t *testing.T, master *Server) {
	t.Helper()
	eventually(t, "replication", func() bool {
		info := master.mustInfo(t, "replication")
		return strings.Contains(info["slave0"], "offset="+info["master_repl_offset"])
	})
}

func TestReshard(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 0, WithConfig("requirepass", "secret"))
	masters := c.Masters()

	t.Run("moves_a_slot_with_its_keys_under_load", func(t *testing.T) {
		t.Parallel()
		client := clusterClient(t, c)
		setKeys(t, client, 250, "{moved}%d")
		stop, stopped := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { failed <- incrementUntil(stop, client, "{moved}n") }()
		to := without(masters, c.OwnerOf("{moved}"))[0]
		c.Reshard(c.SlotOf("{moved}"), to)
		stopped()
		if err := <-failed; err != nil {
			t.Errorf("INCR during the move: %v", err)
		}
		if owner := c.OwnerOf("{moved}"); owner != to {
			t.Errorf("owner: got %s, want %s", owner.Addr(), to.Addr())
		}
		mustHaveKeys(t, client, 250, "{moved}%d")
	})

	t.Run("can_stop_halfway", func(t *testing.T) {
		t.Parallel()
		client := clusterClient(t, c)
		setKeys(t, client, 10, "{half}%d")
		from := c.OwnerOf("{half}")
		to := without(masters, from)[0]
		r := c.BeginReshard(c.SlotOf("{half}"), to)
		if n := r.Move(4); n != 4 {
			t.Fatalf("moved %d keys, want 4", n)
		}
		slot := itoa(c.SlotOf("{half}"))
		for node, want := range map[*Server]string{from: "6", to: "4"} {
			if got := node.mustCall(t, "CLUSTER", "COUNTKEYSINSLOT", slot).text; got != want {
				t.Errorf("keys at %s: got %s, want %s", node.Addr(), got, want)
			}
		}
		if c.OwnerOf("{half}") != from {
			t.Error("the owner changed before the end")
		}
		mustHaveKeys(t, client, 10, "{half}%d")
		r.Finish()
		if c.OwnerOf("{half}") != to {
			t.Error("the owner did not change at the end")
		}
		mustHaveKeys(t, client, 10, "{half}%d")
	})
}

// incrementUntil returns the first error before ctx ends.
func incrementUntil(ctx context.Context, client redis.Cmdable, key string) error {
	for {
		err := client.Incr(context.WithoutCancel(ctx), key).Err()
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}
