package main

import (
	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

func (a *app) reschedule() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reschedule QUEUE MEMBER --in DURATION | --at TIME",
		Short: "Give a scheduled task a new due time",
		Long:  `Give a scheduled task a new due time; body and failures stay as they are.`,
		Example: `  dueq reschedule order:close order_123456:pay_timeout --in 1h
  dueq reschedule order:close order_123456:pay_timeout --at 2026-12-01T08:00:00+01:00`,
		Args:              exactly("QUEUE", "MEMBER"),
		ValidArgsFunction: a.completeQueue,
	}
	when := whenFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.change(cmd, args, dueq.OpReschedule, *when)
	}
	return cmd
}
