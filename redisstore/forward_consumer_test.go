package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/child"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// catch counts what consumers took, by id.
type catch struct {
	mu    sync.Mutex // guards all below
	times map[string]int
	bad   []string
}

// took notes a task whose body must be its id.
func (c *catch) took(member, body string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := strings.TrimSuffix(member, ":k")
	if c.times[id]++; body != id {
		c.bad = append(c.bad, fmt.Sprintf("%s with body %q", member, body))
	}
}

func (c *catch) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.times)
}

// popping consumes a list as any program would.
func (c *catch) popping(t *testing.T, ctx context.Context, raw redis.Cmdable, key string) {
	for ctx.Err() == nil {
		got, err := raw.BLPop(ctx, time.Second, key).Result()
		if err == nil {
			member, body, _ := strings.Cut(got[1], "\n")
			c.took(member, body)
		} else if !errors.Is(err, redis.Nil) && ctx.Err() == nil {
			t.Error("BLPOP:", err)
			return
		}
	}
}

// reading consumes a stream as one of a group. An entry that is there before
// its task is due came early: ids are the server's time.
func (c *catch) reading(t *testing.T, ctx context.Context, raw redis.Cmdable, key, name string) {
	for ctx.Err() == nil {
		got, err := raw.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: "g", Consumer: name, Streams: []string{key, ">"}, Count: 10, Block: 100 * time.Millisecond,
		}).Result()
		if err != nil {
			if !errors.Is(err, redis.Nil) && ctx.Err() == nil {
				t.Error("XREADGROUP:", err)
				return
			}
			continue
		}
		for _, entry := range got[0].Messages {
			c.took(entry.Values["member"].(string), entry.Values["body"].(string))
			ms, _, _ := strings.Cut(entry.ID, "-")
			if due := entry.Values["due_ms"].(string); len(due) != 13 || due > ms {
				t.Errorf("entry %s of a task due at %s", entry.ID, due)
			}
			if err := raw.XAck(ctx, key, "g", entry.ID).Err(); err != nil && ctx.Err() == nil {
				t.Error("XACK:", err)
			}
		}
	}
}

func TestForward_consumers_get_every_task_once(t *testing.T) {
	t.Parallel()
	one := func(parameters string) func(t *testing.T) (string, redis.UniversalClient) {
		return func(t *testing.T) (string, redis.UniversalClient) {
			srv := redistest.Start(t)
			return srv.URL() + parameters, srv.Client(t)
		}
	}
	for name, start := range map[string]func(t *testing.T) (string, redis.UniversalClient){
		"of one server": one(""), "over RESP2": one("?protocol=2"),
		"of a cluster": func(t *testing.T) (string, redis.UniversalClient) {
			c := redistest.StartCluster(t, 0)
			return c.URL(), clusterClient(t, c)
		},
	} {
		for _, kind := range []string{"list", "stream"} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				url, raw := start(t)
				onceEach(t, url, raw, "order:close", kind)
			})
		}
	}
}

func onceEach(t *testing.T, url string, raw redis.UniversalClient, queue, kind string) {
	for range 3 {
		startForwarder(t, openStore(t, url, patient), queue, kind)
	}
	key, got := outOf(queue), &catch{times: map[string]int{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	defer cancel()
	if kind == "stream" {
		must(t, raw.XGroupCreateMkStream(ctx, key, "g", "0").Err())
	}
	var consumers sync.WaitGroup
	for i := range 2 {
		consumers.Go(func() {
			if kind == "list" {
				got.popping(t, ctx, raw, key)
			} else {
				got.reading(t, ctx, raw, key, strconv.Itoa(i))
			}
		})
	}
	store, random := openStore(t, url, patient), seeded(t)
	var lock sync.Mutex
	load := startProducers(t, store, queue, "t", 4, func(n int64) int64 {
		lock.Lock()
		defer lock.Unlock()
		return random.Int64N(n)
	})
	eventually(t, 30*time.Second, "many tasks came", func() bool { return got.size() > 1000 })
	load.end()
	if load.failed > 0 || len(load.unknown) > 0 {
		t.Errorf("%d schedules failed, of %d nothing is known", load.failed, len(load.unknown))
	}
	eventually(t, 30*time.Second, "all tasks came", func() bool { return got.size() >= len(load.stored) })
	eventually(t, 10*time.Second, "the destination is read", func() bool {
		return kind == "stream" || raw.Exists(t.Context(), key).Val() == 0
	})
	cancel()
	consumers.Wait()
	got.check(t, load.stored)
	if st, n := statsOf(t, store, queue), int64(len(load.stored)); st.Totals != (dueq.Totals{Scheduled: n, Forwarded: n}) || st.Scheduled+st.Active+st.Dead != 0 {
		t.Errorf("got %+v, want %d scheduled and forwarded", st, n)
	}
}

// check expects exactly these ids, once each.
func (c *catch) check(t *testing.T, ids []string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.bad) > 0 {
		t.Errorf("bodies of others: %.10q", c.bad)
	}
	if len(c.times) != len(ids) {
		t.Errorf("%d tasks came, want %d", len(c.times), len(ids))
	}
	for _, id := range ids {
		if c.times[id] != 1 {
			t.Errorf("%s came %d times", id, c.times[id])
		}
	}
}

// forwarderRole forwards a queue of a URL to a destination.
func forwarderRole(ctx context.Context, args []string) error {
	store, err := redisstore.Open(args[0], patient)
	if err != nil {
		return err
	}
	defer store.Close()
	fmt.Println("ready")
	return dueq.Forward(ctx, store, args[1], dueq.ForwardOptions{To: args[2], Logger: quietLog})
}

func TestForward_nothing_is_lost_or_doubled_when_forwarders_are_killed(t *testing.T) {
	t.Parallel()
	rounds := 8
	if text := os.Getenv("DUEQ_KILL_ROUNDS"); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		must(t, err)
	}
	srv := redistest.Start(t)
	raw, store, random := srv.Client(t), openStore(t, srv.URL(), patient), seeded(t)
	const queue = "kill:forward"
	set(t, store, queue, "batch", "20") // so that a kill meets a call
	came := func() int { return int(raw.LLen(t.Context(), outOf(queue)).Val()) }
	launch := func() *child.Process {
		ready := make(chan struct{})
		var once sync.Once
		p := child.Start(t, func([]byte) { once.Do(func() { close(ready) }) }, "forwarder", srv.URL(), queue, "list")
		select {
		case <-ready:
		case <-time.After(30 * time.Second):
			t.Fatal("the forwarder did not start")
		}
		return p
	}
	forwarders := []*child.Process{launch(), launch()}
	var ids []string
	amid := 0
	for round := range rounds {
		const n = 5000
		var all []dueq.Item
		for i := range n {
			id := fmt.Sprintf("r%d-%d", round, i)
			all, ids = append(all, item(queue, id, past, id)), append(ids, id)
		}
		set(t, store, queue, "paused", "on")
		scheduleAll(t, store, all)
		set(t, store, queue, "paused", "off")
		some := len(ids) - n + int(random.Int64N(n*3/4))
		eventually(t, 30*time.Second, "some are forwarded", func() bool { return came() > some })
		forwarders[round%2].Kill()
		if came() < len(ids) {
			amid++
		}
		forwarders[round%2] = launch()
	}
	t.Logf("%d of %d kills came before all was forwarded", amid, rounds)
	eventually(t, 30*time.Second, "all is forwarded", func() bool { return came() >= len(ids) })
	for _, p := range forwarders {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
	got := &catch{times: map[string]int{}}
	for _, element := range raw.LRange(t.Context(), outOf(queue), 0, -1).Val() {
		member, body, _ := strings.Cut(element, "\n")
		got.took(member, body)
	}
	got.check(t, ids)
	if st := statsOf(t, store, queue); st.Scheduled != 0 || st.Totals.Forwarded != int64(len(ids)) {
		t.Errorf("got %+v, want %d forwarded", st, len(ids))
	}
}
