package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// pollSlack is how late a busy machine may be.
const pollSlack = 3 * time.Second

// pollPatient is for stores whose time-out is not under test.
var pollPatient = redisstore.Options{Timeout: 10 * time.Second}

// pollRedis is a test of polls on a real server.
type pollRedis struct {
	testing.TB
	srv   *redistest.Server
	store *redisstore.Store
	p     *polls
	named int // tasks so far
}

func newPollRedis(t testing.TB, opts redisstore.Options) *pollRedis {
	r := &pollRedis{TB: t, srv: redistest.Start(t)}
	r.store, r.p = r.process(opts)
	return r
}

// process opens a store and polls of it, as another process would.
func (r *pollRedis) process(opts redisstore.Options) (*redisstore.Store, *polls) {
	store, err := redisstore.Open(r.srv.URL(), opts)
	if err != nil {
		r.Fatal(err)
	}
	p := newPolls(store, slog.New(slog.NewTextHandler(io.Discard, nil)))
	r.Cleanup(func() {
		p.close()
		_ = store.Close()
	})
	return store, p
}

func (r *pollRedis) schedule(queue string, when func(i int) dueq.When, n int) (ids []string) {
	r.Helper()
	items := make([]dueq.Item, n)
	for i := range items {
		r.named++
		ids = append(ids, fmt.Sprintf("t%05d", r.named))
		items[i] = dueq.Item{Queue: queue, Task: dueq.Task{ID: ids[i]}, When: when(i)}
	}
	for part := range slices.Chunk(items, dueq.MaxItems) {
		outcomes, err := r.store.Schedule(r.Context(), part)
		if err != nil {
			r.Fatal(err)
		}
		for _, o := range outcomes {
			if o.Error() != nil {
				r.Fatal(o.Error())
			}
		}
	}
	return ids
}

func in(d time.Duration) func(int) dueq.When { return func(int) dueq.When { return dueq.In(d) } }

func (r *pollRedis) stats(queue string) dueq.QueueStats {
	r.Helper()
	stats, err := r.store.Stats(context.WithoutCancel(r.Context()), queue)
	if err != nil {
		r.Fatal(err)
	}
	return stats[0]
}

func (r *pollRedis) set(queue, name, value string) {
	r.Helper()
	if _, err := r.store.SetSettings(r.Context(), queue, dueq.SettingsPatch{name: value}); err != nil {
		r.Fatal(err)
	}
}

// eventually waits until something holds.
func (r *pollRedis) eventually(within time.Duration, what string, holds func() bool) {
	r.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(within); !holds(); <-tick.C {
		if time.Now().After(end) {
			r.Fatalf("not within %v: %s", within, what)
		}
	}
}

// wait begins n polls of one task each over queues, which end with ctx.
func (r *pollRedis) wait(ctx context.Context, group *sync.WaitGroup, n int, queues []string) chan *dueq.Task {
	got := make(chan *dueq.Task, n)
	for i := range n {
		group.Go(func() {
			c, err := r.p.claim(ctx, dueq.ClaimRequest{Queue: queues[i%len(queues)], Max: 1}, time.Hour)
			if err != nil && ctx.Err() == nil {
				r.Error(err)
			}
			for _, task := range c.Tasks {
				got <- task
			}
		})
	}
	r.eventually(30*time.Second, "all wait", func() bool { return r.p.waiting() == n })
	return got
}

func pollQueues(n int) (queues []string) {
	for i := range n {
		queues = append(queues, fmt.Sprint("queue:", i))
	}
	return queues
}

func TestPollsOnRedisDeliverWithinMilliseconds(t *testing.T) {
	t.Parallel()
	r := newPollRedis(t, pollPatient)
	var ages []time.Duration
	for range 10 {
		var group sync.WaitGroup
		got := r.wait(t.Context(), &group, 1, []string{"q"})
		r.schedule("q", in(150*time.Millisecond), 1)
		ages = append(ages, (<-got).Age)
		group.Wait()
	}
	slices.Sort(ages)
	t.Logf("from due to claimed: median %v, worst %v", ages[len(ages)/2], ages[len(ages)-1])
	if ages[0] < 0 || ages[len(ages)/2] > 500*time.Millisecond {
		t.Errorf("from due to claimed: %v", ages)
	}
}

func TestPollsOnRedisFindAPlainZADD(t *testing.T) {
	t.Parallel()
	r := newPollRedis(t, pollPatient)
	raw := r.srv.Client(t)
	for _, delay := range []time.Duration{0, 1200 * time.Millisecond} {
		var group sync.WaitGroup
		got := r.wait(t.Context(), &group, 1, []string{"q"})
		now, err := raw.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		z := redis.Z{Score: float64(now.Add(delay).UnixMilli()), Member: fmt.Sprint("after", delay.Milliseconds())}
		if err := raw.ZAdd(t.Context(), redisstore.DefaultPrefix+"q", z).Err(); err != nil {
			t.Fatal(err)
		}
		task := <-got
		t.Logf("due in %v: claimed %v after that", delay, task.Age)
		if task.ID != z.Member || task.Age < 0 || task.Age > maxScan+pollSlack {
			t.Errorf("%s was claimed %v after it was due", task.ID, task.Age)
		}
		group.Wait()
	}
}

// A thousand who wait for nothing are as cheap as one.
func TestPollsOnRedisCostLittleWhileIdle(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		queues    int
		perSecond float64 // scripts
	}{
		{"a thousand on one queue", 1, 4},
		{"a thousand on five hundred queues", 500, 800},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newPollRedis(t, pollPatient)
			queues := pollQueues(c.queues)
			ctx, cancel := context.WithCancel(t.Context())
			var first, rest sync.WaitGroup
			one := r.wait(ctx, &first, 1, queues)
			r.eventually(10*time.Second, "its hints are listened to", func() bool { return r.connections() >= 2 })
			r.schedule(queues[0], in(0), 1)
			<-one
			first.Wait()
			before, bytes := r.connections(), heap()
			got := r.wait(ctx, &rest, 1000, queues)
			perWaiter := (int64(heap()) - int64(bytes)) / 1000
			r.eventually(30*time.Second, "scans have become rare", func() bool { return r.scanIntervals() == maxScan })

			const window = 5 * time.Second
			scripts, cpu, began := r.scripts(), r.srv.CPU(t), time.Now()
			<-time.After(window)
			seconds := time.Since(began).Seconds()
			rate := float64(r.scripts()-scripts) / seconds
			load := float64(r.srv.CPU(t)-cpu) / float64(time.Since(began))
			after := r.connections()
			t.Logf("%.1f scripts/s, %.2f %% of a core at Redis, %d connections before and %d after, %d bytes a waiter with its goroutine",
				rate, 100*load, before, after, perWaiter)
			if rate > c.perSecond || rate < float64(c.queues)/2 {
				t.Errorf("%.1f scripts/s, want about one for each of %d queues", rate, c.queues)
			}
			if after > before+4 {
				t.Errorf("%d connections, %d before they waited", after, before)
			}
			r.schedule(queues[c.queues-1], in(0), 1)
			select { // it is asleep, not dead
			case <-got:
			case <-time.After(pollSlack):
				t.Error("nobody was given a task")
			}
			cancel()
			rest.Wait()
		})
	}
}

func (r *pollRedis) scripts() int64 { return r.srv.Commands(r)["evalsha"] }

// connections counts the server's clients, one of which is ours.
func (r *pollRedis) connections() (n int) {
	r.Helper()
	raw := r.srv.Client(r)
	defer raw.Close()
	info, err := raw.Info(r.Context(), "clients").Result()
	if err != nil {
		r.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "connected_clients:")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		r.Fatal(err)
	}
	return n - 1
}

// scanIntervals is the shortest interval of a line.
func (r *pollRedis) scanIntervals() time.Duration {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	shortest := maxScan
	for _, l := range r.p.lines {
		shortest = min(shortest, l.plan.scan)
	}
	return shortest
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

func TestPollsOnRedisLoseNothing(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{"at_least_once", "at_most_once"} {
		t.Run("to a thousand who vanish as a thousand tasks become due, "+delivery, func(t *testing.T) {
			t.Parallel()
			r := newPollRedis(t, pollPatient)
			r.set("q", "delivery", delivery)
			for range 5 {
				ctx, cancel := context.WithCancel(t.Context())
				var group sync.WaitGroup
				got := r.wait(ctx, &group, 1000, []string{"q"})
				due := time.Now().Add(100 * time.Millisecond)
				ids := r.schedule("q", func(int) dueq.When { return dueq.At(due) }, 1000)
				<-time.After(time.Until(due) + rand.N(10*time.Millisecond))
				cancel()
				group.Wait()
				close(got)
				r.account(ids, got)
			}
		})
		t.Run("to those who come and vanish at random, "+delivery, func(t *testing.T) {
			t.Parallel()
			r := newPollRedis(t, pollPatient)
			r.set("q", "delivery", delivery)
			const tasks = 2000
			got, group := make(chan *dueq.Task, 2*tasks), new(sync.WaitGroup)
			end := time.Now().Add(4 * time.Second)
			for range 300 {
				group.Go(func() {
					for time.Now().Before(end) {
						ctx, cancel := context.WithTimeout(t.Context(), rand.N(40*time.Millisecond))
						c, err := r.p.claim(ctx, dueq.ClaimRequest{Queue: "q", Max: 1 + rand.IntN(5)}, time.Minute)
						cancel()
						if err == nil {
							for _, task := range c.Tasks {
								got <- task
							}
						}
					}
				})
			}
			ids := r.schedule("q", func(i int) dueq.When { return dueq.In(time.Duration(i) * 2 * time.Millisecond) }, tasks)
			group.Wait()
			close(got)
			t.Logf("%d of %d were delivered to somebody who stayed", len(got), tasks)
			r.account(ids, got)
		})
	}
}

// account checks that each task was delivered or is back within a second or
// some, as if it had never been claimed, and ends them all.
func (r *pollRedis) account(ids []string, got <-chan *dueq.Task) {
	r.Helper()
	delivered := map[string]*dueq.Task{}
	for task := range got {
		if delivered[task.ID] != nil {
			r.Errorf("%s was delivered twice", task.ID)
		}
		delivered[task.ID] = task
	}
	rest := len(ids) - len(delivered)
	r.eventually(time.Second+pollSlack, "all others are scheduled", func() bool { return r.stats("q").Scheduled == int64(rest) })
	r.eventually(pollSlack, "they are claimed", func() bool {
		c, err := r.store.Claim(r.Context(), dueq.ClaimRequest{Queue: "q", Max: 1000})
		for _, task := range c.Tasks {
			delivered[task.ID] = task
		}
		return err == nil && len(delivered) >= len(ids)
	})
	var acks []dueq.Result
	for _, id := range ids {
		task, found := delivered[id]
		if !found {
			r.Fatalf("%s is lost", id)
		}
		if task.Attempt != 1 || task.Round != 0 {
			r.Errorf("%s is at attempt %d of round %d, want nothing charged", id, task.Attempt, task.Round)
		}
		acks = append(acks, dueq.Result{Task: task})
	}
	for part := range slices.Chunk(acks, dueq.MaxItems) {
		if _, err := r.store.Settle(r.Context(), "q", part); err != nil {
			r.Fatal(err)
		}
	}
	st := r.stats("q")
	r.Logf("%d deliveries of %d tasks so far, %d of them released", st.Totals.Claimed, r.named, st.Totals.Released)
	if n := st.Totals; st.Scheduled+st.Active+st.Dead != 0 || n.Claimed != n.Acked+n.Released {
		r.Errorf("left %+v", st)
	}
}

func TestPollsOnRedisSurviveAServerThatHangs(t *testing.T) {
	t.Parallel()
	r := newPollRedis(t, redisstore.Options{Timeout: 300 * time.Millisecond})
	r.set("q", "lease", "2s")
	var group sync.WaitGroup
	got := r.wait(t.Context(), &group, 50, []string{"q"})
	ids := r.schedule("q", func(i int) dueq.When { return dueq.In(time.Duration(1000+20*i) * time.Millisecond) }, 50)
	r.srv.Pause()
	c, err := r.p.claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 1}, 2*time.Second)
	if !errors.Is(err, dueq.ErrUnavailable) || len(c.Tasks) > 0 {
		t.Errorf("a poll of a server that hangs: %d tasks, %v, want ErrUnavailable", len(c.Tasks), err)
	}
	t.Logf("its error: %v", err)
	r.eventually(stuckAfter+pollSlack, "moving says so", func() bool { return r.p.moving() != nil })
	if n := r.p.waiting(); n != 50 {
		t.Errorf("%d still wait, want 50", n)
	}
	r.srv.Resume()
	back := time.Now()
	seen := map[string]bool{}
	for len(seen) < len(ids) {
		select {
		case task := <-got:
			if seen[task.ID] && task.Attempt == 1 {
				t.Errorf("%s was delivered twice", task.ID)
			}
			seen[task.ID] = true
		case <-time.After(30 * time.Second):
			t.Fatalf("%d of %d tasks were delivered", len(seen), len(ids))
		}
	}
	t.Logf("all delivered %v after the server went on", time.Since(back))
	group.Wait()
	if err := r.p.moving(); err != nil {
		t.Errorf("nobody waits: %v", err)
	}
}

func TestPollsOnRedisOfTwoProcessesShareAQueue(t *testing.T) {
	t.Parallel()
	r := newPollRedis(t, pollPatient)
	otherStore, otherPolls := r.process(pollPatient)
	const tasks = 2000
	got, group := make(chan *dueq.Task, 2*tasks), new(sync.WaitGroup)
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 200 {
		p, store := r.p, r.store
		if i%2 == 1 {
			p, store = otherPolls, otherStore
		}
		group.Go(func() {
			for ctx.Err() == nil {
				c, _ := p.claim(ctx, dueq.ClaimRequest{Queue: "q", Max: 2}, time.Minute)
				for _, task := range c.Tasks {
					got <- task
					if _, err := store.Settle(t.Context(), "q", []dueq.Result{{Task: task}}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	ids := r.schedule("q", func(i int) dueq.When { return dueq.In(time.Second + time.Duration(i)*time.Millisecond) }, tasks)
	r.eventually(60*time.Second, "all are delivered", func() bool { return len(got) >= tasks })
	claims := r.stats("q").Totals.Claimed
	cancel()
	group.Wait()
	close(got)
	seen, ages := map[string]bool{}, []time.Duration{}
	for task := range got {
		if seen[task.ID] || task.Age < 0 {
			t.Errorf("%s: seen %v, age %v", task.ID, seen[task.ID], task.Age)
		}
		seen[task.ID] = true
		ages = append(ages, task.Age)
	}
	slices.Sort(ages)
	t.Logf("%d deliveries, age median %v, p99 %v, worst %v", claims, ages[len(ages)/2], ages[len(ages)*99/100], ages[len(ages)-1])
	if len(seen) != len(ids) {
		t.Errorf("%d of %d tasks were delivered", len(seen), len(ids))
	}
}

func TestPollsOnRedisTakeBackTheTaskOfAConsumerThatDied(t *testing.T) {
	t.Parallel()
	r := newPollRedis(t, pollPatient)
	r.set("q", "lease", "1s")
	r.schedule("q", in(0), 1)
	c, err := r.p.claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 1}, 10*time.Second)
	if err != nil || len(c.Tasks) != 1 {
		t.Fatalf("%d tasks, %v", len(c.Tasks), err)
	}
	began, scripts := time.Now(), r.scripts()
	r.eventually(8*time.Second+pollSlack, "the task is back", func() bool {
		<-time.After(200 * time.Millisecond)
		scripts++ // ours
		return r.stats("q").Scheduled == 1
	})
	took := time.Since(began)
	rate := float64(r.scripts()-scripts) / took.Seconds()
	t.Logf("back after %v, %.1f scripts/s", took, rate)
	if rate > 4 {
		t.Errorf("%.1f scripts/s, want two", rate)
	}
	if st := r.stats("q"); st.Totals.Ended != 1 {
		t.Errorf("totals %+v, want one lease that ended", st.Totals)
	}
}
