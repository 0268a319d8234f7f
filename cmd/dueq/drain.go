package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

// drainEvery is how often drain looks.
const drainEvery = 200 * time.Millisecond

func (a *app) drain() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "drain QUEUE",
		Short: "Wait until a queue has nothing overdue and nothing running",
		Long: `Wait until a queue has no overdue and no active tasks: workers have done all that
was due. Tasks that are due later are not waited for, and scheduling goes on.
The exit code is 1 when --timeout ends first, and 3 for a queue that the store
has never heard of.`,
		Example: `  dueq drain order:close --timeout 5m && systemctl stop order-worker
  dueq drain order:close -o json`,
		Args:              exactly("QUEUE"),
		ValidArgsFunction: a.completeQueue,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.awaitDrained(cmd, args[0], timeout)
		},
	}
	cmd.Flags().Var(newValue(&timeout, "", "DURATION", positive("timeout")), "timeout", "wait no longer than this (default for ever)")
	return cmd
}

// drainView is how a drain ended.
type drainView struct {
	Queue     string `json:"queue"`
	Drained   bool   `json:"drained"`
	Scheduled int64  `json:"scheduled"`
	Overdue   int64  `json:"overdue"`
	Active    int64  `json:"active"`
	Dead      int64  `json:"dead"`
	TookMilli int64  `json:"took_ms"`
}

func (a *app) awaitDrained(cmd *cobra.Command, queue string, timeout time.Duration) error {
	store, err := a.store(cmd.Context())
	if err != nil {
		return err
	}
	ctx, release := a.stopOnSignal(cmd.Context(), func() {})
	defer release()
	wait := drainWait{app: a, tty: a.isTerminal(a.stderr), began: time.Now(), said: time.Now()}
	for {
		stats, err := store.Stats(ctx, queue)
		if err == nil {
			err = unread(stats)
		}
		took := time.Since(wait.began)
		switch {
		case ctx.Err() != nil:
			err = errInterrupted
		case err != nil:
		case stats[0].Overdue == 0 && stats[0].Active == 0:
			if err = heardOf(ctx, store, stats[0]); err == nil {
				return wait.end(stats[0], nil)
			}
		case timeout > 0 && took >= timeout:
			why := fmt.Errorf("not drained within %s: %d overdue, %d active", dueq.FormatDuration(timeout), stats[0].Overdue, stats[0].Active)
			return wait.end(stats[0], why)
		default:
			wait.tell(stats[0])
			next := drainEvery
			if timeout > 0 {
				next = min(next, timeout-took)
			}
			err = pause(ctx, next)
		}
		if err != nil {
			wait.clear()
			return err
		}
	}
}

// heardOf fails with ErrNotFound if the store does not know a queue at all:
// who waits for a name with a slip in it must not be told that it is drained.
func heardOf(ctx context.Context, store dueq.Store, s dueq.QueueStats) error {
	if s != (dueq.QueueStats{Queue: s.Queue, Now: s.Now}) {
		return nil // something is or was there, if only by a plain ZADD
	}
	all, err := store.Stats(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(other dueq.QueueStats) bool { return other.Queue == s.Queue }) {
		return nil
	}
	return &failure{fmt.Sprintf("queue %s is not known to this store", s.Queue), dueq.ErrNotFound}
}

// drainWait tells people how a drain goes on.
type drainWait struct {
	app         *app
	tty         bool
	began, said time.Time
	paused      bool // it was said
}

func (d *drainWait) tell(s dueq.QueueStats) {
	if s.Paused && !d.paused {
		d.paused = true
		d.clear()
		d.app.say("%s is paused: its %d overdue tasks wait for dueq resume", s.Queue, s.Overdue)
	}
	text := fmt.Sprintf("%s: %d overdue, %d active", s.Queue, s.Overdue, s.Active)
	switch {
	case d.app.format == "json":
	case d.tty:
		fmt.Fprint(d.app.stderr, clearLine+text)
	case time.Since(d.said) >= progressEvery:
		d.said = time.Now()
		d.app.say("%s", text)
	}
}

func (d *drainWait) clear() {
	if d.tty && d.app.format != "json" {
		fmt.Fprint(d.app.stderr, clearLine)
	}
}

func (d *drainWait) end(s dueq.QueueStats, why error) error {
	d.clear()
	view := drainView{
		Queue: s.Queue, Drained: why == nil, Scheduled: s.Scheduled, Overdue: s.Overdue, Active: s.Active, Dead: s.Dead,
		TookMilli: time.Since(d.began).Milliseconds(),
	}
	err := d.app.print(view, func(w io.Writer) {
		word := map[bool]string{true: "drained", false: "not drained"}[view.Drained]
		row(w, fmt.Sprintf("%s %s: %d overdue, %d active, %d due later, %d dead, after %.1f s",
			word, view.Queue, view.Overdue, view.Active, view.Scheduled-view.Overdue, view.Dead, float64(view.TookMilli)/1000))
	})
	if why != nil {
		return why
	}
	return err
}
