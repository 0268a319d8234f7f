package main

import (
	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

func (a *app) cancel() *cobra.Command {
	var running bool
	cmd := &cobra.Command{
		Use:   "cancel QUEUE MEMBER",
		Short: "Take a scheduled task away",
		Long: `Take a scheduled task away. If it is running already the exit code is 4, and the
run in progress is its last: no retry, no later schedule. With --running that
run loses its lease, so that its handler is told to end.`,
		Example: `  dueq cancel order:close order_123456:pay_timeout
  dueq cancel --running order:close order_123456:pay_timeout`,
		Args:              exactly("QUEUE", "MEMBER"),
		ValidArgsFunction: a.completeQueue,
		RunE: func(cmd *cobra.Command, args []string) error {
			op := dueq.OpCancel
			if running {
				op = dueq.OpStop
			}
			return a.change(cmd, args, op, dueq.When{})
		},
	}
	cmd.Flags().BoolVar(&running, "running", false, "end the task also when it is running")
	return cmd
}
