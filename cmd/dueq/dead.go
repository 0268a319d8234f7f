package main

import (
	"context"
	"fmt"
	"io"
	"maps"
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
  dueq dead list order:close --error timeout --limit 20`,
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
		Use:   name + " QUEUE MEMBER… | --all | --error TEXT",
		Short: short,
		Long: short + `: the named ones, all, or those whose last error contains a
text. --all and --error take what had died when the command began.`,
		Example: strings.ReplaceAll(`  dueq dead NAME order:close order_123456:pay_timeout
  dueq dead NAME order:close --error timeout --dry-run
  dueq dead NAME order:close --all`, "NAME", name),
		ValidArgsFunction: a.completeQueue,
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := exactly("QUEUE")(cmd, args[:min(1, len(args))]); err != nil {
			return err
		}
		which.members, which.filtered = args[1:], cmd.Flags().Changed("error")
		return which.validate()
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		store, err := a.store(cmd.Context())
		if err != nil {
			return err
		}
		report := deadReport{Queue: args[0], Op: op.String(), DryRun: which.dryRun, Counts: map[string]int{}, Results: []memberStatus{}}
		err = which.each(cmd.Context(), store, args[0], func(members []string) error {
			return report.apply(cmd.Context(), store, op, members)
		})
		if printErr := a.print(report, report.table); err == nil { // what was done before an error as well
			err = printErr
		}
		if err == nil && len(which.members) > 0 {
			err = report.firstError(op)
		}
		return err
	}
	cmd.Flags().BoolVar(&which.all, "all", false, "all dead letters of the queue")
	cmd.Flags().StringVar(&which.text, "error", "", "those whose last error contains `TEXT`")
	cmd.Flags().BoolVar(&which.dryRun, "dry-run", false, "change nothing, say what would be done")
	return cmd
}

// selection is the dead letters that a command is about.
type selection struct {
	members  []string
	all      bool
	filtered bool // by text
	text     string
	dryRun   bool
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
		return fmt.Errorf("give one of MEMBER…, --all and --error, not %d of them", ways)
	case s.filtered && s.text == "":
		return fmt.Errorf("--error is empty; --all takes every dead letter")
	case slices.Contains(s.members, ""):
		return fmt.Errorf("MEMBER is empty")
	}
	return nil
}

// each calls f with the selected members, at most MaxItems at a time.
func (s *selection) each(ctx context.Context, store dueq.Store, queue string, f func(members []string) error) error {
	if len(s.members) == 0 {
		return eachDead(ctx, store, queue, s.text, f)
	}
	for members := range slices.Chunk(s.members, dueq.MaxItems) {
		if err := f(members); err != nil {
			return err
		}
	}
	return nil
}

// eachDead pages through the dead letters whose last error contains text. Those
// that died after it began are left, or a requeued task that dies at once would
// keep it going for ever.
func eachDead(ctx context.Context, store dueq.Store, queue, text string, f func(members []string) error) error {
	stats, err := store.Stats(ctx, queue)
	if err != nil {
		return err
	}
	began := stats[0].Now
	query := dueq.ListQuery{Queue: queue, State: dueq.StateDead, Error: text, Limit: dueq.MaxItems}
	for {
		page, err := store.List(ctx, query)
		if err != nil {
			return err
		}
		tasks := page.Tasks
		if i := slices.IndexFunc(tasks, func(t dueq.Info) bool { return t.DiedAt.After(began) }); i >= 0 {
			tasks, page.Cursor = tasks[:i], ""
		}
		if len(tasks) > 0 {
			if err := f(members(tasks)); err != nil {
				return err
			}
		}
		if page.Cursor == "" {
			return nil
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

// deadReport is what a command did to dead letters.
type deadReport struct {
	Queue   string         `json:"queue"`
	Op      string         `json:"op"`
	DryRun  bool           `json:"dry_run"`
	Counts  map[string]int `json:"counts"` // by status
	Results []memberStatus `json:"results"`
}

type memberStatus struct {
	Member string `json:"member"`
	Status string `json:"status"`
	err    error
}

func (r *deadReport) apply(ctx context.Context, store dueq.Store, op dueq.Op, members []string) error {
	if r.DryRun {
		return r.foresee(ctx, store, op, members)
	}
	targets := make([]dueq.Target, len(members))
	for i, member := range members {
		targets[i].Member = member
		if op == dueq.OpDelete {
			targets[i].State = dueq.StateDead
		}
	}
	outcomes, err := store.Change(ctx, r.Queue, op, targets)
	for i, o := range outcomes {
		r.add(members[i], o.Status.String(), changeError(op, o))
	}
	return err
}

// foresee tells what apply would answer.
func (r *deadReport) foresee(ctx context.Context, store dueq.Store, op dueq.Op, members []string) error {
	infos, err := store.Get(ctx, r.Queue, members)
	if err != nil {
		return err
	}
	for i, info := range infos {
		status := map[dueq.State]dueq.Status{
			dueq.StateNone: dueq.StatusNotFound, dueq.StateActive: dueq.StatusRunning,
			dueq.StateDead: dueq.StatusDone, dueq.StateScheduled: dueq.StatusKept,
		}[info.State]
		if op == dueq.OpDelete && (status == dueq.StatusKept || status == dueq.StatusRunning) {
			status = dueq.StatusChanged
		}
		r.add(members[i], status.String(), changeError(op, dueq.Outcome{Status: status}))
	}
	return nil
}

func (r *deadReport) add(member, status string, err error) {
	r.Counts[status]++
	r.Results = append(r.Results, memberStatus{member, status, err})
}

func (r *deadReport) table(w io.Writer) {
	for _, result := range r.Results {
		row(w, result.Member, result.Status)
	}
	summary := fmt.Sprintf("%s %s:", r.Op, r.Queue)
	if r.DryRun {
		summary = "dry run of " + summary
	}
	for _, status := range slices.Sorted(maps.Keys(r.Counts)) {
		summary += fmt.Sprintf(" %d %s", r.Counts[status], status)
	}
	if len(r.Counts) == 0 {
		summary += " nothing to do"
	}
	row(w, summary)
}

// firstError is the error of the named members: not found before the rest.
func (r *deadReport) firstError(op dueq.Op) error {
	var failed []memberStatus
	for _, result := range r.Results {
		if result.err != nil {
			failed = append(failed, result)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	first := failed[0]
	if i := slices.IndexFunc(failed, func(m memberStatus) bool { return m.Status == dueq.StatusNotFound.String() }); i >= 0 {
		first = failed[i]
	}
	text := fmt.Sprintf("%d of %d tasks, such as %s: %v", len(failed), len(r.Results), first.Member, first.err)
	return &dueq.CallError{Op: "dead " + op.String(), Queue: r.Queue, Err: &failure{text, first.err}}
}
