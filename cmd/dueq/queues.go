package main

import (
	"io"

	"github.com/dueq/dueq/internal/view"
	"github.com/spf13/cobra"
)

func (a *app) queues() *cobra.Command {
	return &cobra.Command{
		Use:     "queues",
		Short:   "List the queues",
		Long:    `List the queues that the store knows, with their counts.`,
		Example: `  dueq queues`,
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.printStats(cmd, nil, func(w io.Writer, queues []view.Stats) {
				row(w, "QUEUE", "SCHEDULED", "OVERDUE", "ACTIVE", "DEAD", "PAUSED", "NEXT DUE")
				for _, v := range queues {
					if v.Error != "" {
						row(w, v.Queue, "error: "+v.Error)
						continue
					}
					row(w, v.Queue, v.Scheduled, v.Overdue, v.Active, v.Dead, yesNo(v.Paused), due(v.NextDueAt, v.Now))
				}
			})
		},
	}
}
