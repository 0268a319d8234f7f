package redisstore_test

import (
	"context"
	"errors"
	"slices"
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
	var before []redis.ClusterSlot
	var replica string
	eventually(t, 10*time.Second, "the replica to be announced", func() bool {
		before, err = c.Nodes()[0].Client(t).ClusterSlots(t.Context()).Result()
		must(t, err)
		replica = replicaOf(old, before)
		return replica != ""
	})
	alone := make([]redis.ClusterSlot, len(before)) // as if there were no replicas
	for i, slots := range before {
		alone[i] = slots
		alone[i].Nodes = slices.Clone(slots.Nodes[:1])
	}
	stores := map[string]*redisstore.Store{
		"with": outdated(t, before), "without": outdated(t, alone), "one": openStore(t, old.URL(), patient),
	}
	for _, store := range stores {
		_, err := store.Schedule(t.Context(), []dueq.Item{item("q", "a", dueq.In(time.Hour))})
		must(t, err)
	}

	for _, node := range c.Nodes() {
		if node.Addr() == replica {
			must(t, node.Client(t).Do(t.Context(), "cluster", "failover").Err())
		}
	}
	c.AwaitFailover(old)
	if _, err := stores["with"].Schedule(t.Context(), []dueq.Item{item("q", "b", dueq.In(time.Hour))}); err != nil {
		t.Errorf("its replicas are known: got %v, want that it is scheduled", err)
	}
	_, err = stores["without"].Schedule(t.Context(), []dueq.Item{item("q", "c", dueq.In(time.Hour))})
	var call *dueq.CallError
	if !errors.Is(err, dueq.ErrUnavailable) || !errors.As(err, &call) || call.MayHaveHappened {
		t.Errorf("its replicas are not known: got %v, want ErrUnavailable and that it did not happen", err)
	}
	_, err = stores["one"].Schedule(t.Context(), []dueq.Item{item("q", "d", dueq.In(time.Hour))})
	if err == nil || errors.Is(err, dueq.ErrUnavailable) || !strings.Contains(err.Error(), "MOVED") {
		t.Errorf("it was to talk to one server only: got %v, want MOVED as the server says it", err)
	}
}

// replicaOf is the address of a master's replica, empty if none is announced.
func replicaOf(master *redistest.Server, slots []redis.ClusterSlot) string {
	for _, s := range slots {
		if s.Nodes[0].Addr == master.Addr() && len(s.Nodes) > 1 {
			return s.Nodes[1].Addr
		}
	}
	return ""
}

// outdated is a store on a cluster client that hears nothing but slots.
func outdated(t *testing.T, slots []redis.ClusterSlot) *redisstore.Store {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots:          func(context.Context) ([]redis.ClusterSlot, error) { return slots, nil },
		ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, patient)
	must(t, err)
	return store
}
