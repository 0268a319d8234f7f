package main

import (
	"io"
	"time"

	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

func (a *app) stats() *cobra.Command {
	return &cobra.Command{
		Use:   "stats [QUEUE…]",
		Short: "Show all counts of queues",
		Long:  `Show all counts of the named queues, or of all queues.`,
		Example: `  dueq stats order:close
  dueq stats -o json | jq '.queues[] | {queue, overdue}'`,
		Args:              someQueues,
		ValidArgsFunction: a.completeQueues,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.printStats(cmd, args, func(w io.Writer, queues []statsView) {
				for i, v := range queues {
					if i > 0 {
						row(w)
					}
					tableStats(w, v)
				}
			})
		},
	}
}

// someQueues takes any number of queues, also none.
func someQueues(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return atLeast("QUEUE")(cmd, args)
}

func (a *app) printStats(cmd *cobra.Command, queues []string, table func(io.Writer, []statsView)) error {
	store, err := a.store(cmd.Context())
	if err != nil {
		return err
	}
	stats, err := store.Stats(cmd.Context(), queues...)
	if err != nil {
		return err
	}
	views := make([]statsView, len(stats))
	for i, s := range stats {
		views[i] = viewStats(s)
	}
	all := struct {
		Queues []statsView `json:"queues"`
	}{views}
	return a.print(all, func(w io.Writer) { table(w, views) })
}

// statsView is the state of one queue as JSON shows it.
type statsView struct {
	Queue       string     `json:"queue"`
	Now         instant    `json:"now"` // the store's clock
	Scheduled   int64      `json:"scheduled"`
	Overdue     int64      `json:"overdue"`
	Active      int64      `json:"active"`
	Dead        int64      `json:"dead"`
	NextDueAt   instant    `json:"next_due_at"`
	NextLeaseAt instant    `json:"next_lease_at"`
	LastClaimAt instant    `json:"last_claim_at"`
	Paused      bool       `json:"paused"`
	Totals      totalsView `json:"totals"`
}

// totalsView must have the fields of dueq.Totals, in their order.
type totalsView struct {
	Scheduled  int64 `json:"scheduled"`
	Claimed    int64 `json:"claimed"`
	Acked      int64 `json:"acked"`
	Retried    int64 `json:"retried"`
	Again      int64 `json:"again"`
	Released   int64 `json:"released"`
	Died       int64 `json:"died"`
	Ended      int64 `json:"ended"`
	Stopped    int64 `json:"stopped"`
	Superseded int64 `json:"superseded"`
	Refused    int64 `json:"refused"`
	Requeued   int64 `json:"requeued"`
	Cancelled  int64 `json:"cancelled"`
	Deleted    int64 `json:"deleted"`
	Trimmed    int64 `json:"trimmed"`
}

func viewStats(s dueq.QueueStats) statsView {
	return statsView{
		Queue: s.Queue, Now: instant(s.Now),
		Scheduled: s.Scheduled, Overdue: s.Overdue, Active: s.Active, Dead: s.Dead,
		NextDueAt: instant(s.NextDue), NextLeaseAt: instant(s.NextLease), LastClaimAt: instant(s.LastClaim),
		Paused: s.Paused, Totals: totalsView(s.Totals),
	}
}

func tableStats(w io.Writer, v statsView) {
	row(w, "queue", v.Queue)
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

// due adds to an instant how far it is from now.
func due(at, now instant) string {
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
