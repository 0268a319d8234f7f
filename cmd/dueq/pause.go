package main

import (
	"io"

	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

func (a *app) pause() *cobra.Command {
	return a.setPaused("pause", "on", "Hand out no more tasks of a queue",
		`Hand out no more tasks of a queue. Scheduling goes on, and so do tasks that are
running. It takes effect in all workers within a second.`)
}

func (a *app) resume() *cobra.Command {
	return a.setPaused("resume", "off", "Hand out the tasks of a queue again",
		`Hand out the tasks of a paused queue again.`)
}

func (a *app) setPaused(name, value, short, long string) *cobra.Command {
	return &cobra.Command{
		Use:               name + " QUEUE",
		Short:             short,
		Long:              long,
		Example:           "  dueq " + name + " order:close",
		Args:              exactly("QUEUE"),
		ValidArgsFunction: a.completeQueue,
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := a.store(cmd.Context())
			if err != nil {
				return err
			}
			set, err := store.SetSettings(cmd.Context(), args[0], dueq.SettingsPatch{"paused": value})
			if err != nil {
				return err
			}
			view := struct {
				Queue  string `json:"queue"`
				Paused bool   `json:"paused"`
			}{args[0], set.Paused}
			return a.print(view, func(w io.Writer) {
				row(w, map[bool]string{true: "paused ", false: "resumed "}[set.Paused]+args[0])
			})
		},
	}
}
