package dueq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
)

// bubble runs f with a fake clock, in which nothing really sleeps.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, f)
	})
}

// pass lets time go by, and all that is due meanwhile come to rest.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// tap is a store that counts its calls and can make them fail.
type tap struct {
	dueq.Store
	before func(op, queue string) error // an error fails the call and nothing happens
	after  func(op, queue string) error // an error hides what happened
	deaf   bool                         // Wake never hints

	mu    sync.Mutex // guards what follows
	calls []tapCall
}

type tapCall struct {
	op, queue string
	at        time.Time
	n         int // tasks claimed, items scheduled and so on
	err       error
}

func newTap() (*tap, *memstore.Store) {
	mem := memstore.New(memstore.Options{})
	return &tap{Store: mem}, mem
}

func tapped[T any](s *tap, op, queue string, call func() (T, error), size func(T) int) (T, error) {
	var none T
	at := time.Now()
	got, err := none, error(nil)
	if s.before != nil {
		err = s.before(op, queue)
	}
	if err == nil {
		got, err = call()
	}
	n := 0
	if err == nil && size != nil {
		n = size(got)
	}
	if err == nil && s.after != nil {
		if err = s.after(op, queue); err != nil {
			got = none
		}
	}
	s.mu.Lock()
	s.calls = append(s.calls, tapCall{op, queue, at, n, err})
	s.mu.Unlock()
	return got, err
}

func outcomeCount(o []dueq.Outcome) int { return len(o) }

func (s *tap) Schedule(ctx context.Context, items []dueq.Item) ([]dueq.Outcome, error) {
	return tapped(s, "schedule", "", func() ([]dueq.Outcome, error) { return s.Store.Schedule(ctx, items) }, outcomeCount)
}

func (s *tap) Change(ctx context.Context, queue string, op dueq.Op, targets []dueq.Target) ([]dueq.Outcome, error) {
	return tapped(s, "change", queue, func() ([]dueq.Outcome, error) { return s.Store.Change(ctx, queue, op, targets) }, outcomeCount)
}

func (s *tap) Claim(ctx context.Context, req dueq.ClaimRequest) (dueq.Claim, error) {
	return tapped(s, "claim", req.Queue, func() (dueq.Claim, error) { return s.Store.Claim(ctx, req) },
		func(c dueq.Claim) int { return len(c.Tasks) })
}

func (s *tap) Settle(ctx context.Context, queue string, results []dueq.Result) ([]dueq.Outcome, error) {
	return tapped(s, "settle", queue, func() ([]dueq.Outcome, error) { return s.Store.Settle(ctx, queue, results) }, outcomeCount)
}

func (s *tap) Extend(ctx context.Context, queue string, leases []dueq.Lease, d time.Duration) ([]dueq.Outcome, error) {
	return tapped(s, "extend", queue, func() ([]dueq.Outcome, error) { return s.Store.Extend(ctx, queue, leases, d) }, outcomeCount)
}

func (s *tap) Stats(ctx context.Context, queues ...string) ([]dueq.QueueStats, error) {
	return tapped(s, "stats", "", func() ([]dueq.QueueStats, error) { return s.Store.Stats(ctx, queues...) }, nil)
}

func (s *tap) Settings(ctx context.Context, queue string) (dueq.Settings, error) {
	return tapped(s, "settings", queue, func() (dueq.Settings, error) { return s.Store.Settings(ctx, queue) }, nil)
}

func (s *tap) Wake(ctx context.Context) (<-chan dueq.Hint, error) {
	return tapped(s, "wake", "", func() (<-chan dueq.Hint, error) {
		if !s.deaf {
			return s.Store.Wake(ctx)
		}
		never := make(chan dueq.Hint)
		context.AfterFunc(ctx, func() { close(never) })
		return never, nil
	}, nil)
}

// log returns the calls so far that keep says yes to.
func (s *tap) log(keep func(tapCall) bool) []tapCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []tapCall
	for _, c := range s.calls {
		if keep(c) {
			out = append(out, c)
		}
	}
	return out
}

func (s *tap) count(ops ...string) int {
	return len(s.log(func(c tapCall) bool { return slices.Contains(ops, c.op) }))
}

// unavailable is how a store that is away answers.
func unavailable(op string, sent bool) error {
	return &dueq.CallError{Op: op, MayHaveHappened: sent, Err: dueq.Unavailable(errors.New("connection refused"))}
}

// running is a worker in a goroutine. It stops when the test ends, if not
// before.
type running struct {
	stop context.CancelFunc
	done chan struct{} // closed when Run returned err
	err  error
}

func start(t *testing.T, store dueq.Store, opts dueq.WorkerOptions, register func(w *dueq.Worker)) *running {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	w := dueq.NewWorker(store, opts)
	register(w)
	ctx, stop := context.WithCancel(context.Background())
	r := &running{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = w.Run(ctx)
	}()
	t.Cleanup(func() { r.wait(t) })
	synctest.Wait() // it has claimed once and listens
	return r
}

// wait stops the worker and returns what Run returned.
func (r *running) wait(t *testing.T) error {
	t.Helper()
	r.stop()
	select {
	case <-r.done:
	case <-time.After(10 * time.Minute):
		t.Error("Run did not return")
	}
	return r.err
}

// on starts a worker with one handler for every kind of queue q.
func on(t *testing.T, store dueq.Store, opts dueq.WorkerOptions, h dueq.HandlerFunc) *running {
	t.Helper()
	return start(t, store, opts, func(w *dueq.Worker) { w.Handle("q", dueq.AnyKind, h) })
}

// warm registers a handler for warmUp.
func warm(w *dueq.Worker) {
	w.Handle("q", "warm", dueq.HandlerFunc(func(context.Context, *dueq.Task) error { return nil }))
}

// warmUp makes a worker so quick that it claims ahead.
func warmUp(t *testing.T, store dueq.Store) {
	t.Helper()
	for i := range 32 {
		scheduleKind(t, store, fmt.Sprint("w", i), "warm", dueq.In(0))
	}
	pass(time.Second)
}

// journal notes runs. Its note method is part of handlers.
type journal struct {
	mu     sync.Mutex // guards what follows
	runs   []ran
	now    map[string]int // runs in progress by id
	most   int            // runs in progress, at most
	beside []string       // ids that ran beside themselves
}

type ran struct {
	id      string
	at      time.Time
	attempt int
	round   int
	worker  string
}

func (j *journal) begin(t *dueq.Task, worker string) (end func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.now == nil {
		j.now = map[string]int{}
	}
	j.runs = append(j.runs, ran{t.ID, time.Now(), t.Attempt, t.Round, worker})
	j.now[t.ID]++
	if j.now[t.ID] > 1 {
		j.beside = append(j.beside, t.ID)
	}
	running := 0
	for _, n := range j.now {
		running += n
	}
	j.most = max(j.most, running)
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.now[t.ID]--
		if j.now[t.ID] == 0 {
			delete(j.now, t.ID)
		}
	}
}

// takes is a handler that takes d, or until its context ends.
func (j *journal) takes(d time.Duration, worker string) dueq.HandlerFunc {
	return func(ctx context.Context, t *dueq.Task) error {
		defer j.begin(t, worker)()
		return sleep(ctx, d)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (j *journal) all() []ran {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.runs)
}

// highest returns how many ran at once, at most.
func (j *journal) highest() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.most
}

func (j *journal) besides() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.beside)
}

func (j *journal) of(id string) []ran {
	return slices.DeleteFunc(j.all(), func(r ran) bool { return r.id != id })
}

func (j *journal) byWorker() map[string]int {
	out := map[string]int{}
	for _, r := range j.all() {
		out[r.worker]++
	}
	return out
}

// onceEach fails the test unless n tasks ran, each once, at attempt 1, and
// none beside itself.
func (j *journal) onceEach(t *testing.T, n int) {
	t.Helper()
	runs, ids := j.all(), map[string]int{}
	for _, r := range runs {
		ids[r.id]++
		if r.attempt != 1 {
			t.Errorf("task %s ran at attempt %d, want 1", r.id, r.attempt)
		}
	}
	if len(runs) != n || len(ids) != n {
		t.Errorf("%d runs of %d tasks, want %d of %d", len(runs), len(ids), n, n)
	}
	if beside := j.besides(); len(beside) > 0 {
		t.Errorf("ran beside themselves: %v", beside)
	}
}

func schedule(t *testing.T, store dueq.Store, queue, id string, when dueq.When) {
	t.Helper()
	got, err := store.Schedule(t.Context(), []dueq.Item{{Queue: queue, Task: dueq.Task{ID: id}, When: when}})
	if err != nil || got[0].Err != nil {
		t.Fatalf("schedule %s: %+v, %v", id, got, err)
	}
}

func scheduleMany(t *testing.T, store dueq.Store, queue string, n int, when dueq.When) {
	t.Helper()
	items := make([]dueq.Item, n)
	for i := range items {
		items[i] = dueq.Item{Queue: queue, Task: dueq.Task{ID: fmt.Sprintf("t%05d", i)}, When: when}
	}
	got, err := dueq.NewClient(store, dueq.ClientOptions{}).ScheduleAll(t.Context(), items)
	if err != nil || got[n-1].Status != dueq.StatusScheduled {
		t.Fatalf("schedule %d tasks: %+v, %v", n, got[n-1], err)
	}
}

func set(t *testing.T, store dueq.Store, queue string, patch dueq.SettingsPatch) {
	t.Helper()
	if _, err := store.SetSettings(t.Context(), queue, patch); err != nil {
		t.Fatalf("set %v: %v", patch, err)
	}
}

func get(t *testing.T, store dueq.Store, queue, member string) dueq.Info {
	t.Helper()
	infos, err := store.Get(context.WithoutCancel(t.Context()), queue, []string{member})
	if err != nil {
		t.Fatalf("get %s: %v", member, err)
	}
	return infos[0]
}

func stats(t *testing.T, store dueq.Store, queue string) dueq.QueueStats {
	t.Helper()
	got, err := store.Stats(context.WithoutCancel(t.Context()), queue)
	if err != nil {
		t.Fatalf("stats: %v", err)
	}
	return got[0]
}

func TestWorkerRunsTasks(t *testing.T) {
	bubble(t, "exactly when they are due", func(t *testing.T) {
		store, _ := newTap()
		var j journal
		on(t, store, dueq.WorkerOptions{}, j.takes(0, ""))
		pass(333 * time.Microsecond)
		began := time.Now()
		delays := []time.Duration{0, time.Millisecond, 7 * time.Millisecond, 999 * time.Millisecond, 90*time.Second + time.Microsecond, 2 * time.Hour}
		for i, d := range delays {
			schedule(t, store, "q", fmt.Sprint(i), dueq.In(d))
		}
		pass(3 * time.Hour)
		for i, d := range delays {
			want := began.Add(d)
			if up := want.Truncate(time.Millisecond); !up.Equal(want) {
				want = up.Add(time.Millisecond)
			}
			runs := j.of(fmt.Sprint(i))
			if len(runs) != 1 || !runs[0].at.Equal(want) {
				t.Errorf("delay %v: runs %v, want one at %v", d, runs, want)
			}
		}
	})
	bubble(t, "that were overdue before it started", func(t *testing.T) {
		store, _ := newTap()
		var j journal
		schedule(t, store, "q", "a", dueq.In(5*time.Second))
		pass(20 * time.Second)
		on(t, store, dueq.WorkerOptions{}, j.takes(0, ""))
		synctest.Wait()
		if got := j.all(); len(got) != 1 {
			t.Errorf("%d runs at start, want 1", len(got))
		}
	})
	for _, deaf := range []bool{false, true} {
		late := map[bool]time.Duration{false: 0, true: time.Second}[deaf]
		bubble(t, fmt.Sprintf("scheduled nearer than the one it sleeps for, deaf %v", deaf), func(t *testing.T) {
			store, _ := newTap()
			store.deaf = deaf
			var j journal
			on(t, store, dueq.WorkerOptions{}, j.takes(0, ""))
			began := time.Now()
			schedule(t, store, "q", "far", dueq.In(time.Minute))
			pass(3 * time.Second)
			schedule(t, store, "q", "near", dueq.In(2*time.Second))
			schedule(t, store, "q", "now", dueq.In(0))
			pass(time.Hour)
			wantWithin(t, &j, "now", began.Add(3*time.Second), late)
			wantWithin(t, &j, "near", began.Add(5*time.Second), 0)
			wantWithin(t, &j, "far", began.Add(time.Minute), 0)
		})
	}
	bubble(t, "that nothing announced", func(t *testing.T) {
		store, mem := newTap()
		var j journal
		on(t, store, dueq.WorkerOptions{}, j.takes(0, ""))
		pass(time.Hour + 123*time.Millisecond)
		began := time.Now()
		mem.Add("q", "a", float64(began.UnixMilli()))
		mem.Add("q", "b", float64(began.UnixMilli()+1500))
		pass(time.Minute)
		wantWithin(t, &j, "a", began, time.Second)
		wantWithin(t, &j, "b", began.Add(1500*time.Millisecond), 0)
	})
	bubble(t, "announced while a claim was under way", func(t *testing.T) {
		testHintDuring(t, "claim")
	})
	bubble(t, "announced while a scan was under way", func(t *testing.T) {
		testHintDuring(t, "stats")
	})
	bubble(t, "again when hints come back after a failed start", func(t *testing.T) {
		store, _ := newTap()
		began := time.Now()
		store.before = func(op, _ string) error {
			if op == "wake" && time.Since(began) < time.Second {
				return unavailable(op, false)
			}
			return nil
		}
		var j journal
		on(t, store, dueq.WorkerOptions{}, j.takes(0, ""))
		pass(10*time.Minute + 77*time.Millisecond)
		now := time.Now()
		schedule(t, store, "q", "a", dueq.In(0))
		pass(time.Minute)
		wantWithin(t, &j, "a", now, 0)
	})
	bubble(t, "not early and late by nothing, and says so", func(t *testing.T) {
		store, _ := newTap()
		var drifts []time.Duration
		var j journal
		w := dueq.WorkerOptions{Concurrency: 1, Observer: dueq.Observer{
			Started: func(_ *dueq.Task, drift time.Duration) { drifts = append(drifts, drift) },
		}}
		set(t, store, "q", dueq.SettingsPatch{"timeout": "1m"})
		on(t, store, w, j.takes(2500*time.Millisecond, ""))
		for i := range 3 {
			schedule(t, store, "q", fmt.Sprint(i), dueq.In(time.Second))
		}
		pass(time.Minute)
		want := []time.Duration{0, 2500 * time.Millisecond, 5 * time.Second}
		if !slices.Equal(drifts, want) {
			t.Errorf("drifts %v, want %v", drifts, want)
		}
	})
	bubble(t, "set aside when their due is before the epoch, without spinning", func(t *testing.T) {
		store, mem := newTap()
		var j journal
		on(t, store, dueq.WorkerOptions{}, j.takes(0, ""))
		for i, score := range []float64{-1000, -2208988800000, -62135596800000, 1700000000} {
			mem.Add("q", fmt.Sprint("bad", i), score)
		}
		mem.Add("q", "good", float64(time.Now().UnixMilli()))
		pass(2 * time.Second)
		if st := stats(t, store, "q"); st.Dead != 4 || len(j.of("good")) != 1 || len(j.all()) != 1 {
			t.Errorf("dead %d, runs %v; want 4 and one of good", st.Dead, j.all())
		}
		before := store.count("claim")
		pass(time.Minute)
		if got := store.count("claim") - before; got > 70 {
			t.Errorf("%d claims in an idle minute", got)
		}
	})
}

// wantWithin fails the test unless id ran once, from due to due + late.
func wantWithin(t *testing.T, j *journal, id string, due time.Time, late time.Duration) {
	t.Helper()
	runs := j.of(id)
	if len(runs) != 1 {
		t.Errorf("%d runs of %s, want 1", len(runs), id)
		return
	}
	if got := runs[0].at.Sub(due); got < 0 || got > late {
		t.Errorf("%s ran %v after its due, want at most %v", id, got, late)
	}
}

// testHintDuring: the answer to a call does not undo a hint that came after
// the call was made.
func testHintDuring(t *testing.T, slow string) {
	store, _ := newTap()
	var j journal
	once := sync.Once{}
	var armed atomic.Bool
	var due time.Time
	store.after = func(op, _ string) error {
		if armed.Load() && op == slow {
			once.Do(func() {
				time.Sleep(time.Millisecond)
				due = time.Now()
				schedule(t, store, "q", "a", dueq.In(0))
				time.Sleep(time.Millisecond)
			})
		}
		return nil
	}
	on(t, store, dueq.WorkerOptions{}, j.takes(0, ""))
	pass(time.Minute)
	armed.Store(true)
	schedule(t, store, "q", "b", dueq.In(300*time.Millisecond))
	pass(time.Minute)
	wantWithin(t, &j, "a", due, 10*time.Millisecond)
}
