package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
	"github.com/spf13/cobra"
)

const workHelp = `Run a command for each due task of some queues, or print the tasks.

The command has the body on stdin and DUEQ_QUEUE, DUEQ_ID, DUEQ_KIND,
DUEQ_ATTEMPT, DUEQ_ROUND and DUEQ_DUE in its environment. Its exit code decides:
  0   done, the task is gone
  75  once more after --again, which is not a failure
  65  a dead letter at once
  else a failure, tried again by the settings of the queue
The last KiB of its stderr is kept as the error. It may run as long as the
timeout of the queue (3s by default), then it gets SIGTERM and 2 s later
SIGKILL, with all of its process group; what exits 0 after that has failed.

Without a command each task is one line of JSON on stdout, then done. When
stdout is closed, the task that could not be written is tried again later and
the exit code is 1.

SIGINT or SIGTERM stops: nothing more is claimed, running commands have --grace
to end, then the exit code is 0. A second one kills the commands and exits at
once with 1; their tasks come back when their leases end.`

// workOptions are the flags of work.
type workOptions struct {
	again, grace, runFor time.Duration
	concurrency          int
	logFormat            string
	logLevel             slog.Level
}

func (a *app) work() *cobra.Command {
	var opts workOptions
	cmd := &cobra.Command{
		Use:   "work QUEUE… [-- COMMAND ARG…]",
		Short: "Run a command for each due task, or print the tasks",
		Long:  workHelp,
		Example: `  dueq work order:close -- ./close-order.sh
  dueq work order:close sms:send --concurrency 4 -- sh -c 'echo "$DUEQ_ID is due"'
  dueq work order:close | jq -r .id`,
		Args:              workArgs,
		ValidArgsFunction: a.completeQueues,
		RunE: func(cmd *cobra.Command, args []string) error {
			queues, command := splitAtDash(cmd, args)
			if len(command) > 0 {
				return a.workCommand(cmd.Context(), queues, command, opts)
			}
			return a.workPrint(cmd.Context(), queues, opts)
		},
	}
	flags := cmd.Flags()
	flags.Var(newValue(&opts.again, "5s", "DURATION", positive("again")), "again", "delay after exit code 75")
	flags.Var(newValue(&opts.concurrency, "", "N", between("concurrency", 1, 10_000)), "concurrency", "tasks running at once per queue (default the setting of the queue)")
	flags.Var(newValue(&opts.grace, "30s", "DURATION", notNegative("grace")), "grace", "how long to wait for running tasks at the end")
	flags.Var(newValue(&opts.runFor, "", "DURATION", positive("for")), "for", "stop after this long (default never)")
	flags.Var(newValue(&opts.logFormat, "text", "FORMAT", oneOf("log-format", "text", "json")), "log-format", "text or json, on stderr")
	flags.Var(newValue(&opts.logLevel, "info", "LEVEL", parseLevel), "log-level", "debug, info, warn or error")
	return cmd
}

// splitAtDash returns what stands before and after --.
func splitAtDash(cmd *cobra.Command, args []string) (before, after []string) {
	if n := cmd.ArgsLenAtDash(); n >= 0 {
		return args[:n], args[n:]
	}
	return args, nil
}

func workArgs(cmd *cobra.Command, args []string) error {
	queues, command := splitAtDash(cmd, args)
	if err := atLeast("QUEUE")(cmd, queues); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, queue := range queues {
		if seen[queue] {
			return fmt.Errorf("queue %s is given twice", queue)
		}
		seen[queue] = true
	}
	if cmd.ArgsLenAtDash() >= 0 && len(command) == 0 {
		return fmt.Errorf("COMMAND is missing after --")
	}
	return nil
}

func parseLevel(s string) (slog.Level, error) {
	var level slog.Level
	if _, err := oneOf("log-level", "debug", "info", "warn", "error")(s); err != nil {
		return level, err
	}
	return level, level.UnmarshalText([]byte(s))
}

func (a *app) workCommand(ctx context.Context, queues, args []string, opts workOptions) error {
	c, err := newCommand(args, opts.again, a.stdout, a.stderr)
	if err != nil {
		return err
	}
	ctx, release := a.stopOnSignal(ctx, c.killAll)
	defer release()
	return a.runWorker(ctx, queues, c, opts, dueq.Observer{})
}

func (a *app) workPrint(ctx context.Context, queues []string, opts workOptions) error {
	// Noticed SIGPIPE does not end the process, and the task it hit is kept.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)

	ctx, release := a.stopOnSignal(ctx, func() {})
	defer release()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p := &printer{out: a.stdout, stop: stop}
	if err := a.runWorker(ctx, queues, p, opts, dueq.Observer{Started: p.started}); err != nil {
		return err
	}
	return p.failure()
}

func (a *app) runWorker(ctx context.Context, queues []string, h dueq.Handler, opts workOptions, observer dueq.Observer) error {
	store, err := a.store(ctx)
	if err != nil {
		return err
	}
	if opts.runFor > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, opts.runFor)
		defer cancel()
	}
	if opts.grace == 0 {
		opts.grace = -1 // none, where zero is the default
	}
	w := dueq.NewWorker(store, dueq.WorkerOptions{
		Concurrency: opts.concurrency, Grace: opts.grace,
		Logger: a.logger(opts.logFormat, opts.logLevel), Observer: observer,
	})
	for _, queue := range queues {
		w.Handle(queue, dueq.AnyKind, h)
	}
	return w.Run(ctx)
}

func (a *app) logger(format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(a.stderr, options))
	}
	return slog.New(slog.NewTextHandler(a.stderr, options))
}

// printer is the handler that prints tasks. It stops the worker when it cannot.
type printer struct {
	stop   context.CancelFunc
	drifts sync.Map // *dueq.Task → time.Duration, from the start to the line

	mu  sync.Mutex // guards out and err
	out io.Writer
	err error // why out takes no more
}

// taskLine is a delivery as JSON shows it.
type taskLine struct {
	view.Delivery
	DriftMs int64 `json:"drift_ms"`
	payload
}

func (p *printer) started(t *dueq.Task, drift time.Duration) { p.drifts.Store(t, drift) }

func (p *printer) Handle(_ context.Context, t *dueq.Task) error {
	line, err := json.Marshal(taskLine{view.NewDelivery(t), p.drift(t).Milliseconds(), newPayload(t.Body)})
	if err != nil {
		return dueq.Dead(err)
	}
	if err := p.write(append(escapeJSON(line), '\n')); err != nil {
		p.stop()
		return dueq.RetryIn(time.Second, fmt.Errorf("not printed: %w", err))
	}
	return nil
}

func (p *printer) drift(t *dueq.Task) time.Duration {
	drift, _ := p.drifts.LoadAndDelete(t)
	d, _ := drift.(time.Duration)
	return d
}

// write fails for good once it has failed: half a line may be out.
func (p *printer) write(line []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		_, p.err = p.out.Write(line)
	}
	return p.err
}

func (p *printer) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return fmt.Errorf("stdout: %w", p.err)
	}
	return nil
}
