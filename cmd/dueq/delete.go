package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

// deletion is what delete is to take away.
type deletion struct {
	queue  string
	state  string // scheduled, dead or all
	text   string // only with this in their last error
	yes    bool
	dryRun bool
	pace   pace
}

func (a *app) delete() *cobra.Command {
	var d deletion
	cmd := &cobra.Command{
		Use:   "delete QUEUE",
		Short: "Delete the tasks of a queue",
		Long: `Delete the tasks of a queue: all, the scheduled ones or the dead letters, or of
these those whose last error contains a text. Running tasks are left. On a
terminal it asks first; elsewhere it needs --yes. The queue's settings stay.
Interrupted, it finishes the call it is in and says what it did.`,
		Example: `  dueq delete order:close --dry-run
  dueq delete order:close --state dead --error timeout --yes
  dueq delete order:close --yes --rate 1000/s`,
		Args:              exactly("QUEUE"),
		ValidArgsFunction: a.completeQueue,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("error") && d.text == "" {
				return &dueq.FieldError{Field: "error", Reason: "is empty; without it all tasks are meant"}
			}
			d.queue = args[0]
			return a.deleteTasks(cmd, &d)
		},
	}
	states := []string{"scheduled", "dead", "all"}
	cmd.Flags().Var(newValue(&d.state, "all", "STATE", oneOf("state", states...)), "state", "scheduled, dead or all")
	cmd.Flags().StringVar(&d.text, "error", "", "only those whose last error contains `TEXT`")
	cmd.Flags().BoolVar(&d.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&d.dryRun, "dry-run", false, "change nothing, say how many would be deleted")
	d.pace.add(cmd)
	completeWords(cmd, "state", states...)
	return cmd
}

// deleteView is how many tasks were deleted, by state.
type deleteView struct {
	Queue     string `json:"queue"`
	DryRun    bool   `json:"dry_run"`
	Scheduled int64  `json:"scheduled"`
	Dead      int64  `json:"dead"`
	Running   int64  `json:"running"`  // that are left
	Complete  bool   `json:"complete"` // false when it was interrupted or failed
}

func (a *app) deleteTasks(cmd *cobra.Command, d *deletion) error {
	store, err := a.store(cmd.Context())
	if err != nil {
		return err
	}
	if !d.dryRun && !d.yes {
		if err := a.confirmDeletion(cmd.Context(), store, d); err != nil {
			return err
		}
	}
	ctx, release := a.stopOnSignal(cmd.Context(), func() {})
	defer release()
	view := deleteView{Queue: d.queue, DryRun: d.dryRun}
	err = d.run(ctx, store, &view)
	view.Complete = err == nil
	if printErr := a.print(view, func(w io.Writer) { row(w, view.text()) }); err == nil {
		err = printErr
	}
	return err
}

func (a *app) confirmDeletion(ctx context.Context, store dueq.Store, d *deletion) error {
	if !a.isTerminal(a.stdin) || !a.isTerminal(a.stderr) {
		return &dueq.FieldError{Field: "--yes", Reason: "is needed where there is no terminal to ask on; --dry-run counts first"}
	}
	stats, err := store.Stats(ctx, d.queue)
	if err == nil {
		err = unread(stats)
	}
	if err != nil {
		return err
	}
	what := ""
	if d.state != "dead" {
		what = fmt.Sprintf("%d scheduled", stats[0].Scheduled)
	}
	if d.state == "all" {
		what += " and "
	}
	if d.state != "scheduled" {
		what += fmt.Sprintf("%d dead", stats[0].Dead)
	}
	what += " tasks of " + d.queue
	if d.text != "" {
		what = fmt.Sprintf("of the %s those whose last error contains %q", what, d.text)
	}
	if !a.confirm("Delete " + what + "?") {
		return errors.New("not confirmed: nothing was deleted")
	}
	return nil
}

func (d *deletion) run(ctx context.Context, store dueq.Store, view *deleteView) error {
	if d.dryRun {
		d.pace.perSecond = 0
	}
	if d.state != "dead" {
		query := dueq.ListQuery{Queue: d.queue, State: dueq.StateScheduled, Error: d.text}
		err := eachPage(ctx, store, query, func(tasks []dueq.Info) error {
			idle := slices.DeleteFunc(tasks, func(t dueq.Info) bool { return t.State == dueq.StateActive })
			return d.take(ctx, store, dueq.StateScheduled, members(idle), &view.Scheduled)
		})
		if err != nil {
			return err
		}
	}
	if d.state != "scheduled" {
		err := eachDead(ctx, store, d.queue, d.text, func(tasks []dueq.Info) error {
			return d.take(ctx, store, dueq.StateDead, members(tasks), &view.Dead)
		})
		if err != nil {
			return err
		}
	}
	return d.countRunning(ctx, store, view)
}

func (d *deletion) countRunning(ctx context.Context, store dueq.Store, view *deleteView) error {
	if d.state == "dead" || d.text != "" {
		return nil
	}
	stats, err := store.Stats(context.WithoutCancel(ctx), d.queue)
	if err == nil {
		err = unread(stats)
	}
	if err == nil {
		view.Running = stats[0].Active
	}
	return err
}

// take deletes members that are still in a state, and counts them.
func (d *deletion) take(ctx context.Context, store dueq.Store, state dueq.State, members []string, count *int64) error {
	if d.dryRun {
		*count += int64(len(members))
		return nil
	}
	return d.pace.each(ctx, members, func(ctx context.Context, members []string) error {
		targets := make([]dueq.Target, len(members))
		for i, member := range members {
			targets[i] = dueq.Target{Member: member, State: state}
		}
		outcomes, err := store.Change(ctx, d.queue, dueq.OpDelete, targets)
		for _, o := range outcomes {
			if o.Status == dueq.StatusDone {
				*count++
			}
		}
		return err
	})
}

func (v deleteView) text() string {
	text := "deleted from"
	if v.DryRun {
		text = "dry run of deleting from"
	}
	text = fmt.Sprintf("%s %s: %d scheduled, %d dead", text, v.Queue, v.Scheduled, v.Dead)
	if v.Running > 0 {
		text += fmt.Sprintf("; %d are running and left", v.Running)
	}
	return text
}
