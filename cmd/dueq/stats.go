package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
	"github.com/spf13/cobra"
)

func (a *app) stats() *cobra.Command {
	var (
		watching bool
		interval time.Duration
	)
	cmd := &cobra.Command{
		Use:   "stats [QUEUE…]",
		Short: "Show all counts of queues",
		Long: `Show all counts of the named queues, or of all queues. With --watch show again
and again what is there and how fast it moves, until a signal; in JSON it is one
object each time. CLAIMED/S has forwarded tasks in it.`,
		Example: `  dueq stats order:close
  dueq stats order:close sms:send --watch --interval 5s
  dueq stats -o json | jq '.queues[] | {queue, overdue}'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("interval") && !watching {
				return errors.New("--interval goes with --watch")
			}
			return someQueues(cmd, args)
		},
		ValidArgsFunction: a.completeQueues,
		RunE: func(cmd *cobra.Command, args []string) error {
			if watching {
				return a.watchStats(cmd, args, interval)
			}
			return a.printStats(cmd, args, func(w io.Writer, queues []view.Stats) {
				for i, v := range queues {
					if i > 0 {
						row(w)
					}
					tableStats(w, v)
				}
			})
		},
	}
	cmd.Flags().BoolVar(&watching, "watch", false, "show it again and again, until a signal")
	cmd.Flags().Var(newValue(&interval, "1s", "DURATION", parseInterval), "interval", "of --watch, at least 100ms")
	return cmd
}

// someQueues takes any number of queues, also none.
func someQueues(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return atLeast("QUEUE")(cmd, args)
}

func (a *app) printStats(cmd *cobra.Command, queues []string, table func(io.Writer, []view.Stats)) error {
	store, err := a.store(cmd.Context())
	if err != nil {
		return err
	}
	stats, err := store.Stats(cmd.Context(), queues...)
	if err != nil {
		return err
	}
	views := viewAllStats(stats)
	if err := a.print(statsViews{views}, func(w io.Writer) { table(w, views) }); err != nil {
		return err
	}
	return unread(stats)
}

// unread is the error of queues that could not be read beside the others.
func unread(stats []dueq.QueueStats) error {
	for _, s := range stats {
		if s.Err != nil {
			return fmt.Errorf("%s cannot be read: %w", s.Queue, s.Err)
		}
	}
	return nil
}

type statsViews struct {
	Queues []view.Stats `json:"queues"`
}

func viewAllStats(stats []dueq.QueueStats) []view.Stats {
	views := make([]view.Stats, len(stats))
	for i, s := range stats {
		views[i] = view.NewStats(s)
	}
	return views
}

func tableStats(w io.Writer, v view.Stats) {
	row(w, "queue", v.Queue)
	if v.Error != "" {
		row(w, "error", v.Error)
		return
	}
	row(w, "scheduled", v.Scheduled)
	row(w, "overdue", v.Overdue)
	row(w, "active", v.Active)
	row(w, "dead", v.Dead)
	row(w, "next due", due(v.NextDueAt, v.Now))
	row(w, "next lease end", v.NextLeaseAt)
	row(w, "last claim", v.LastClaimAt)
	row(w, "paused", yesNo(v.Paused))
	t := v.Totals
	row(w, "totals:")
	row(w, "  scheduled", t.Scheduled)
	row(w, "  claimed", t.Claimed)
	row(w, "  forwarded", t.Forwarded)
	row(w, "  acked", t.Acked)
	row(w, "  retried", t.Retried)
	row(w, "  again", t.Again)
	row(w, "  released", t.Released)
	row(w, "  died", t.Died)
	row(w, "  lease ended", t.Ended)
	row(w, "  stopped", t.Stopped)
	row(w, "  superseded", t.Superseded)
	row(w, "  refused", t.Refused)
	row(w, "  requeued", t.Requeued)
	row(w, "  cancelled", t.Cancelled)
	row(w, "  deleted", t.Deleted)
	row(w, "  trimmed", t.Trimmed)
}

// due adds to an view.Instant how far it is from now.
func due(at, now view.Instant) string {
	if time.Time(at).IsZero() {
		return at.String()
	}
	d := time.Time(at).Sub(time.Time(now)).Round(time.Millisecond)
	if d < 0 {
		return at.String() + " (" + dueq.FormatDuration(-d) + " ago)"
	}
	return at.String() + " (in " + dueq.FormatDuration(d) + ")"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
