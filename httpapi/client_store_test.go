package httpapi_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/httpapi"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/memstore"
	"github.com/dueq/dueq/redisstore"
	"github.com/dueq/dueq/storetest"
)

func TestStoreOverHTTP(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) storetest.Fixture{"memory": overMemory, "redis": overRedis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, open)
		})
	}
}

// The wire against the rules: random operations over HTTP and on a store in
// memory, every answer and all that lies in both compared.
func TestModelOverHTTP(t *testing.T) {
	t.Parallel()
	store := overMemory(t)
	oracle := memstore.New(memstore.Options{Now: store.Now})
	storetest.Model(t, store, storetest.Fixture{
		Store: oracle, Now: store.Now, Advance: func(time.Duration) {}, // the other does
		Add: oracle.Add, Remove: oracle.Remove, Dump: contents(oracle),
	})
}

// overMemory is a store in memory, with a clock that stands still, behind a
// server.
func overMemory(t *testing.T) storetest.Fixture {
	var micro atomic.Int64
	micro.Store(1_800_000_000_000_000)
	now := func() time.Time { return time.UnixMicro(micro.Load()).UTC() }
	store := memstore.New(memstore.Options{Now: now})
	t.Cleanup(func() { store.Close() })
	return storetest.Fixture{
		Store: open(t, serveAsked(t, store), patient), JSON: true,
		Now: now, Advance: func(d time.Duration) { micro.Add(d.Microseconds()) },
		Add: store.Add, Remove: store.Remove, Dump: contents(store),
	}
}

func contents(store *memstore.Store) func(queue string) storetest.Snapshot {
	return func(queue string) storetest.Snapshot { return storetest.Snapshot(store.Contents(queue)) }
}

// overRedis is a store on a Redis whose clock stands still, behind a server.
func overRedis(t *testing.T) storetest.Fixture {
	srv := redistest.Start(t, redistest.WithClock(time.UnixMilli(1_800_000_000_000)))
	store, err := redisstore.Open(srv.URL(), redisstore.Options{Timeout: 10 * time.Second})
	must(t, err)
	t.Cleanup(func() { store.Close() })
	raw := srv.Client(t)
	key := func(queue string) string { return redisstore.DefaultPrefix + queue }
	return storetest.Fixture{
		Store: open(t, serveAsked(t, store), patient), JSON: true,
		Now: srv.Now, Advance: srv.Advance,
		Add: func(queue, member string, score float64) {
			must(t, raw.ZAdd(t.Context(), key(queue), redis.Z{Score: score, Member: member}).Err())
		},
		Remove: func(queue, member string) { must(t, raw.ZRem(t.Context(), key(queue), member).Err()) },
		Dump:   func(queue string) storetest.Snapshot { return redisContents(t, raw, key(queue)) },
	}
}

// redisContents reads the keys of one queue.
func redisContents(t *testing.T, raw *redis.Client, key string) storetest.Snapshot {
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

// patient is for tests that are not about time-outs.
var patient = httpapi.ClientOptions{Timeout: 20 * time.Second}

// serveAsked is serve for a store whose clock stands still: while real time goes
// by, the server may not claim of its own accord from queues with leases.
func serveAsked(t *testing.T, store dueq.Store) string {
	return serveWith(t, asked{store}, httpapi.Options{}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), askedKey{}, true)))
		})
	})
}

// asked claims for requests only.
type asked struct{ dueq.Store }

type askedKey struct{}

func (s asked) Claim(ctx context.Context, req dueq.ClaimRequest) (dueq.Claim, error) {
	if ctx.Value(askedKey{}) == nil {
		return dueq.Claim{Now: time.Now(), Wait: -1}, nil
	}
	return s.Store.Claim(ctx, req)
}

// serve serves a store on a loopback port, whose address it returns, until the
// test ends.
func serve(t *testing.T, store dueq.Store, opts httpapi.Options) string {
	t.Helper()
	return serveWith(t, store, opts, func(next http.Handler) http.Handler { return next })
}

func serveWith(t *testing.T, store dueq.Store, opts httpapi.Options, wrap func(http.Handler) http.Handler) string {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	opts.MemberMax = dueq.MemberMax
	server, err := httpapi.New(store, opts)
	must(t, err)
	s := httptest.NewUnstartedServer(nil)
	s.Config = server.HTTPServer()
	s.Config.Handler = wrap(s.Config.Handler)
	s.Start()
	t.Cleanup(func() {
		server.Drain()
		s.Close()
		server.Close()
	})
	return s.URL
}
