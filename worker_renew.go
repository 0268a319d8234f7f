package dueq

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// renewLoop keeps the leases of running and buffered tasks until ctx ends. A
// lane whose call hangs does not hold up the others.
func (w *Worker) renewLoop(ctx context.Context, calls *sync.WaitGroup) {
	ticker := time.NewTicker(renewEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			for _, l := range w.lanes {
				l.keep(ctx, calls)
			}
		case <-ctx.Done():
			return
		}
	}
}

// keep renews what is due to be renewed, unless it is at it.
func (l *lane) keep(ctx context.Context, calls *sync.WaitGroup) {
	tasks := l.toRenew(false)
	if len(tasks) == 0 || l.renewing.Swap(true) {
		return
	}
	calls.Go(func() {
		defer l.renewing.Store(false)
		l.keepTasks(ctx, tasks)
	})
}

func (l *lane) keepTasks(ctx context.Context, tasks []*held) {
	if l.renewFailures > 1 && !l.w.turn() {
		return
	}
	err := l.renew(ctx, tasks)
	switch {
	case err != nil:
		l.renewFailures++
	case l.renewFailures > 0:
		l.renewFailures = 0
		l.w.recovered()
	}
}

// renew extends the leases of tasks.
func (l *lane) renew(ctx context.Context, tasks []*held) error {
	for chunk := range slices.Chunk(tasks, MaxItems) {
		if err := l.extend(ctx, chunk); err != nil {
			return err
		}
	}
	return nil
}

// reserve is how much of a lease is always left: half of it, and of a short one
// over 2 s where it has that much, since a step of the store's clock by less is
// not told from time that passed.
func reserve(lease time.Duration) time.Duration {
	return max(lease/2, min(lease-500*time.Millisecond, 2500*time.Millisecond))
}

// toRenew returns the tasks whose lease is short of its reserve, or all. A
// handler past its timeout and a second loses its lease in the end, so that
// somebody else gets the task.
func (l *lane) toRenew(all bool) []*held {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*held
	now := time.Now()
	add := func(tasks []*held) {
		for _, h := range tasks {
			if !h.once && (all || h.until.Sub(now) < reserve(l.settings.Lease)) {
				out = append(out, h)
			}
		}
	}
	add(l.buffer)
	var elapsed time.Duration
	for r := range l.runs {
		if len(r.tasks) == 0 {
			continue
		}
		elapsed += now.Sub(r.started)
		if now.Sub(r.started) < r.limit+overtime {
			add(r.tasks)
			continue
		}
		if !r.overran {
			r.overran = true
			l.reportOverrun(r)
		}
	}
	l.mean = max(l.mean, elapsed/time.Duration(max(len(l.runs), 1))) // runs may have become slower
	return out
}

func (l *lane) reportOverrun(r *run) {
	for _, h := range r.tasks {
		l.w.quiet.warn("overran "+l.queue, "handler ignores its deadline; the lease is no longer renewed", "queue", l.queue, "task", h.task.Lease.Member)
		l.w.opts.Observer.overran(h.task)
	}
}

// extend makes one call and notes what it says of each task.
func (l *lane) extend(ctx context.Context, tasks []*held) error {
	leases := make([]Lease, len(tasks))
	for i, h := range tasks {
		leases[i] = h.task.Lease
	}
	l.mu.Lock()
	lease := l.settings.Lease
	l.mu.Unlock()
	began := time.Now()
	outcomes, err := l.w.store.Extend(ctx, l.queue, leases, lease)
	l.w.opts.Observer.call("extend", l.queue, len(leases), time.Since(began), err)
	if err != nil {
		l.w.failed(l.queue, "extend", err)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := map[*held]bool{}
	for i, h := range tasks {
		if outcomes[i].Status == StatusLeaseLost {
			lost[h] = true
		} else {
			h.until = began.Add(lease)
		}
	}
	if len(lost) > 0 {
		l.giveUp(lost)
	}
	return nil
}

// giveUp ends the contexts of runs that lost a lease, and drops lost tasks that
// have not started. A batch goes on for its other tasks. Called with mu held.
func (l *lane) giveUp(lost map[*held]bool) {
	for r := range l.runs {
		all := len(r.tasks) > 0
		for _, h := range r.tasks {
			all = all && lost[h]
		}
		if all && r.ctx != nil {
			r.ctx.finish(ErrLeaseLost)
		}
	}
	kept := l.buffer[:0:0]
	for _, h := range l.buffer {
		if lost[h] {
			l.w.opts.Observer.dropped(h.task)
		} else {
			kept = append(kept, h)
		}
	}
	l.buffer = kept
}

// failed notes and logs trouble with the store.
func (w *Worker) failed(queue, op string, err error) {
	if errors.Is(err, ErrUnavailable) {
		w.quiet.warn("unavailable", "store unavailable", "queue", queue, "op", op, "err", err)
		return
	}
	w.quiet.warn(op+" "+queue, "store call failed", "queue", queue, "op", op, "err", err)
}
