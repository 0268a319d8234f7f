package main

import (
	"context"
	"fmt"
	"io"

	"github.com/dueq/dueq"
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
there are more than --limit, stderr (or "cursor" in JSON) says how to go on.`,
		Example: `  dueq list order:close
  dueq list order:close --state overdue --limit 1000 -o json`,
		Args:              exactly("QUEUE"),
		ValidArgsFunction: a.completeQueue,
	}
	states := []string{"scheduled", "overdue", "active", "dead"}
	cmd.Flags().Var(newValue(&state, "scheduled", "STATE", oneOf("state", states...)), "state", "scheduled, overdue, active or dead")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
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
}

func (p *pageFlags) add(cmd *cobra.Command) {
	cmd.Flags().Var(newValue(&p.limit, "100", "N", between("limit", 1, dueq.MaxItems)), "limit", "most tasks to list, up to 1000")
	cmd.Flags().StringVar(&p.cursor, "cursor", "", "go on where the list before ended")
}

// listView is part of a list.
type listView struct {
	Queue  string     `json:"queue"`
	State  string     `json:"state"`
	Tasks  []taskView `json:"tasks"`
	Cursor string     `json:"cursor"` // empty at the end
}

func (a *app) printList(cmd *cobra.Command, query dueq.ListQuery, state string, page pageFlags) error {
	store, err := a.store(cmd.Context())
	if err != nil {
		return err
	}
	query.Cursor = page.cursor
	infos, cursor, err := listUpTo(cmd.Context(), store, query, page.limit)
	if err != nil {
		return err
	}
	view := listView{query.Queue, state, make([]taskView, len(infos)), cursor}
	for i, info := range infos {
		view.Tasks[i] = viewTask(query.Queue, info)
	}
	if err := a.print(view, func(w io.Writer) { tableList(w, query.State, view.Tasks) }); err != nil {
		return err
	}
	if cursor != "" {
		a.say("there are more: --cursor %q", cursor)
	}
	return nil
}

// listUpTo collects a page of limit tasks also where the store's pages are
// thin because of a filter.
func listUpTo(ctx context.Context, store dueq.Store, query dueq.ListQuery, limit int) ([]dueq.Info, string, error) {
	var infos []dueq.Info
	for {
		query.Limit = limit - len(infos)
		page, err := store.List(ctx, query)
		if err != nil {
			return nil, "", err
		}
		infos = append(infos, page.Tasks...)
		if page.Cursor == "" || len(infos) >= limit {
			return infos, page.Cursor, nil
		}
		query.Cursor = page.Cursor
	}
}

func tableList(w io.Writer, state dueq.State, tasks []taskView) {
	when := map[dueq.State]string{dueq.StateScheduled: "DUE", dueq.StateActive: "LEASE ENDS", dueq.StateDead: "DIED"}[state]
	row(w, "MEMBER", when, "FAILURES", "ROUND", "LAST ERROR")
	for _, v := range tasks {
		at := map[dueq.State]instant{dueq.StateScheduled: v.DueAt, dueq.StateActive: v.LeaseEndsAt, dueq.StateDead: v.DiedAt}[state]
		text := v.LastError
		if text == "" && v.Malformed != "" {
			text = fmt.Sprintf("malformed: %s", v.Malformed)
		}
		row(w, v.Member, at, v.Failures, v.Round, orDash(short(text)))
	}
}
