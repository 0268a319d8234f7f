package main

import (
	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

func (a *app) runNow() *cobra.Command {
	return &cobra.Command{
		Use:               "run-now QUEUE MEMBER",
		Short:             "Make a scheduled task due at once",
		Long:              `Make a scheduled task due at once: reschedule with a delay of zero.`,
		Example:           `  dueq run-now order:close order_123456:pay_timeout`,
		Args:              exactly("QUEUE", "MEMBER"),
		ValidArgsFunction: a.completeQueue,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.change(cmd, args, dueq.OpReschedule, dueq.In(0))
		},
	}
}
