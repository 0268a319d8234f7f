package main

import (
	"bytes"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
	"github.com/spf13/cobra"
)

func parseInterval(s string) (time.Duration, error) {
	d, err := dueq.ParseDuration(s)
	if err == nil && d < 100*time.Millisecond {
		err = &dueq.FieldError{Field: "interval", Reason: fmt.Sprintf("%q is under 100ms", s)}
	}
	return d, err
}

// watchStats shows stats until a signal. A store that is there at the start may
// go away meanwhile: it says so and goes on.
func (a *app) watchStats(cmd *cobra.Command, queues []string, interval time.Duration) error {
	ctx, release := a.stopOnSignal(cmd.Context(), func() {})
	defer release()
	store, err := a.store(ctx)
	if err != nil {
		return err
	}
	watch := statsWatch{app: a, redraw: a.format != "json" && a.isTerminal(a.stdout)}
	for shown := false; ; {
		stats, err := store.Stats(ctx, queues...)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if err := watch.show(stats); err != nil {
				return err
			}
			shown = true
		case !shown:
			return err
		default:
			a.say("%v", err)
		}
		if pause(ctx, interval) != nil {
			return nil
		}
	}
}

// statsWatch shows stats again and again, with rates from one time to the next.
type statsWatch struct {
	app    *app
	redraw bool
	before map[string]view.Stats
}

func (s *statsWatch) show(stats []dueq.QueueStats) error {
	views := viewAllStats(stats)
	if s.app.format == "json" {
		return s.app.print(statsViews{views}, nil)
	}
	var b bytes.Buffer
	if s.redraw {
		b.WriteString(clearScreen)
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	s.table(w, views)
	w.Flush()
	if !s.redraw {
		b.WriteByte('\n')
	}
	_, err := s.app.stdout.Write(b.Bytes())
	s.before = map[string]view.Stats{}
	for _, v := range views {
		s.before[v.Queue] = v
	}
	return err
}

func (s *statsWatch) table(w io.Writer, views []view.Stats) {
	if len(views) == 0 {
		row(w, "no queues")
		return
	}
	row(w, views[0].Now)
	row(w, "QUEUE", "SCHEDULED", "OVERDUE", "ACTIVE", "DEAD", "SCHEDULED/S", "CLAIMED/S", "ACKED/S", "FAILED/S", "PAUSED")
	for _, v := range views {
		if v.Error != "" {
			row(w, v.Queue, "error: "+v.Error)
			continue
		}
		before, ok := s.before[v.Queue]
		rate := func(now, then int64) string {
			took := time.Time(v.Now).Sub(time.Time(before.Now)).Seconds()
			if !ok || before.Error != "" || took <= 0 {
				return "-"
			}
			return fmt.Sprintf("%.0f", float64(now-then)/took)
		}
		t, u := v.Totals, before.Totals
		row(w, v.Queue, v.Scheduled, v.Overdue, v.Active, v.Dead,
			rate(t.Scheduled, u.Scheduled), rate(t.Claimed+t.Forwarded, u.Claimed+u.Forwarded), rate(t.Acked, u.Acked),
			rate(t.Retried+t.Died+t.Ended, u.Retried+u.Died+u.Ended), yesNo(v.Paused))
	}
}
