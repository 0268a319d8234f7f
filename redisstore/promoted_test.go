package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// Of a failover not every server of a cluster knows at once, so a client may be
// told the old masters once more.
func TestWaitReplicas_in_a_cluster_whose_client_knows_the_old_masters_only(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1)
	setUp := openStore(t, c.URL(), patient)
	_, err := setUp.SetSettings(t.Context(), "q", dueq.SettingsPatch{"wait_replicas": "1"})
	must(t, err)
	old := c.OwnerOf("delay:q")
	replica := replicaOf(t, c, old)
	stores := map[string]*redisstore.Store{
		"with": outdated(t, old, replica), "without": outdated(t, old), "one": openStore(t, old.URL(), patient),
	}
	for _, store := range stores {
		_, err := store.Schedule(t.Context(), []dueq.Item{item("q", "a", dueq.In(time.Hour))})
		must(t, err)
	}

	must(t, replica.Client(t).Do(t.Context(), "cluster", "failover").Err())
	c.AwaitFailover(old)
	if _, err := stores["with"].Schedule(t.Context(), []dueq.Item{item("q", "b", dueq.In(time.Hour))}); err != nil {
		t.Errorf("its replicas are known: got %v, want that it is scheduled", err)
	}
	if _, err = stores["without"].Schedule(t.Context(), []dueq.Item{item("q", "c", dueq.In(time.Hour))}); err != nil {
		t.Errorf("its replicas are not known: got %v, want that it is scheduled", err)
	}
	_, err = stores["one"].Schedule(t.Context(), []dueq.Item{item("q", "d", dueq.In(time.Hour))})
	if err == nil || !strings.Contains(err.Error(), "MOVED") {
		t.Errorf("it knows one server only: got %v, want MOVED as the server says it", err)
	}
}

func replicaOf(t *testing.T, c *redistest.Cluster, master *redistest.Server) *redistest.Server {
	t.Helper()
	for _, replica := range c.Replicas() {
		role, err := replica.Client(t).Do(t.Context(), "role").Slice()
		must(t, err)
		if strings.HasSuffix(master.Addr(), fmt.Sprintf(":%d", role[2])) {
			return replica
		}
	}
	t.Fatalf("%s has no replica", master.Addr())
	return nil
}

// outdated is a store on a cluster client that takes the first of some servers
// for the master of all slots and the others for its replicas, whatever happens.
func outdated(t *testing.T, servers ...*redistest.Server) *redisstore.Store {
	t.Helper()
	all := redis.ClusterSlot{End: 16383}
	for _, s := range servers {
		all.Nodes = append(all.Nodes, redis.ClusterNode{Addr: s.Addr()})
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots:          func(context.Context) ([]redis.ClusterSlot, error) { return []redis.ClusterSlot{all}, nil },
		ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, patient)
	must(t, err)
	return store
}
