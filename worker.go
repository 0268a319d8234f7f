package dueq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// AnyKind as a kind stands for every kind without a handler of its own.
const AnyKind = "*"

// How a worker behaves where no option says otherwise.
const (
	defaultGrace   = 30 * time.Second
	claimLoops     = 3                      // claims in flight per process, whatever the number of queues
	unhandledDelay = 5 * time.Second        // before a kind without a handler is offered again
	cancelPatience = 3 * time.Second        // for handlers to return once their contexts ended
	settlePatience = 5 * time.Second        // for the last verdicts of a stopping worker
	overtime       = time.Second            // leases are renewed until the timeout and this
	renewEvery     = 200 * time.Millisecond // how often leases are looked at
)

// WorkerOptions configure a Worker.
type WorkerOptions struct {
	ID          string        // names the worker in logs; defaults to host-pid-random
	Concurrency int           // handlers running at once per queue, 1 to 10,000; zero means the queue's setting
	Grace       time.Duration // how long a stopping worker waits for running handlers; defaults to 30 s, negative is none
	Logger      *slog.Logger  // defaults to slog.Default()
	Observer    Observer
}

// Worker claims due tasks and runs their handlers. Register handlers, then
// call Run once.
type Worker struct {
	store Store
	opts  WorkerOptions
	log   *slog.Logger
	op    string // claim, or forward when store is a forwarding
	quiet quiet
	wrap  []func(Handler) Handler
	ran   atomic.Bool

	probing atomic.Bool // the probeLoop has a lane

	lanes  map[string]*lane // by queue; fixed once Run began
	ready  chan *lane       // to be claimed from
	again  chan *lane       // the same, of those that failed twice
	kick   chan struct{}    // makes the planner look again
	base   context.Context  // of handlers; ends when a stop has waited long enough
	cancel context.CancelCauseFunc
	over   context.Context // ends when Run returns

	handlers sync.WaitGroup // goroutines of lane.work
	settlers sync.WaitGroup // goroutines of lane.settle

	mu     sync.Mutex // guards what follows
	probed time.Time  // when a failed call was last repeated
}

// errStopping is why handlers' contexts end when a stop has waited long enough.
var errStopping = errors.New("the worker is stopping")

// NewWorker returns a worker on store, which stays the caller's to close. It
// panics if an option is out of bounds.
func NewWorker(store Store, opts WorkerOptions) *Worker {
	if opts.Concurrency < 0 || opts.Concurrency > 10_000 {
		panic(fmt.Sprintf("dueq: WorkerOptions.Concurrency %d is not 1 to 10,000", opts.Concurrency))
	}
	if opts.ID == "" {
		host, _ := os.Hostname()
		opts.ID = fmt.Sprintf("%s-%d-%04x", host, os.Getpid(), rand.Uint32N(1<<16))
	}
	if opts.Grace == 0 {
		opts.Grace = defaultGrace
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	w := &Worker{
		store: store, opts: opts, log: opts.Logger.With("worker", opts.ID), op: "claim",
		lanes: map[string]*lane{}, kick: make(chan struct{}, 1),
	}
	w.quiet.log = w.log
	return w
}

// Use wraps every handler registered with Handle, the first wrapper outermost.
// It must be called before Run.
func (w *Worker) Use(wrappers ...func(Handler) Handler) {
	w.wrap = append(w.wrap, wrappers...)
}

// Handle registers the handler of one kind of task of one queue, or of AnyKind.
// It must be called before Run, and panics if the queue's name is bad or the
// kind has a handler already.
func (w *Worker) Handle(queue, kind string, h Handler) {
	w.register(queue, kind, &route{handler: h})
}

// HandleBatch registers a function that handles up to max tasks of one kind at
// once, from those claimed together; it never waits for more. One batch takes
// one of the queue's slots and has one timeout. Wrappers of Use do not apply.
// It panics as Handle does, and if max is not 1 to 1,000.
func (w *Worker) HandleBatch(queue, kind string, max int, f BatchFunc) {
	if max < 1 || max > MaxItems {
		panic(fmt.Sprintf("dueq: batch of %d is not 1 to %d", max, MaxItems))
	}
	w.register(queue, kind, &route{batch: f, max: max})
}

func (w *Worker) register(queue, kind string, r *route) {
	if err := ValidateQueue(queue); err != nil {
		panic("dueq: " + err.Error())
	}
	if w.ran.Load() {
		panic("dueq: handlers must be registered before Run")
	}
	l := w.lanes[queue]
	if l == nil {
		l = newLane(w, queue)
		w.lanes[queue] = l
	}
	if l.routes[kind] != nil {
		panic(fmt.Sprintf("dueq: kind %q of queue %q has a handler already", kind, queue))
	}
	l.routes[kind] = r
}

// Run works until ctx ends, then stops gracefully: it claims no more, puts
// back at once what has not started, and waits Grace for running handlers.
// Handlers still running then see their contexts end, and what they return an
// error for is put back without charging an attempt.
//
// It returns nil after a clean stop, and an error if handlers would not end or
// their verdicts could not be stored: those tasks come back when their leases
// end. A store that is away is no reason to return. Run may be called once.
func (w *Worker) Run(ctx context.Context) error {
	if w.ran.Swap(true) {
		return &FieldError{"worker", "has run already"}
	}
	if len(w.lanes) == 0 {
		return &FieldError{"worker", "has no handlers"}
	}
	for _, l := range w.lanes {
		l.setUp(w.wrap)
	}
	w.base, w.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	w.over = over
	var renewing sync.WaitGroup
	renewing.Go(func() { w.renewLoop(over, &renewing) })
	w.log.Info("worker started", "queues", len(w.lanes))
	w.work(ctx)
	err := w.stop()
	end()
	renewing.Wait()
	w.log.Info("worker stopped", "err", err)
	return err
}

// work claims and handles until ctx ends and all claims in flight have come
// back.
func (w *Worker) work(ctx context.Context) {
	w.ready, w.again = make(chan *lane, maxClaims*len(w.lanes)), make(chan *lane, 1)
	var loops sync.WaitGroup
	loops.Go(func() { w.listen(ctx) })
	loops.Go(func() { w.plan(ctx) })
	for range claimLoops {
		loops.Go(func() { w.claimLoop(ctx) })
	}
	loops.Go(func() { w.probeLoop(ctx) })
	<-ctx.Done()
	loops.Wait()
}

// stop puts back what has not started and waits for the rest.
func (w *Worker) stop() error {
	w.log.Info("worker stopping", "grace", w.opts.Grace)
	for _, l := range w.lanes {
		l.releaseBuffer()
	}
	w.awaitHandlers(w.opts.Grace)
	w.cancel(errStopping)
	left := w.awaitHandlers(cancelPatience)
	unsettled := w.awaitSettlers()
	if left+unsettled == 0 {
		return nil
	}
	return fmt.Errorf("worker stopped with %d tasks whose handlers would not end and %d verdicts not stored: %w", left, unsettled, ErrLeaseLost)
}

// awaitHandlers waits until no handler runs, at most d, and returns how many
// tasks still run.
func (w *Worker) awaitHandlers(d time.Duration) int {
	await(&w.handlers, d)
	left := 0
	for _, l := range w.lanes {
		left += l.runningTasks()
	}
	return left
}

func (w *Worker) awaitSettlers() int {
	await(&w.settlers, settlePatience)
	left := 0
	for _, l := range w.lanes {
		left += l.unsettled()
	}
	return left
}

// await waits for a group, at most d.
func await(group *sync.WaitGroup, d time.Duration) {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// wake makes the planner look again.
func (w *Worker) wake() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// quiet logs a kind of trouble when it begins, then once per ten seconds.
type quiet struct {
	log  *slog.Logger
	mu   sync.Mutex // guards last
	last map[string]time.Time
}

const quietFor = 10 * time.Second

func (q *quiet) warn(key, message string, args ...any) {
	q.mu.Lock()
	now := time.Now()
	silent := now.Sub(q.last[key]) < quietFor
	if !silent {
		if q.last == nil || len(q.last) > 1000 {
			q.last = map[string]time.Time{}
		}
		q.last[key] = now
	}
	q.mu.Unlock()
	if !silent {
		q.log.Warn(message, args...)
	}
}
