package dueq

import (
	"context"
	"errors"
	"time"
)

// renewLoop keeps the leases of running and buffered tasks until ctx ends.
func (w *Worker) renewLoop(ctx context.Context) {
	ticker := time.NewTicker(renewEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			for _, l := range w.lanes {
				l.keep(ctx)
			}
		case <-ctx.Done():
			return
		}
	}
}

// keep renews what is due to be renewed.
func (l *lane) keep(ctx context.Context) {
	if l.renewFailures > 1 && !l.w.turn() {
		return
	}
	err := l.renew(ctx, false)
	switch {
	case err != nil:
		l.renewFailures++
	case l.renewFailures > 0:
		l.renewFailures = 0
		l.w.recovered()
	}
}

// renew extends the leases that have come to half their time, or all. A
// handler past its timeout and a second loses its lease in the end, so that
// somebody else gets the task.
func (l *lane) renew(ctx context.Context, all bool) error {
	for _, tasks := range chunks(l.toRenew(all), MaxItems) {
		if err := l.extend(ctx, tasks); err != nil {
			return err
		}
	}
	return nil
}

func chunks(tasks []*held, size int) [][]*held {
	var out [][]*held
	for ; len(tasks) > size; tasks = tasks[size:] {
		out = append(out, tasks[:size])
	}
	if len(tasks) > 0 {
		out = append(out, tasks)
	}
	return out
}

func (l *lane) toRenew(all bool) []*held {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*held
	now := time.Now()
	add := func(tasks []*held) {
		for _, h := range tasks {
			if !h.once && (all || h.until.Sub(now) < l.settings.Lease/2) {
				out = append(out, h)
			}
		}
	}
	add(l.buffer)
	for r := range l.runs {
		if len(r.tasks) == 0 {
			continue
		}
		if now.Sub(r.started) < r.limit+overtime {
			add(r.tasks)
			continue
		}
		if !r.overran {
			r.overran = true
			l.reportOverrun(r)
		}
	}
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
		if all && r.cancel != nil {
			r.cancel(ErrLeaseLost)
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
