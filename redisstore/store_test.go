package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
	"github.com/dueq/dueq/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, openFixture)
}

// openFixture starts a server with a clock that stands still.
func openFixture(t *testing.T) storetest.Fixture {
	srv := redistest.Start(t, redistest.WithClock(time.UnixMilli(1_800_000_000_000)))
	store, err := redisstore.Open(srv.URL(), redisstore.Options{Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return fixtureOf(t, store, srv.Client(t), redisstore.DefaultPrefix, srv)
}

// fixtureOf is the fixture of a store whose data raw reads and writes, on
// servers whose clocks go together.
func fixtureOf(t *testing.T, store *redisstore.Store, raw redis.Cmdable, prefix string, servers ...*redistest.Server) storetest.Fixture {
	key := func(queue string) string { return prefix + queue }
	return storetest.Fixture{
		Store: store,
		Now:   servers[0].Now,
		Advance: func(d time.Duration) {
			for _, srv := range servers {
				srv.Advance(d)
			}
		},
		Add: func(queue, member string, score float64) {
			must(t, raw.ZAdd(t.Context(), key(queue), redis.Z{Score: score, Member: member}).Err())
		},
		Remove: func(queue, member string) {
			must(t, raw.ZRem(t.Context(), key(queue), member).Err())
		},
		Dump: func(queue string) storetest.Snapshot { return dump(t, raw, key(queue)) },
		Key:  key,
		Sent: func(key string) [][]string { return entriesOf(t, raw, key) },
		Put:  func(key, kind, value string) { put(t, raw, key, kind, value) },
	}
}

// entriesOf reads a list or a stream.
func entriesOf(t *testing.T, raw redis.Cmdable, key string) (out [][]string) {
	t.Helper()
	if raw.Type(t.Context(), key).Val() != "stream" {
		elements, err := raw.LRange(t.Context(), key, 0, -1).Result()
		must(t, err)
		for _, element := range elements {
			out = append(out, []string{element})
		}
		return out
	}
	entries, err := raw.(doer).Do(t.Context(), "xrange", key, "-", "+").Slice()
	must(t, err)
	for _, entry := range entries {
		var fields []string // in their order, which a map would lose
		for _, text := range entry.([]any)[1].([]any) {
			fields = append(fields, text.(string))
		}
		out = append(out, fields)
	}
	return out
}

type doer interface {
	Do(ctx context.Context, args ...any) *redis.Cmd
}

// put makes a key of a type.
func put(t *testing.T, raw redis.Cmdable, key, kind, value string) {
	t.Helper()
	args := map[string][]any{
		"list": {"rpush", key, value}, "stream": {"xadd", key, "*", "f", value}, "zset": {"zadd", key, 1, value},
		"hash": {"hset", key, "f", value}, "string": {"set", key, value}, "set": {"sadd", key, value},
	}[kind]
	must(t, raw.(doer).Do(t.Context(), args...).Err())
}

// dump reads the keys of one queue.
func dump(t *testing.T, raw redis.Cmdable, key string) storetest.Snapshot {
	side := "{" + key + "}:"
	zset := func(name string) map[string]float64 {
		entries, err := raw.ZRangeWithScores(t.Context(), name, 0, -1).Result()
		must(t, err)
		out := map[string]float64{}
		for _, z := range entries {
			out[z.Member.(string)] = z.Score
		}
		return out
	}
	hash := func(name string) map[string]string {
		out, err := raw.HGetAll(t.Context(), name).Result()
		must(t, err)
		return out
	}
	active := map[string]int64{}
	for m, lease := range zset(side + "active") {
		active[m] = int64(lease)
	}
	return storetest.Snapshot{
		Scheduled: zset(key), Next: zset(side + "next"), Dead: zset(side + "dead"), Active: active,
		Body: hash(side + "body"), Tries: hash(side + "tries"), Error: hash(side + "error"),
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
