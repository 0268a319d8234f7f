package dueq

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// soon is how far ahead a worker claims: what it will start within this.
const soon = 20 * time.Millisecond

// lane is one queue in a worker: what was claimed and has not started, what
// runs, and what is to be settled.
type lane struct {
	w        *Worker
	queue    string
	routes   map[string]*route // by kind; fixed once Run began
	batchMax int               // largest batch of its routes

	renewing      atomic.Bool // keepTasks is under way
	renewFailures int         // in a row; only keepTasks'

	mu       sync.Mutex // guards all below
	settings Settings
	buffer   []*held
	runs     map[*run]struct{}
	starting bool          // a goroutine of work has not begun yet
	mean     time.Duration // of a run, smoothed; zero before the first ended
	coming   int           // tasks that the claims under way asked for
	batched  float64       // share of its tasks that go into batches, smoothed
	results  []verdict     // to be settled
	settling bool          // a goroutine is in settle
	sending  int           // results of the call it is making
	plan     lanePlan
}

// route is where tasks of one kind go.
type route struct {
	handler Handler
	batch   BatchFunc
	max     int
}

// held is a claimed task. Its lease holds until `until` by our monotonic clock,
// as far as we know.
type held struct {
	task  *Task
	until time.Time
	since time.Time // our time when Task.Age was taken
	once  bool      // claimed at most once: there is no lease
}

// run is one goroutine's work in progress.
type run struct {
	tasks   []*held
	started time.Time
	limit   time.Duration // timeout
	ctx     *runContext
	overran bool
}

func newLane(w *Worker, queue string) *lane {
	return &lane{w: w, queue: queue, routes: map[string]*route{}, runs: map[*run]struct{}{}, settings: DefaultSettings()}
}

// setUp wraps the handlers and finds the largest batch. Where some routes take
// single tasks, all tasks might be theirs.
func (l *lane) setUp(wrappers []func(Handler) Handler) {
	l.batched = 1
	for _, r := range l.routes {
		l.batchMax = max(l.batchMax, r.max)
		if r.batch == nil {
			l.batched = 0
		}
		for _, wrapper := range slices.Backward(wrappers) {
			if r.handler != nil {
				r.handler = wrapper(r.handler)
			}
		}
	}
}

func (l *lane) route(kind string) *route {
	if r := l.routes[kind]; r != nil {
		return r
	}
	return l.routes[AnyKind]
}

func (l *lane) concurrency() int {
	if l.w.opts.Concurrency > 0 {
		return l.w.opts.Concurrency
	}
	return l.settings.Concurrency
}

// room is how many tasks may be claimed now: the free slots, and what the lane
// will start soon by what runs took lately. Slow handlers get no buffer. It is
// zero while the buffer is well filled, so that claims stay large. Called with
// mu held.
func (l *lane) room() int {
	slots := l.concurrency()
	free := slots - len(l.runs)
	ahead := 0
	if free > 0 {
		ahead = int(l.batched * float64(l.batchMax))
	}
	if l.mean > 0 {
		ahead = max(ahead, int(min(float64(slots)*float64(soon)/float64(l.mean), MaxItems)))
	}
	want := free + ahead - len(l.buffer) - l.coming
	idle := free > 0 && len(l.buffer) == 0
	if len(l.results) > 10*MaxItems || !idle && want < min(l.settings.Batch, (slots+ahead+1)/2) {
		return 0
	}
	return min(want, l.settings.Batch)
}

// accept takes claimed tasks in and starts handlers.
func (l *lane) accept(tasks []*held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buffer = append(l.buffer, tasks...)
	for _, h := range tasks {
		share := 0.0
		if r := l.route(h.task.Kind); r != nil && r.batch != nil {
			share = 1
		}
		l.batched += (share - l.batched) / 16
	}
	l.start()
}

// start has one more goroutine work on the buffer, if there is a free slot and
// none is about to begin. Each that takes a task starts the next: handlers that
// block fill all slots at once, instant ones need few goroutines. Called with
// mu held.
func (l *lane) start() {
	if l.starting || len(l.buffer) == 0 || len(l.runs) >= l.concurrency() {
		return
	}
	r := &run{}
	l.runs[r] = struct{}{}
	l.starting = true
	l.w.handlers.Go(func() { l.work(r) })
}

// work runs handlers until the buffer is empty.
func (l *lane) work(r *run) {
	defer l.leave(r)
	l.mu.Lock()
	l.starting = false
	route := l.take(r, time.Now())
	l.mu.Unlock()
	for route != nil {
		route = l.handle(r, route)
	}
}

// leave gives the slot back. After a handler's runtime.Goexit there may be
// tasks left for another goroutine.
func (l *lane) leave(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.runs, r)
	l.start()
	if l.room() > 0 {
		l.w.wake()
	}
}

// take moves the next tasks from the buffer to the run, and returns where they
// go, nil if there is none. Tasks whose lease is lost are dropped, tasks that
// nobody handles here go back. Called with mu held.
func (l *lane) take(r *run, now time.Time) *route {
	for len(l.buffer) > 0 && len(l.runs) <= l.concurrency() {
		h := l.buffer[0]
		l.buffer[0] = nil
		l.buffer = l.buffer[1:]
		route := l.route(h.task.Kind)
		switch {
		case !h.once && now.After(h.until):
			l.w.quiet.warn("dropped "+l.queue, "lease ran out before the task started", "queue", l.queue, "task", h.task.Lease.Member)
			l.w.opts.Observer.dropped(h.task)
		case route == nil:
			l.w.quiet.warn("unhandled "+l.queue+h.task.Kind, "no handler for this kind here", "queue", l.queue, "task", h.task.Lease.Member)
			l.settleLater(verdict{held: h, result: Result{Task: h.task, Verdict: VerdictRelease, Delay: unhandledDelay}})
		default:
			l.begin(r, h, route, now)
			l.start()
			return route
		}
	}
	return nil
}

// begin fills the run: one task, or those of a batch.
func (l *lane) begin(r *run, first *held, to *route, now time.Time) {
	r.tasks = append(r.tasks[:0], first)
	if to.batch != nil {
		l.buffer = slices.DeleteFunc(l.buffer, func(h *held) bool {
			fits := len(r.tasks) < to.max && l.route(h.task.Kind) == to && (h.once || now.Before(h.until))
			if fits {
				r.tasks = append(r.tasks, h)
			}
			return fits
		})
	}
	r.started, r.limit, r.overran = now, l.settings.Timeout, false
	r.ctx = &runContext{base: l.w.base, limit: now.Add(r.limit)}
	if room := l.room(); room > 0 {
		l.w.wake()
	}
}

// handle runs the handler and returns where the next tasks go. What the handler
// returns, a panic and a Goexit all end in finish; a Goexit ends the goroutine.
func (l *lane) handle(r *run, to *route) (next *route) {
	ctx := r.ctx
	for _, h := range r.tasks {
		l.w.opts.Observer.started(h.task, h.task.Age+r.started.Sub(h.since))
	}
	errs := make([]error, len(r.tasks))
	returned := false
	defer func() {
		exits := false
		if !returned {
			panicked := recover()
			exits = panicked == nil
			fillErrors(errs, crash(panicked))
		}
		ctx.finish(context.Canceled)
		l.mu.Lock()
		defer l.mu.Unlock()
		now := time.Now()
		l.finish(r, errs, now)
		if !exits {
			next = l.take(r, now)
		}
	}()
	if to.batch == nil {
		errs[0] = to.handler.Handle(ctx, r.tasks[0].task)
	} else {
		l.handleBatch(ctx, r, to, errs)
	}
	returned = true
	return nil
}

func (l *lane) handleBatch(ctx context.Context, r *run, to *route, errs []error) {
	tasks := make([]*Task, len(r.tasks))
	for i, h := range r.tasks {
		tasks[i] = h.task
	}
	got := to.batch(ctx, tasks)
	switch len(got) {
	case 0:
	case len(errs):
		copy(errs, got)
	default:
		fillErrors(errs, fmt.Errorf("batch handler returned %d verdicts for %d tasks", len(got), len(errs)))
	}
}

func fillErrors(errs []error, err error) {
	for i := range errs {
		errs[i] = err
	}
}

// crash is the error of a handler that did not return.
func crash(panicked any) error {
	if panicked == nil {
		return fmt.Errorf("handler ended its goroutine with runtime.Goexit\n%s", crashSite())
	}
	return fmt.Errorf("panic: %v\n%s", panicked, crashSite())
}

// crashSite is the stack below the panic: stores keep 1 KiB of an error, too
// little for our own frames as well.
func crashSite() string {
	const ours = 1 + 2*5 // goroutine, then Stack, crashSite, crash, handle's defer, panic
	lines := strings.SplitAfterN(string(debug.Stack()), "\n", ours+1)
	return lines[len(lines)-1]
}

// finish turns what the handler returned into verdicts to be settled. Called
// with mu held.
func (l *lane) finish(r *run, errs []error, now time.Time) {
	took := now.Sub(r.started)
	stopped := l.w.base.Err() != nil
	if l.mean == 0 {
		l.mean = max(took, 1)
	}
	l.mean += (took - l.mean) / 16
	for i, h := range r.tasks {
		v, delay, text := VerdictOf(errs[i])
		if v == VerdictRetry && stopped {
			v, delay, text = VerdictRelease, 0, "" // it was not given the time to end
		}
		l.w.opts.Observer.ended(h.task, v, took, errs[i])
		l.settleLater(verdict{held: h, result: Result{Task: h.task, Verdict: v, Delay: delay, Err: text}})
	}
	clear(r.tasks)
	r.tasks, r.ctx = r.tasks[:0], nil
}

// releaseBuffer puts back what has not started, for good.
func (l *lane) releaseBuffer() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.buffer {
		l.settleLater(verdict{held: h, result: Result{Task: h.task, Verdict: VerdictRelease}})
	}
	l.buffer = nil
}

func (l *lane) runningTasks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for r := range l.runs {
		n += len(r.tasks)
	}
	return n
}

func (l *lane) unsettled() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.results) + l.sending
}
