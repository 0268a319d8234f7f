package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

func (a *app) dead() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "List, requeue or delete dead letters",
		Long: `List, requeue or delete dead letters: tasks whose retries are used up, that a
handler gave up, that came too late, or whose member or due time is not one.`,
		Example: `  dueq dead list order:close
  dueq dead requeue order:close --error timeout --rate 50/s`,
		Args: cobra.ArbitraryArgs,
		RunE: helpOrUnknown,
	}
	cmd.AddCommand(
		a.deadList(),
		a.deadChange("requeue", "Schedule dead letters again, due at once", dueq.OpRequeue),
		a.deadChange("delete", "Delete dead letters", dueq.OpDelete),
	)
	return cmd
}

func (a *app) deadList() *cobra.Command {
	var (
		page  pageFlags
		query = dueq.ListQuery{State: dueq.StateDead}
	)
	cmd := &cobra.Command{
		Use:   "list QUEUE",
		Short: "List dead letters by the time they died",
		Example: `  dueq dead list order:close
  dueq dead list order:close --error timeout --kind pay_timeout --limit 20`,
		Args:              exactly("QUEUE"),
		ValidArgsFunction: a.completeQueue,
		RunE: func(cmd *cobra.Command, args []string) error {
			query.Queue = args[0]
			return a.printList(cmd, query, "dead", page)
		},
	}
	cmd.Flags().StringVar(&query.Error, "error", "", "only those whose last error contains `TEXT`")
	page.add(cmd)
	return cmd
}

func (a *app) deadChange(name, short string, op dueq.Op) *cobra.Command {
	var which selection
	cmd := &cobra.Command{
		Use:   name + " QUEUE MEMBER… | --all | --error TEXT | --kind KIND",
		Short: short,
		Long: short + `: the named ones, all,
or those whose last error contains a text, that have a kind, or both. Where they
are not named, it takes those that had died when the command began. Interrupted,
it finishes the call it is in and says what it did.`,
		Example: strings.ReplaceAll(`  dueq dead NAME order:close order_123456:pay_timeout
  dueq dead NAME order:close --error timeout --dry-run
  dueq dead NAME order:close --all --rate 50/s`, "NAME", name),
		ValidArgsFunction: a.completeQueue,
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := exactly("QUEUE")(cmd, args[:min(1, len(args))]); err != nil {
			return err
		}
		which.members, which.filtered = args[1:], cmd.Flags().Changed("error") || which.kind != nil
		if cmd.Flags().Changed("error") && which.text == "" {
			return errors.New("--error is empty; --all takes every dead letter")
		}
		return which.validate()
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.changeDead(cmd, args[0], op, &which)
	}
	cmd.Flags().BoolVar(&which.all, "all", false, "all dead letters of the queue")
	cmd.Flags().StringVar(&which.text, "error", "", "those whose last error contains `TEXT`")
	cmd.Flags().Var(newValue(&which.kind, "", "KIND", parseKind), "kind", "those of this kind; empty is the kind without a name")
	cmd.Flags().BoolVar(&which.dryRun, "dry-run", false, "change nothing, say what would be done")
	which.pace.add(cmd)
	return cmd
}

func (a *app) changeDead(cmd *cobra.Command, queue string, op dueq.Op, which *selection) error {
	store, err := a.store(cmd.Context())
	if err != nil {
		return err
	}
	ctx, release := a.stopOnSignal(cmd.Context(), func() {})
	defer release()
	report := newDeadReport(a, deadHead{Queue: queue, Op: op.String(), DryRun: which.dryRun})
	err = which.each(ctx, store, queue, func(ctx context.Context, members []string) error {
		err := report.apply(ctx, store, op, members)
		if flushErr := report.flush(); err == nil {
			err = flushErr
		}
		return err
	})
	if endErr := report.end(); err == nil { // what was done before an error as well
		err = endErr
	}
	if err == nil && len(which.members) > 0 {
		err = report.error(op)
	}
	return err
}

// selection is the dead letters that a command is about.
type selection struct {
	members  []string
	all      bool
	filtered bool // by text or kind
	text     string
	kind     *string
	dryRun   bool
	pace     pace
}

func (s *selection) validate() error {
	ways := 0
	for _, given := range []bool{len(s.members) > 0, s.all, s.filtered} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		return fmt.Errorf("give one of MEMBER…, --all and --error or --kind, not %d of them", ways)
	case slices.Contains(s.members, ""):
		return fmt.Errorf("MEMBER is empty")
	}
	return nil
}

// each calls f with the selected members, some at a time, at the pace asked for.
func (s *selection) each(ctx context.Context, store dueq.Store, queue string, f func(ctx context.Context, members []string) error) error {
	if s.dryRun {
		s.pace.perSecond = 0
	}
	if len(s.members) > 0 {
		return s.pace.each(ctx, s.members, f)
	}
	return eachDead(ctx, store, queue, s.text, func(tasks []dueq.Info) error {
		return s.pace.each(ctx, members(ofKind(tasks, s.kind)), f)
	})
}

// eachDead pages through the dead letters whose last error contains text. Those
// that died after it began are left, or a requeued task that dies at once would
// keep it going for ever.
func eachDead(ctx context.Context, store dueq.Store, queue, text string, f func([]dueq.Info) error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	stats, err := store.Stats(context.WithoutCancel(ctx), queue)
	if err == nil {
		err = unread(stats)
	}
	if err != nil {
		return err
	}
	began := stats[0].Now
	query := dueq.ListQuery{Queue: queue, State: dueq.StateDead, Error: text}
	return eachPage(ctx, store, query, func(tasks []dueq.Info) error {
		i := slices.IndexFunc(tasks, func(t dueq.Info) bool { return t.DiedAt.After(began) })
		if i < 0 {
			return f(tasks)
		}
		if err := f(tasks[:i]); err != nil {
			return err
		}
		return errNoMore
	})
}

// errNoMore, returned by the function given to eachPage, ends it without error.
var errNoMore = errors.New("no more pages are wanted")

// eachPage calls f with page after page of a list, until ctx ends between two.
func eachPage(ctx context.Context, store dueq.Store, query dueq.ListQuery, f func([]dueq.Info) error) error {
	query.Limit = dueq.MaxItems
	for {
		if ctx.Err() != nil {
			return errInterrupted
		}
		page, err := store.List(context.WithoutCancel(ctx), query)
		if err == nil {
			err = f(page.Tasks)
		}
		if err == errNoMore || err == nil && page.Cursor == "" {
			return nil
		}
		if err != nil {
			return err
		}
		query.Cursor = page.Cursor
	}
}

func members(tasks []dueq.Info) []string {
	names := make([]string, len(tasks))
	for i, t := range tasks {
		names[i] = t.Member
	}
	return names
}
