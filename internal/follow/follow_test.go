package follow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/follow"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/memstore"
	"github.com/dueq/dueq/redisstore"
)

// sick is a store that can be made to fail.
type sick struct {
	dueq.Store
	mu    sync.Mutex // guards what follows
	stats error
	queue map[string]error // of one queue
	calls int
	took  time.Duration // by each call of Stats; not guarded
}

func (s *sick) Stats(ctx context.Context, queues ...string) ([]dueq.QueueStats, error) {
	time.Sleep(s.took)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.stats != nil {
		return nil, s.stats
	}
	stats, err := s.Store.Stats(ctx, queues...)
	for i, st := range stats {
		stats[i].Err = s.queue[st.Queue]
	}
	return stats, err
}

func (s *sick) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// runs records what runs.
type runs struct {
	mu      sync.Mutex // guards what follows
	now     map[string]string
	started []string
	beside  bool // two runs of one queue at the same time
}

func (r *runs) run(linger time.Duration) func(context.Context, string, string) {
	return func(ctx context.Context, queue, value string) {
		r.enter(queue, value)
		defer r.leave(queue)
		<-ctx.Done()
		time.Sleep(linger)
	}
}

func (r *runs) enter(queue, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now == nil {
		r.now = map[string]string{}
	}
	_, r.beside = r.now[queue], r.beside || r.now[queue] != ""
	r.now[queue] = value
	r.started = append(r.started, queue+"="+value)
}

func (r *runs) leave(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.now, queue)
}

// expect fails unless exactly these run, as queue=value.
func (r *runs) expect(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var got []string
	for queue, value := range r.now {
		got = append(got, queue+"="+value)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("running %v, want %v", got, want)
	}
	if r.beside {
		t.Error("two runs of one queue at the same time")
	}
}

// begun returns what was ever started, sorted.
func (r *runs) begun() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.started)
	return strings.Join(r.started, " ")
}

func push(s dueq.Settings) string { return s.Push }

// start follows until the test ends or the function it returns is called.
func start(t *testing.T, store dueq.Store, run func(context.Context, string, string)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		follow.Run(ctx, store, push, run)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

func set(t *testing.T, store dueq.Store, queue, value string) {
	t.Helper()
	if _, err := store.SetSettings(t.Context(), queue, dueq.SettingsPatch{"push": value}); err != nil {
		t.Fatal(err)
	}
}

func bubble(t *testing.T, name string, f func(t *testing.T, store *sick)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f(t, &sick{Store: memstore.New(memstore.Options{})})
		})
	})
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestRun(t *testing.T) {
	t.Parallel()
	bubble(t, "runs the queues whose settings ask for it and heeds changes within a second", func(t *testing.T, store *sick) {
		var r runs
		set(t, store, "a", "http://a/1")
		set(t, store, "b", "off")
		start(t, store, r.run(0))
		pass(0)
		r.expect(t, "a=http://a/1")
		set(t, store, "a", "http://a/2")
		set(t, store, "b", "http://b/1")
		set(t, store, "new", "http://new/1")
		pass(time.Second)
		r.expect(t, "a=http://a/2", "b=http://b/1", "new=http://new/1")
		set(t, store, "a", "off")
		pass(time.Second)
		r.expect(t, "b=http://b/1", "new=http://new/1")
		pass(time.Hour)
		if got, want := r.begun(), "a=http://a/1 a=http://a/2 b=http://b/1 new=http://new/1"; got != want {
			t.Errorf("started %s, want %s", got, want)
		}
	})
	bubble(t, "starts nothing beside a run that takes its time to end", func(t *testing.T, store *sick) {
		var r runs
		set(t, store, "a", "http://a/1")
		set(t, store, "b", "http://b/1")
		start(t, store, r.run(10*time.Second))
		pass(0)
		for i, value := range []string{"http://a/2", "off", "http://a/3", "off", "http://a/4"} {
			set(t, store, "a", value)
			pass(time.Second)
			r.expect(t, "a=http://a/1", "b=http://b/1")
			if i == 0 {
				set(t, store, "b", "off")
			}
		}
		pass(8 * time.Second)
		r.expect(t, "a=http://a/4")
		if got, want := r.begun(), "a=http://a/1 a=http://a/4 b=http://b/1"; got != want {
			t.Errorf("started %s, want %s", got, want)
		}
	})
	bubble(t, "returns when every run has", func(t *testing.T, store *sick) {
		var r runs
		set(t, store, "a", "http://a/1")
		stop := start(t, store, r.run(7*time.Second))
		pass(time.Second / 2)
		began := time.Now()
		stop()
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("returned after %v, want 7s", took)
		}
		r.expect(t)
	})
	bubble(t, "starts a run again that returned by itself", func(t *testing.T, store *sick) {
		set(t, store, "a", "http://a/1")
		var count int
		start(t, store, func(context.Context, string, string) { count++ })
		pass(10*time.Second + time.Millisecond)
		if count != 11 {
			t.Errorf("%d starts in 10 s, want one a second", count)
		}
	})
	bubble(t, "keeps what runs while the store is away, and begins when it comes", func(t *testing.T, store *sick) {
		var r runs
		set(t, store, "a", "http://a/1")
		start(t, store, r.run(0))
		pass(0)
		store.set(func() { store.stats = dueq.Unavailable(errors.New("gone")) })
		set(t, store, "b", "http://b/1")
		pass(time.Minute)
		r.expect(t, "a=http://a/1")
		store.set(func() { store.stats = nil })
		pass(time.Second)
		r.expect(t, "a=http://a/1", "b=http://b/1")
	})
	bubble(t, "goes on with other queues when one cannot be read", func(t *testing.T, store *sick) {
		var r runs
		set(t, store, "a", "http://a/1")
		set(t, store, "b", "http://b/1")
		start(t, store, r.run(0))
		pass(0)
		store.set(func() { store.queue = map[string]error{"a": dueq.Unavailable(errors.New("gone"))} })
		set(t, store, "a", "off")
		set(t, store, "b", "off")
		pass(time.Second)
		r.expect(t, "a=http://a/1")
		store.set(func() { store.queue = nil })
		pass(time.Second)
		r.expect(t)
	})
	bubble(t, "looks less often at a store that is slow to answer", func(t *testing.T, store *sick) {
		store.took = 500 * time.Millisecond
		stop := start(t, store, func(context.Context, string, string) {})
		pass(55 * time.Second)
		if stop(); store.calls < 9 || store.calls > 12 {
			t.Errorf("%d looks of 0.5 s in 55 s", store.calls)
		}
	})
}

func TestRunReadsFiveHundredQueuesOnRedisWithFewCommands(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store, err := redisstore.Open(server.URL(), redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	for i := range 500 {
		set(t, store, fmt.Sprint("q", i), "http://127.0.0.1/")
	}
	var r runs
	start(t, store, r.run(0))
	awaitStarts(t, &r, 500)
	before, began := scripts(t, server), time.Now()
	set(t, store, "q7", "http://127.0.0.1/other")
	awaitStarts(t, &r, 501)
	t.Logf("%v calls until a change was heeded", scripts(t, server)-before)
	looks := int64(time.Since(began)/time.Second) + 2
	if got := scripts(t, server) - before; got < 500 || got > 510*looks {
		t.Errorf("%d calls in at most %d looks at 500 queues", got, looks)
	}
}

func awaitStarts(t *testing.T, r *runs, n int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		r.mu.Lock()
		got := len(r.started)
		r.mu.Unlock()
		if got >= n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no %d starts within 20 s", n)
}

// scripts counts the calls of scripts and the reads of settings.
func scripts(t *testing.T, server *redistest.Server) (n int64) {
	t.Helper()
	for name, calls := range server.Commands(t) {
		if name == "evalsha" || name == "hgetall" {
			n += calls
		}
	}
	return n
}
