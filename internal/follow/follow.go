// Package follow keeps one run going for each queue whose settings ask for it,
// as they are changed.
package follow

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/dueq/dueq"
)

const (
	interval    = time.Second     // between looks at the settings
	idleShare   = 20              // a look that takes long is followed by a pause so many times as long …
	maxInterval = 5 * time.Second // … but not longer
	quietFor    = 10 * time.Second
)

// Run calls run for each queue of which pick returns other than empty, and
// again with the new value when that changes; empty ends it. It returns when
// ctx has ended and every run has returned.
//
// There is one run at a time per queue: its ctx is ended first, and the next
// starts when it has returned. A run that returns by itself is started again
// within two seconds.
//
// A change is heeded within two seconds; where reading the settings takes
// longer than 50 ms, within seven and the time it takes. A queue whose settings
// cannot be read goes on as it is; what is wrong is logged by slog's default
// logger.
func Run(ctx context.Context, store dueq.Store, pick func(dueq.Settings) string, run func(ctx context.Context, queue, value string)) {
	f := &follower{store: store, pick: pick, run: run, turns: map[string]*turn{}}
	defer f.group.Wait()
	for ctx.Err() == nil {
		began := time.Now()
		f.look(ctx)
		pause(ctx, min(max(interval, idleShare*time.Since(began)), maxInterval))
	}
}

type follower struct {
	store  dueq.Store
	pick   func(dueq.Settings) string
	run    func(ctx context.Context, queue, value string)
	turns  map[string]*turn // by queue; those that have ended stay until the next look
	group  sync.WaitGroup   // runs
	warned time.Time
}

// turn is what a queue is to do now: a run, or nothing once the run before has
// returned.
type turn struct {
	value string
	stop  context.CancelFunc
	over  chan struct{} // closed when the turn has ended, and all before it
}

// look gives each queue the turn that its settings ask for.
func (f *follower) look(ctx context.Context) {
	stats, err := f.store.Stats(ctx)
	if err != nil {
		f.warn(ctx, "", err)
		return
	}
	known := make(map[string]bool, len(stats))
	for _, st := range stats {
		known[st.Queue] = true
		if st.Err != nil {
			f.warn(ctx, st.Queue, st.Err) // its server may be away: asking it again would only take time
			continue
		}
		settings, err := f.store.Settings(ctx, st.Queue)
		if err != nil {
			f.warn(ctx, st.Queue, err)
		}
		if err == nil || errors.Is(err, dueq.ErrInvalid) {
			f.set(ctx, st.Queue, f.pick(settings))
		}
	}
	for queue := range f.turns {
		if !known[queue] {
			f.set(ctx, queue, "")
		}
	}
}

// set begins another turn of a queue, unless it has the value already.
func (f *follower) set(ctx context.Context, queue, value string) {
	last := f.turns[queue]
	if last != nil && isClosed(last.over) {
		delete(f.turns, queue)
		last = nil
	}
	switch {
	case last == nil && value == "":
	case last == nil:
		over := make(chan struct{})
		close(over)
		f.turns[queue] = f.begin(ctx, queue, value, over)
	case last.value != value:
		last.stop()
		f.turns[queue] = f.begin(ctx, queue, value, last.over)
	}
}

// begin runs the queue when the turn before is over.
func (f *follower) begin(ctx context.Context, queue, value string, before <-chan struct{}) *turn {
	ctx, stop := context.WithCancel(ctx)
	t := &turn{value: value, stop: stop, over: make(chan struct{})}
	f.group.Go(func() {
		defer close(t.over)
		defer stop()
		<-before
		if value != "" && ctx.Err() == nil {
			f.run(ctx, queue, value)
		}
	})
	return t
}

func (f *follower) warn(ctx context.Context, queue string, err error) {
	if ctx.Err() == nil && (f.warned.IsZero() || time.Since(f.warned) >= quietFor) {
		f.warned = time.Now()
		slog.Warn("settings could not be read", "queue", queue, "err", err)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
