package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

const (
	moveChunk = 200  // tasks a call, since their bodies are read
	leftShown = 1000 // tasks that were left and are listed one by one
)

// moving is what move is to do.
type moving struct {
	queue, dest string
	members     []string
	all         bool
	dryRun      bool
	ifExists    dueq.IfExists
	pace        pace
}

func (a *app) move() *cobra.Command {
	m := moving{pace: pace{most: moveChunk}}
	cmd := &cobra.Command{
		Use:   "move QUEUE DEST MEMBER… | --all",
		Short: "Move scheduled tasks to another queue",
		Long: `Move scheduled tasks to another queue, with their due time and body; failures
and rounds start anew. A task is scheduled in DEST before it is taken from QUEUE,
and only if it is still as it was read, so that none is lost; move again what an
interruption left. Running tasks and dead letters are left.

If DEST has a task of that name already, --if-exists says which one wins. With
keep, the default, a task that differs there stays in both and is reported. The
exit code is 4 if any was left, 3 if one that was named is not there.`,
		Example: `  dueq move order:close order:close:v2 order_123456:pay_timeout
  dueq move order:close order:close:v2 --all --dry-run
  dueq move order:close order:close:v2 --all --rate 500/s`,
		ValidArgsFunction: a.completeTwoQueues,
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := exactly("QUEUE", "DEST")(cmd, args[:min(2, len(args))]); err != nil {
			return err
		}
		m.queue, m.dest, m.members = args[0], args[1], args[2:]
		return m.validate()
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.moveTasks(cmd, &m) }
	cmd.Flags().BoolVar(&m.all, "all", false, "all scheduled tasks of the queue")
	cmd.Flags().BoolVar(&m.dryRun, "dry-run", false, "change nothing, say what would be done")
	cmd.Flags().Var(newValue(&m.ifExists, "keep", "WHAT", dueq.ParseIfExists), "if-exists", "keep what DEST has, replace it, or the earlier or later one")
	completeWords(cmd, "if-exists", ifExistsWords...)
	m.pace.add(cmd)
	return cmd
}

func (m *moving) validate() error {
	switch {
	case m.queue == m.dest:
		return fmt.Errorf("DEST is QUEUE itself, %s", m.queue)
	case m.all && len(m.members) > 0:
		return fmt.Errorf("give MEMBER… or --all, not both")
	case !m.all && len(m.members) == 0:
		return fmt.Errorf("MEMBER is missing, or --all")
	}
	for _, member := range m.members {
		if err := checkArg("MEMBER", member); err != nil {
			return err
		}
	}
	return dueq.ValidateQueue(m.dest)
}

func (a *app) moveTasks(cmd *cobra.Command, m *moving) error {
	store, err := a.store(cmd.Context())
	if err != nil {
		return err
	}
	ctx, release := a.stopOnSignal(cmd.Context(), func() {})
	defer release()
	r := &moveReport{Queue: m.queue, Dest: m.dest, DryRun: m.dryRun, all: m.all, Counts: map[string]int{}, Left: []leftTask{}}
	err = m.run(ctx, store, r)
	r.Complete = err == nil
	if printErr := a.print(r, r.table); err == nil {
		err = printErr
	}
	if err == nil {
		err = r.error()
	}
	return err
}

func (m *moving) run(ctx context.Context, store dueq.Store, r *moveReport) error {
	if m.dryRun {
		m.pace.perSecond = 0
	}
	some := func(ctx context.Context, names []string) error { return m.some(ctx, store, names, r) }
	if !m.all {
		return m.pace.each(ctx, m.members, some)
	}
	scheduled := dueq.ListQuery{Queue: m.queue, State: dueq.StateScheduled}
	err := eachPage(ctx, store, scheduled, func(tasks []dueq.Info) error {
		return m.pace.each(ctx, members(tasks), some)
	})
	if err != nil {
		return err
	}
	active := dueq.ListQuery{Queue: m.queue, State: dueq.StateActive}
	return eachPage(ctx, store, active, func(tasks []dueq.Info) error {
		for _, t := range tasks {
			if !t.Again { // those were among the scheduled ones
				r.left(t.Member, dueq.ErrRunning)
			}
		}
		return nil
	})
}

// some moves up to moveChunk tasks: read here, schedule there, delete here.
func (m *moving) some(ctx context.Context, store dueq.Store, names []string, r *moveReport) error {
	infos, err := store.Get(ctx, m.queue, names)
	if err != nil {
		return err
	}
	var moves []dueq.Info
	for _, info := range infos {
		if why := movable(info); why != nil {
			r.left(info.Member, why)
			continue
		}
		moves = append(moves, info)
	}
	if len(moves) == 0 {
		return nil
	}
	there, err := store.Get(ctx, m.dest, members(moves))
	if err != nil {
		return err
	}
	if m.dryRun {
		m.foresee(moves, there, r)
		return nil
	}
	outcomes, err := m.copy(ctx, store, moves)
	if err != nil {
		return err
	}
	return m.remove(ctx, store, moves, there, outcomes, r)
}

// movable says why a task cannot be moved, or nil.
func movable(info dueq.Info) error {
	switch {
	case info.State == dueq.StateNone:
		return dueq.ErrNotFound
	case info.State == dueq.StateActive:
		return dueq.ErrRunning
	case info.State == dueq.StateDead:
		return dueq.ErrDead
	case info.Malformed != nil:
		return info.Malformed
	}
	return dueq.At(info.Due).Validate()
}

func (m *moving) copy(ctx context.Context, store dueq.Store, moves []dueq.Info) ([]dueq.Outcome, error) {
	items := make([]dueq.Item, len(moves))
	for i, info := range moves {
		items[i] = dueq.Item{Queue: m.dest, Task: info.Task, When: dueq.At(info.Due), IfExists: m.ifExists}
	}
	return dueq.NewClient(store, dueq.ClientOptions{MemberMax: dueq.MemberMax}).ScheduleAll(ctx, items)
}

// remove takes from QUEUE what DEST has now.
func (m *moving) remove(ctx context.Context, store dueq.Store, moves, there []dueq.Info, outcomes []dueq.Outcome, r *moveReport) error {
	var copied []dueq.Info
	var fresh []bool // the copy is new, so that it can be taken back
	for i, info := range moves {
		o := outcomes[i]
		if why := m.unsettled(o, info, there[i]); why != nil {
			r.left(info.Member, why)
			continue
		}
		copied, fresh = append(copied, info), append(fresh, o.Status == dueq.StatusScheduled)
	}
	if len(copied) == 0 {
		return nil
	}
	removed, err := store.Change(ctx, m.queue, dueq.OpDelete, asRead(copied))
	if err != nil {
		return err
	}
	var back []dueq.Info
	for i, o := range removed {
		switch {
		case o.Status == dueq.StatusDone:
			r.Counts["moved"]++
		case fresh[i]:
			back = append(back, copied[i])
			r.left(copied[i].Member, changeError(dueq.OpDelete, o))
		default:
			r.left(copied[i].Member, fmt.Errorf("%w; it is in %s too", changeError(dueq.OpDelete, o), m.dest))
		}
	}
	return m.takeBack(ctx, store, back, r)
}

// unsettled says why DEST does not have the task as it should, or nil.
func (m *moving) unsettled(o dueq.Outcome, info, there dueq.Info) error {
	if err := o.Error(); err != nil {
		return err
	}
	if o.Status == dueq.StatusKept && m.ifExists == dueq.Keep && !sameTask(info, there) {
		return errDiffers
	}
	return nil
}

var errDiffers = &failure{"is in the other queue with another due time or body", dueq.ErrChanged}

func sameTask(a, b dueq.Info) bool {
	return a.Due.Equal(b.Due) && a.HasBody == b.HasBody && string(a.Body) == string(b.Body)
}

// takeBack undoes new copies of tasks that turned out to run, to be gone or to
// have changed: what became of them in QUEUE counts.
func (m *moving) takeBack(ctx context.Context, store dueq.Store, copies []dueq.Info, r *moveReport) error {
	if len(copies) == 0 {
		return nil
	}
	outcomes, err := store.Change(ctx, m.dest, dueq.OpDelete, asRead(copies))
	if err != nil {
		return err
	}
	for i, o := range outcomes {
		if o.Status != dueq.StatusDone {
			r.note(copies[i].Member, "its copy has begun to run in "+m.dest)
		}
	}
	return nil
}

// asRead are targets that hold only while the tasks are scheduled as they were
// read. Of a task without a body the body cannot be asked for.
func asRead(infos []dueq.Info) []dueq.Target {
	targets := make([]dueq.Target, len(infos))
	for i, info := range infos {
		targets[i] = dueq.Target{Member: info.Member, State: dueq.StateScheduled, Due: info.Due, Body: info.Body}
	}
	return targets
}

// foresee tells what some would do.
func (m *moving) foresee(moves, there []dueq.Info, r *moveReport) {
	for i, info := range moves {
		if exists := there[i].State == dueq.StateScheduled || there[i].Again; exists && m.ifExists == dueq.Keep && !sameTask(info, there[i]) {
			r.left(info.Member, errDiffers)
			continue
		}
		r.Counts["moved"]++
	}
}

// moveReport is what a move did.
type moveReport struct {
	Queue    string         `json:"queue"`
	Dest     string         `json:"dest"`
	DryRun   bool           `json:"dry_run"`
	Counts   map[string]int `json:"counts"`   // moved, and by status those that were left
	Left     []leftTask     `json:"left"`     // the first 1,000
	Complete bool           `json:"complete"` // false when it was interrupted or failed

	all   bool
	first error // of those that were left
}

type leftTask struct {
	Member string `json:"member"`
	Status string `json:"status"`
	Reason string `json:"reason"`
}

func (r *moveReport) left(member string, why error) {
	if r.all && errors.Is(why, dueq.ErrNotFound) {
		return // it ran or was cancelled since it was listed
	}
	r.Counts[leftStatus(why)]++
	if r.first == nil {
		r.first = fmt.Errorf("%s: %w", member, why)
	}
	if len(r.Left) < leftShown {
		r.Left = append(r.Left, leftTask{member, leftStatus(why), why.Error()})
	}
}

// note adds to the reason of a task that was left.
func (r *moveReport) note(member, text string) {
	for i := range r.Left {
		if r.Left[i].Member == member {
			r.Left[i].Reason += "; " + text
		}
	}
}

func leftStatus(why error) string {
	for status, err := range map[string]error{
		"differs": errDiffers, "not_found": dueq.ErrNotFound, "running": dueq.ErrRunning, "dead": dueq.ErrDead,
	} {
		if errors.Is(why, err) {
			return status
		}
	}
	if errors.Is(why, dueq.ErrChanged) {
		return "changed"
	}
	return "refused"
}

func (r *moveReport) table(w io.Writer) {
	for _, t := range r.Left {
		row(w, t.Member, t.Status, short(t.Reason))
	}
	summary := fmt.Sprintf("moved %d tasks from %s to %s", r.Counts["moved"], r.Queue, r.Dest)
	if r.DryRun {
		summary = "dry run: would have " + summary
	}
	for _, status := range slices.Sorted(maps.Keys(r.Counts)) {
		if status != "moved" {
			summary += fmt.Sprintf(", left %d %s", r.Counts[status], status)
		}
	}
	row(w, summary)
}

// error is that of the first task that was left.
func (r *moveReport) error() error {
	n := 0
	for status, count := range r.Counts {
		if status != "moved" {
			n += count
		}
	}
	if n == 0 {
		return nil
	}
	is := dueq.ErrChanged
	if r.Counts["not_found"] > 0 {
		is = dueq.ErrNotFound
	}
	return &failure{fmt.Sprintf("%d of %d tasks were left, such as %v", n, n+r.Counts["moved"], r.first), is}
}
