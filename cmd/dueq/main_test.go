package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/httpapi"
	"github.com/dueq/dueq/internal/openstore"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/memstore"
)

// cli runs command lines, in this process, on one store.
type cli struct {
	store dueq.Store                                   // the same store, for the test to look into
	open  func(url, prefix string) (dueq.Store, error) // what a command line opens
	zadd  func(queue, member string, score float64)    // as a foreign producer does
	url   string
	token string   // DUEQ_TOKEN
	extra []string // arguments of every command line
	home  string   // HOME, where the default store lies

	terminal bool // stdin, stdout and stderr are one
}

type result struct {
	stdout, stderr string
	code           int
}

func (c *cli) run(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return c.runContext(t, t.Context(), stdin, args...)
}

func (c *cli) getenv(name string) string {
	return map[string]string{"DUEQ_STORE": c.url, "DUEQ_TOKEN": c.token, "HOME": c.home}[name]
}

func (c *cli) runContext(t *testing.T, ctx context.Context, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr lockedBuffer
	a := &app{
		stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr,
		getenv:  c.getenv,
		environ: func() []string { return []string{"DUEQ_STORE=" + c.url} },
		open:    func(_ context.Context, url, prefix string) (dueq.Store, error) { return c.open(url, prefix) },
		exit:    func(code int) { panic(fmt.Sprintf("exit %d", code)) },

		terminal: func(any) bool { return c.terminal },
	}
	code := a.run(ctx, append(c.extra, args...))
	return result{stdout.String(), stderr.String(), code}
}

// named is an environment that names a store.
func named(url string) func(name string) string {
	return func(name string) string { return map[string]string{"DUEQ_STORE": url}[name] }
}

// on runs f on an empty store in memory, on one in a file, on one in Redis and on
// one behind a server.
func on(t *testing.T, f func(t *testing.T, c *cli)) {
	t.Run("memory", func(t *testing.T) { f(t, onMemory(t)) })
	t.Run("sqlite", func(t *testing.T) { f(t, onSQLite(t)) })
	t.Run("redis", func(t *testing.T) { f(t, onRedis(t)) })
	t.Run("http", func(t *testing.T) { f(t, onHTTP(t)) })
}

func onMemory(t *testing.T) *cli {
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	return &cli{
		store: store, url: "memory:", zadd: store.Add,
		open: func(string, string) (dueq.Store, error) { return kept{store}, nil },
	}
}

// kept is a store that outlives the command lines that close it.
type kept struct{ dueq.Store }

func (kept) Close() error { return nil }

// onSQLite opens a file, which has no open format: zadd is nil.
func onSQLite(t *testing.T) *cli {
	t.Helper()
	url := "sqlite:" + filepath.Join(t.TempDir(), "test.db")
	open := func(url, prefix string) (dueq.Store, error) { return openstore.Open(t.Context(), url, prefix) }
	store, err := open(url, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return &cli{store: store, url: url, open: open}
}

func onRedis(t *testing.T) *cli {
	t.Helper()
	server := redistest.Start(t)
	return onServer(t, server.URL(), server.Client(t))
}

// onServer is a command line on Redis, in any layout, and a client of it.
func onServer(t *testing.T, url string, client redis.UniversalClient) *cli {
	t.Helper()
	const prefix = "test:"
	open := func(url, prefix string) (dueq.Store, error) { return openstore.Open(t.Context(), url, prefix) }
	store, err := open(url, prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return &cli{
		store: store, open: open, url: url, extra: []string{"--prefix", prefix},
		zadd: func(queue, member string, score float64) {
			if err := client.Do(context.Background(), "ZADD", prefix+queue, score, member).Err(); err != nil {
				t.Error(err)
			}
		},
	}
}

const testToken = "s3cr3t"

// onHTTP serves a store in memory, to those who have testToken.
func onHTTP(t *testing.T) *cli {
	t.Helper()
	store := memstore.New(memstore.Options{})
	server, err := httpapi.New(store, httpapi.Options{
		Tokens:    []httpapi.Token{{Name: "test", Hash: httpapi.HashToken(testToken), Scopes: []httpapi.Scope{httpapi.ScopeAdmin}}},
		MemberMax: dueq.MemberMax, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(server.Handler())
	t.Cleanup(func() {
		server.Drain()
		s.Close()
		server.Close()
		store.Close()
	})
	open := func(url, prefix string) (dueq.Store, error) { return openstore.Open(t.Context(), url, prefix) }
	return &cli{store: store, open: open, url: s.URL, token: testToken, zadd: store.Add}
}

// lockedBuffer may be written by several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// must fails the test if the command line did not exit with code.
func (r result) must(t *testing.T, code int) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	return r
}

func (r result) has(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.stdout, text) {
			t.Errorf("stdout lacks %q:\n%s", text, r.stdout)
		}
	}
}

func (r result) says(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("stderr lacks %q:\n%s", text, r.stderr)
		}
	}
}

// object reads stdout as one JSON object.
func (r result) object(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil {
		t.Fatalf("stdout is not a JSON object: %v\n%s", err, r.stdout)
	}
	return v
}

func (c *cli) schedule(t *testing.T, queue, member string, when dueq.When) {
	t.Helper()
	c.scheduleAll(t, queue, []string{member}, when)
}

// scheduleAll schedules at most MaxItems members in one call.
func (c *cli) scheduleAll(t *testing.T, queue string, members []string, when dueq.When) {
	t.Helper()
	items := make([]dueq.Item, len(members))
	for i, member := range members {
		task, err := dueq.ParseMember(member)
		if err != nil {
			t.Fatal(err)
		}
		items[i] = dueq.Item{Queue: queue, Task: task, When: when}
	}
	outcomes, err := c.store.Schedule(t.Context(), items)
	if err != nil || slices.ContainsFunc(outcomes, func(o dueq.Outcome) bool { return o.Error() != nil }) {
		t.Fatal(outcomes, err)
	}
}

// claim claims until it has n tasks.
func (c *cli) claim(t *testing.T, queue string, n int) []*dueq.Task {
	t.Helper()
	var tasks []*dueq.Task
	eventually(t, func() bool {
		claim, err := c.store.Claim(t.Context(), dueq.ClaimRequest{Queue: queue, Max: max(n, 1)})
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, claim.Tasks...)
		return len(tasks) >= n
	})
	return tasks
}

// die makes dead letters of members, each with an error.
func (c *cli) die(t *testing.T, queue, text string, members ...string) {
	t.Helper()
	c.scheduleAll(t, queue, members, dueq.In(0))
	var results []dueq.Result
	for _, task := range c.claim(t, queue, len(members)) {
		results = append(results, dueq.Result{Task: task, Verdict: dueq.VerdictDead, Err: text})
	}
	if _, err := c.store.Settle(t.Context(), queue, results); err != nil {
		t.Fatal(err)
	}
}

func (c *cli) stats(t *testing.T, queue string) dueq.QueueStats {
	t.Helper()
	stats, err := c.store.Stats(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	return stats[0]
}

func (c *cli) info(t *testing.T, queue, member string) dueq.Info {
	t.Helper()
	infos, err := c.store.Get(t.Context(), queue, []string{member})
	if err != nil {
		t.Fatal(err)
	}
	return infos[0]
}

// eventually waits until ok, for as long as a slow machine may need.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	timeout := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-ticker.C:
		case <-timeout:
			t.Fatal("it did not happen within 30 s")
		}
	}
}

var badScore = math.Inf(-1)
