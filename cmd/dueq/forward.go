package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

const forwardHelp = `Move tasks of a queue to the end of a Redis list or stream as they come due, in
one step each time, so that consumers in any language take them with BLPOP or
XREADGROUP. An element of a list is the member and, if there is a body, a newline
and the body; an entry of a stream has the fields member, due_ms and, if there
is one, body.

What was moved is gone from the queue: what becomes of it is up to its consumer.
--to list and --to stream take the key {K}:out for the queue's own key K, as
{delay:order:close}:out. Without --to the setting forward of the queue counts,
also when it changes. In a Cluster the key must have {K} in it.

It runs until SIGINT or SIGTERM and says on stderr now and then how many tasks
it has moved. Several may run at once, on several machines: they share the work.`

// forwardOptions are the flags of forward.
type forwardOptions struct {
	to        string
	logFormat string
	logLevel  slog.Level
}

func (a *app) forward() *cobra.Command {
	var opts forwardOptions
	cmd := &cobra.Command{
		Use:   "forward QUEUE",
		Short: "Move due tasks to a Redis list or stream",
		Long:  forwardHelp,
		Example: `  dueq forward order:close --to list        # redis-cli BLPOP {delay:order:close}:out 0
  dueq forward order:close --to stream:{delay:order:close}:jobs
  dueq settings order:close set forward=list:jobs && dueq forward order:close`,
		Args:              exactly("QUEUE"),
		ValidArgsFunction: a.completeQueue,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runForward(cmd.Context(), args[0], opts)
		},
	}
	flags := cmd.Flags()
	flags.Var(newValue(&opts.to, "", "DESTINATION", parseDestination), "to", "list:KEY, stream:KEY, list or stream (default the setting forward of the queue)")
	flags.Var(newValue(&opts.logFormat, "text", "FORMAT", oneOf("log-format", "text", "json")), "log-format", "text or json, on stderr")
	flags.Var(newValue(&opts.logLevel, "info", "LEVEL", parseLevel), "log-level", "debug, info, warn or error")
	_ = cmd.RegisterFlagCompletionFunc("to", cobra.FixedCompletions([]string{"list", "stream", "list:", "stream:"}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	return cmd
}

func parseDestination(s string) (string, error) {
	if _, _, err := dueq.ParseDestination(s); err != nil {
		return "", err
	}
	return s, nil
}

// forwardView is how a forwarder ended.
type forwardView struct {
	Queue     string `json:"queue"`
	To        string `json:"to"`        // empty is the setting of the queue
	Forwarded int64  `json:"forwarded"` // as far as answers came
	TookMilli int64  `json:"took_ms"`
}

func (a *app) runForward(ctx context.Context, queue string, opts forwardOptions) error {
	store, err := a.store(ctx)
	if err != nil {
		return err
	}
	ctx, release := a.stopOnSignal(ctx, func() {})
	defer release()
	var moved atomic.Int64
	log, began := a.logger(opts.logFormat, opts.logLevel), time.Now()
	told := tellForwarded(ctx, log.With("queue", queue), &moved)
	err = dueq.Forward(ctx, store, queue, dueq.ForwardOptions{To: opts.to, Logger: log, Observer: dueq.Observer{
		Call: func(op, _ string, n int, _ time.Duration, _ error) {
			if op == "forward" {
				moved.Add(int64(n))
			}
		},
	}})
	told()
	if err != nil {
		return err
	}
	view := forwardView{queue, opts.to, moved.Load(), time.Since(began).Milliseconds()}
	return a.print(view, func(w io.Writer) {
		row(w, fmt.Sprintf("forwarded %d tasks of %s in %.1f s", view.Forwarded, view.Queue, float64(view.TookMilli)/1000))
	})
}

// tellForwarded logs how many tasks were moved, now and then while there are
// more, until the returned function is called.
func tellForwarded(ctx context.Context, log *slog.Logger, moved *atomic.Int64) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for last := int64(0); ; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if now := moved.Load(); now != last {
				log.Info("forwarding", "tasks", now)
				last = now
			}
		}
	}()
	return func() { cancel(); <-done }
}
