package main

import (
	"fmt"
	"io"

	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

func (a *app) get() *cobra.Command {
	return &cobra.Command{
		Use:   "get QUEUE MEMBER",
		Short: "Show one task",
		Example: `  dueq get order:close order_123456:pay_timeout
  dueq get -o json order:close order_123456:pay_timeout | jq -r .due_at`,
		Args:              exactly("QUEUE", "MEMBER"),
		ValidArgsFunction: a.completeQueue,
		RunE: func(cmd *cobra.Command, args []string) error {
			queue, member := args[0], args[1]
			store, err := a.store(cmd.Context())
			if err != nil {
				return err
			}
			infos, err := store.Get(cmd.Context(), queue, []string{member})
			if err != nil {
				return err
			}
			if infos[0].State == dueq.StateNone {
				return &dueq.CallError{Op: "get", Queue: queue, Err: fmt.Errorf("%s: %w", member, dueq.ErrNotFound)}
			}
			view := viewTask(queue, infos[0])
			return a.print(view, func(w io.Writer) { tableTask(w, view) })
		},
	}
}

func tableTask(w io.Writer, v taskView) {
	row(w, "queue", v.Queue)
	row(w, "member", v.Member)
	if v.Malformed != "" {
		row(w, "malformed", v.Malformed)
	} else {
		row(w, "id", v.ID)
		row(w, "kind", orDash(v.Kind))
	}
	if v.Priority != nil {
		row(w, "priority", *v.Priority)
	}
	if v.Trace != "" {
		row(w, "trace", v.Trace)
	}
	row(w, "state", stateText(v))
	row(w, "due", v.DueAt)
	if v.State == dueq.StateActive.String() {
		row(w, "lease ends", v.LeaseEndsAt)
	}
	if v.State == dueq.StateDead.String() {
		row(w, "died", v.DiedAt)
	}
	row(w, "failures", v.Failures)
	row(w, "round", v.Round)
	row(w, "last error", orDash(v.LastError))
	row(w, "body", bodyText(v))
}

func stateText(v taskView) string {
	text := v.State
	if v.ScheduledAgain {
		text += ", scheduled again"
	}
	if v.Cancelled {
		text += ", cancelled: this run is its last"
	}
	return text
}

func bodyText(v taskView) string {
	switch {
	case v.Body != nil:
		return fmt.Sprintf("%q", *v.Body)
	case v.BodyBase64 != nil:
		return fmt.Sprintf("%d bytes: %q", len(v.BodyBase64), v.BodyBase64)
	}
	return "-"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
