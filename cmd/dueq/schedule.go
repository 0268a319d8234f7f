package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
	"github.com/spf13/cobra"
)

// bodyMost is the largest body that any queue can allow.
const bodyMost = 16 << 20

const scheduleHelp = `Schedule a task. If it is scheduled already it is replaced, body and all, unless
--if-exists says otherwise. A task that runs now will run once more.

With --from, schedule all tasks of a file, in its order. CSV begins with a line
that names the columns: id, one of delay (30m) and due (a time), and, if wanted,
kind, priority and body; an empty field is none. NDJSON has one JSON object a
line, the item of the HTTP API: id, kind, priority, body (JSON) or body_base64,
delay_ms or due_at, if_exists. A line has at most 1 MiB.

A bad line does not keep the others: stderr says its number and what is wrong,
of the first 20, and the exit code is 1. With --strict nothing is scheduled
unless all lines are good. After an interruption, run it again with --if-exists
keep: what is scheduled already stays as it is.`

func (a *app) schedule() *cobra.Command {
	var (
		bodyFlag string
		ifExists dueq.IfExists
		limit    int
		many     fromFlags
	)
	cmd := &cobra.Command{
		Use:   "schedule QUEUE (MEMBER --in DURATION | MEMBER --at TIME | --from FILE)",
		Short: "Schedule a task, or all those of a file",
		Long:  scheduleHelp,
		Example: `  dueq schedule order:close order_123456:pay_timeout --in 30m
  dueq schedule sms:send user_7:welcome --at 2026-12-01T08:00:00Z --body @sms.json
  echo '{"to":7}' | dueq schedule sms:send user_7:welcome --in 2m --body - --if-exists keep
  dueq schedule order:close --from orders.csv --if-exists keep
  mysql -BN … | jq -c … | dueq schedule sms:send --from - --format ndjson --strict`,
		Args:              many.args,
		ValidArgsFunction: a.completeQueue,
	}
	when := addWhen(cmd)
	cmd.Flags().StringVar(&bodyFlag, "body", "", "payload: `TEXT`, @FILE, or - for stdin")
	cmd.Flags().Var(newValue(&ifExists, "replace", "WHAT", dueq.ParseIfExists), "if-exists", "replace, keep, or move only earlier or later")
	cmd.Flags().Var(newValue(&limit, fmt.Sprint(dueq.DefaultMemberMax), "N", between("member-max", 1, dueq.MemberMax)), "member-max", "longest member in bytes, up to 512")
	many.add(cmd)
	completeWords(cmd, "if-exists", ifExistsWords...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if many.from != "" {
			many.ifExists, many.memberMax = ifExists, limit
			return a.scheduleFrom(cmd, args[0], many)
		}
		task, err := dueq.ParseMember(args[1])
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("body") {
			if task.Body, err = a.readBody(bodyFlag); err != nil {
				return err
			}
		}
		store, err := a.store(cmd.Context())
		if err != nil {
			return err
		}
		client := dueq.NewClient(store, dueq.ClientOptions{MemberMax: limit})
		outcome, err := client.Schedule(cmd.Context(), args[0], task, *when, ifExists)
		if err != nil {
			return err
		}
		return a.printOutcome(outcome.Status.String(), args[0], args[1], outcome)
	}
	return cmd
}

// readBody reads a body as --body names it. It is never nil.
func (a *app) readBody(from string) ([]byte, error) {
	in := a.stdin
	switch {
	case strings.HasPrefix(from, "@"):
		file, err := os.Open(from[1:])
		if err != nil {
			return nil, badBody(err)
		}
		defer file.Close()
		in = file
	case from != "-":
		in = strings.NewReader(from)
	}
	body, err := io.ReadAll(io.LimitReader(in, bodyMost+1))
	switch {
	case err != nil:
		return nil, badBody(err)
	case len(body) > bodyMost:
		return nil, fmt.Errorf("body: %w: over %d bytes, which no queue allows", dueq.ErrTooLarge, bodyMost)
	}
	return body, nil
}

func badBody(err error) error {
	if pathErr := (*os.PathError)(nil); errors.As(err, &pathErr) {
		return &dueq.FieldError{Field: "body", Reason: fmt.Sprintf("cannot be read from %s: %v", pathErr.Path, pathErr.Err)}
	}
	return &dueq.FieldError{Field: "body", Reason: fmt.Sprintf("cannot be read: %v", err)}
}

// printOutcome tells people what was done, in one word, and programs the status.
func (a *app) printOutcome(done, queue, member string, o dueq.Outcome) error {
	shown := view.NewOutcome(queue, member, o)
	return a.print(shown, func(w io.Writer) {
		text := fmt.Sprintf("%s %s on %s", done, member, queue)
		if o.Status == dueq.StatusRunning {
			text += ", runs once more"
		}
		if !o.Due.IsZero() {
			text += ", due " + shown.DueAt.String()
		}
		row(w, text)
	})
}
