package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
	"github.com/spf13/cobra"
)

func (a *app) list() *cobra.Command {
	var (
		state string
		page  pageFlags
	)
	cmd := &cobra.Command{
		Use:   "list QUEUE",
		Short: "List the tasks of a queue",
		Long: `List the tasks of a queue in one state, by due time, end of lease or death. When
there are more than --limit, stderr (or "cursor" in JSON) says how to go on;
--all lists them to the end, page by page.`,
		Example: `  dueq list order:close
  dueq list order:close --all -o json | jq -r '.tasks[].id'
  dueq list order:close --state overdue --limit 1000 -o json`,
		Args:              exactly("QUEUE"),
		ValidArgsFunction: a.completeQueue,
	}
	states := []string{"scheduled", "overdue", "active", "dead"}
	cmd.Flags().Var(newValue(&state, "scheduled", "STATE", oneOf("state", states...)), "state", "scheduled, overdue, active or dead")
	completeWords(cmd, "state", states...)
	page.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		query := dueq.ListQuery{Queue: args[0], State: dueq.StateScheduled}
		switch state {
		case "overdue":
			query.Overdue = true
		case "active":
			query.State = dueq.StateActive
		case "dead":
			query.State = dueq.StateDead
		}
		return a.printList(cmd, query, state, page)
	}
	return cmd
}

// pageFlags say which part of a list is wanted.
type pageFlags struct {
	limit  int
	cursor string
	all    bool
	kind   *string // only this kind; nil is any
}

func (p *pageFlags) add(cmd *cobra.Command) {
	cmd.Flags().Var(newValue(&p.limit, "100", "N", between("limit", 1, dueq.MaxItems)), "limit", "most tasks to list, up to 1000")
	cmd.Flags().StringVar(&p.cursor, "cursor", "", "go on where the list before ended")
	cmd.Flags().BoolVar(&p.all, "all", false, "list to the end")
	cmd.Flags().Var(newValue(&p.kind, "", "KIND", parseKind), "kind", "only tasks of this kind; empty is the kind without a name")
	cmd.MarkFlagsMutuallyExclusive("all", "limit")
}

func parseKind(s string) (*string, error) {
	return &s, dueq.Task{ID: "id", Kind: s}.Validate(dueq.MemberMax)
}

// listView is part of a list.
type listView struct {
	listHead
	Tasks []taskView `json:"tasks"`
	listTail
}

type listHead struct {
	Queue string `json:"queue"`
	State string `json:"state"`
}

type listTail struct {
	Cursor string `json:"cursor"` // empty at the end
}

func (a *app) printList(cmd *cobra.Command, query dueq.ListQuery, state string, page pageFlags) error {
	store, err := a.store(cmd.Context())
	if err != nil {
		return err
	}
	query.Cursor = page.cursor
	if page.all {
		return a.printAll(cmd.Context(), store, query, state, page)
	}
	infos, cursor, err := listUpTo(cmd.Context(), store, query, page)
	if err != nil {
		return err
	}
	view := listView{listHead{query.Queue, state}, viewTasks(query.Queue, infos), listTail{cursor}}
	if err := a.print(view, func(w io.Writer) { tableList(w, query.State, view.Tasks, true) }); err != nil {
		return err
	}
	if cursor != "" {
		a.say("there are more: --cursor %q", cursor)
	}
	return nil
}

// printAll prints the pages one by one, so that a queue of any length can be
// listed. Together they are what printList prints of a list that has one page.
func (a *app) printAll(ctx context.Context, store dueq.Store, query dueq.ListQuery, state string, page pageFlags) error {
	page.limit = dueq.MaxItems
	out := &jsonList{out: a.stdout, head: listHead{query.Queue, state}, name: "tasks"}
	for first := true; ; first = false {
		infos, cursor, err := listUpTo(ctx, store, query, page)
		if err != nil {
			return err
		}
		tasks := viewTasks(query.Queue, infos)
		if a.format == "json" {
			err = printPage(out, tasks, cursor == "")
		} else {
			err = a.print(nil, func(w io.Writer) { tableList(w, query.State, tasks, first) })
		}
		if err != nil || cursor == "" {
			return err
		}
		query.Cursor = cursor
	}
}

func printPage(out *jsonList, tasks []taskView, last bool) error {
	for _, v := range tasks {
		if err := out.add(v); err != nil {
			return err
		}
	}
	if last {
		return out.end(listTail{})
	}
	return out.flush()
}

func viewTasks(queue string, infos []dueq.Info) []taskView {
	views := make([]taskView, len(infos))
	for i, info := range infos {
		views[i] = viewTask(queue, info)
	}
	return views
}

// listUpTo collects a page of as many tasks as are wanted also where the
// store's pages are thin because of a filter.
func listUpTo(ctx context.Context, store dueq.Store, query dueq.ListQuery, want pageFlags) ([]dueq.Info, string, error) {
	var infos []dueq.Info
	for {
		query.Limit = want.limit - len(infos)
		page, err := store.List(ctx, query)
		if err != nil {
			return nil, "", err
		}
		infos = append(infos, ofKind(page.Tasks, want.kind)...)
		if page.Cursor == "" || len(infos) >= want.limit {
			return infos, page.Cursor, nil
		}
		query.Cursor = page.Cursor
	}
}

// ofKind leaves out tasks of other kinds; those that are malformed have none.
func ofKind(tasks []dueq.Info, kind *string) []dueq.Info {
	if kind == nil {
		return tasks
	}
	return slices.DeleteFunc(tasks, func(t dueq.Info) bool { return t.Malformed != nil || t.Kind != *kind })
}

func tableList(w io.Writer, state dueq.State, tasks []taskView, header bool) {
	when := map[dueq.State]string{dueq.StateScheduled: "DUE", dueq.StateActive: "LEASE ENDS", dueq.StateDead: "DIED"}[state]
	if header {
		row(w, "MEMBER", when, "FAILURES", "ROUND", "LAST ERROR")
	}
	for _, v := range tasks {
		at := map[dueq.State]view.Instant{dueq.StateScheduled: v.DueAt, dueq.StateActive: v.LeaseEndsAt, dueq.StateDead: v.DiedAt}[state]
		text := v.LastError
		if text == "" && v.Malformed != "" {
			text = fmt.Sprintf("malformed: %s", v.Malformed)
		}
		row(w, v.Member, at, v.Failures, v.Round, orDash(short(text)))
	}
}
