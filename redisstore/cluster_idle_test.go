package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// turns counts the round trips to each server of a cluster.
type turns struct {
	mu sync.Mutex // guards n
	n  map[string]int
}

func (c *turns) count() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = map[string]int{}
	return n
}

func (c *turns) watch(client *redis.Client) { client.AddHook(turnHook{c, client.Options().Addr}) }

type turnHook struct {
	turns *turns
	addr  string
}

func (h turnHook) note() {
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	h.turns.n[h.addr]++
}

func (h turnHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h turnHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { h.note(); return next(ctx, cmd) }
}

func (h turnHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { h.note(); return next(ctx, cmds) }
}

func TestIdle_one_worker_of_a_hundred_queues_on_a_cluster_makes_few_round_trips(t *testing.T) {
	t.Parallel()
	const many = 100
	c := redistest.StartCluster(t, 0)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{c.Nodes()[0].Addr()}, ContextTimeoutEnabled: true, DisableRoutingPolicies: true, ClusterStateReloadInterval: 10 * time.Second,
	})
	t.Cleanup(func() { _ = client.Close() })
	trips := &turns{n: map[string]int{}}
	client.OnNewNode(trips.watch)
	store, err := redisstore.New(client, patient)
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	queues := make([]string, many)
	var all []dueq.Item
	for i := range queues {
		queues[i] = fmt.Sprint("idle:", i)
		all = append(all, item(queues[i], "later", dueq.In(time.Hour)))
	}
	scheduleAll(t, store, all)
	startWorker(t, store, dueq.WorkerOptions{}, newLedger(), queues...)
	const window = 5 * time.Second
	eventually(t, 30*time.Second, "the worker is idle", func() bool {
		before, began := sent(t, c), time.Now()
		pass(t, time.Second)
		return float64(sent(t, c)-before) < 1.3*many*time.Since(began).Seconds()
	})
	trips.count()
	before, began := sent(t, c), time.Now()
	pass(t, window)
	seconds := time.Since(began).Seconds()
	commands := float64(sent(t, c)-before) / seconds
	t.Logf("%.1f commands/s", commands)
	if commands > 210 || commands < 0.7*many {
		t.Errorf("%.1f commands/s, want at most 210, and one look at each of %d queues", commands, many)
	}
	for addr, n := range trips.count() {
		t.Logf("%s: %.1f round trips/s", addr, float64(n)/seconds)
		if float64(n)/seconds > 2.2 {
			t.Errorf("%s: %.1f round trips/s, want at most 2", addr, float64(n)/seconds)
		}
	}
}

// sent is how many commands clients have sent to a cluster, those within
// scripts not counted.
func sent(t *testing.T, c *redistest.Cluster) (n int64) {
	t.Helper()
	for _, node := range c.Nodes() {
		for name, calls := range node.Commands(t) {
			switch name {
			case "evalsha", "eval", "ping", "sadd", "smembers", "hset", "publish", "subscribe", "cluster|slots", "hello", "wait", "script|load":
				n += calls
			}
		}
	}
	return n
}
