package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"strings"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/config"
	"github.com/dueq/dueq/internal/openstore"
	"github.com/spf13/cobra"
)

// app is one run of the command line, with all that it touches of the world.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(name string) string
	open           func(ctx context.Context, url, prefix string) (dueq.Store, error)
	environ        func() []string       // all of the environment, as NAME=value
	exit           func(code int)        // at the second signal
	terminal       func(stream any) bool // nil asks the system

	url, prefix, file, format string // global flags

	opened  dueq.Store // by store, closed at the end of run
	scratch string     // a directory that goes at the end of run
	running bool       // the command line was in order and its command began
}

const rootHelp = `dueq is a delay queue on Redis or in a file: a task is scheduled now and handled when it is due.

Without --store or DUEQ_STORE it uses a file in your data directory, which all
your terminals share. To share queues between machines, name a server, the same
in every terminal:

  export DUEQ_STORE=redis://127.0.0.1:6379

Data goes to stdout, talk to stderr. Exit codes: 0 done, 1 failed, 2 wrong
usage or input, 3 not found, 4 conflict (running, dead, changed),
5 store unavailable.

Durations are written 30m, 1.5s, 7d12h; times 2026-12-01T08:00:00Z, with an
offset, or as Unix milliseconds. A MEMBER is <id>[:<kind>][:p<0-9>][#<trace>].`

const rootExample = `  dueq demo
  dueq work order:close                                            # in one terminal
  dueq schedule order:close order_123456:pay_timeout --in 30m      # in another`

// run executes one command line and returns its exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(append([]string{}, args...)) // never nil, which means os.Args
	cmd, err := root.ExecuteContextC(ctx)
	if closeErr := a.close(); err == nil {
		err = closeErr
	}
	if err == nil {
		return 0
	}
	switch {
	case a.running:
	case cmd == root && len(args) > 0 && !strings.HasPrefix(args[0], "-"):
		err = unknownCommand(root, args[0]) // whose flags cobra found unknown first
	default: // cobra refused it
		err = usageError(cmd, err)
	}
	for _, one := range each(err) {
		fmt.Fprintln(a.stderr, escape(errorLine(cmd, one)))
	}
	return dueq.ExitCode(err)
}

// each returns the errors that get a line of their own.
func each(err error) []error {
	var problems config.Problems
	if errors.As(err, &problems) {
		return problems.Unwrap()
	}
	return []error{err}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "dueq",
		Short:         "A delay queue: scheduled now, handled when due",
		Long:          rootHelp,
		Example:       rootExample,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE:          helpOrUnknown,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	flags := root.PersistentFlags()
	flags.StringVar(&a.url, "store", "", "`URL` of the store: redis://HOST:PORT, redis+cluster://HOST:PORT,…, redis+sentinel://HOST:PORT,…/MASTER, rediss… for TLS, http://HOST:PORT or https:// of a server, sqlite:PATH, or memory: which ends with the command (default $DUEQ_STORE, else a file in your data directory)")
	flags.Var(newValue(&a.prefix, "", "TEXT", parsePrefix), "prefix", "what the keys in Redis begin with (default $DUEQ_PREFIX, else what the URL says, else delay:)")
	flags.StringVar(&a.file, "config", "", "`FILE` that names the store, and for serve the rest (default $DUEQ_CONFIG, else none)")
	flags.VarP(newValue(&a.format, "table", "FORMAT", oneOf("output", "table", "json")), "output", "o", "table or json")
	root.AddCommand(
		a.demo(), a.serve(), a.schedule(), a.work(), a.forward(),
		a.cancel(), a.reschedule(), a.runNow(), a.get(), a.list(),
		a.queues(), a.stats(), a.dead(), a.move(), a.delete(), a.drain(), a.bench(),
		a.pause(), a.resume(), a.settings(),
		a.token(), a.version(),
	)
	root.SetHelpCommand(helpCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args, completion.RunE = cobra.ArbitraryArgs, helpOrUnknown
		addCompletionExamples(completion)
	}
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	a.noteStart(root)
	return root
}

// noteStart makes every command say that it began. An error before that is
// about the usage, also where cobra has no type for it.
func (a *app) noteStart(cmd *cobra.Command) {
	if runE := cmd.RunE; runE != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.running = true
			return runE(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		a.noteStart(sub)
	}
}

// store opens the store that the command line, the environment or the file
// names, once.
func (a *app) store(ctx context.Context) (dueq.Store, error) {
	if a.opened != nil {
		return a.opened, nil
	}
	cfg, err := a.config(a.storeEnviron(), nil)
	if err != nil {
		return nil, err
	}
	if cfg.IsDefault("store") {
		a.say("using %s; --store or DUEQ_STORE names another store", cfg.Store)
	}
	store, err := a.open(ctx, openstore.WithToken(cfg.Store, a.getenv), cfg.Prefix)
	if err != nil {
		return nil, cfg.Blame(err)
	}
	a.opened = store
	return store, nil
}

// storeEnviron is what commands heed that only need a store.
func (a *app) storeEnviron() []string {
	return []string{"DUEQ_STORE=" + a.getenv("DUEQ_STORE"), "DUEQ_PREFIX=" + a.getenv("DUEQ_PREFIX")}
}

// config reads what is configured. The flags of a command are by key; the
// global ones are added.
func (a *app) config(environ []string, flags map[string]string) (config.Config, error) {
	all := map[string]string{}
	maps.Copy(all, flags)
	for key, text := range map[string]string{"store": a.url, "prefix": a.prefix} {
		if text != "" {
			all[key] = text
		}
	}
	fallback, unknown := openstore.Default(a.getenv, runtime.GOOS)
	cfg, err := config.Load(config.Sources{
		Store: fallback, File: cmp.Or(a.file, a.getenv("DUEQ_CONFIG")), Env: environ, Flags: all,
	})
	if err == nil && cfg.Store == "" {
		err = &dueq.FieldError{Field: "store", Reason: fmt.Sprintf("is not set, and %v: give --store URL or set DUEQ_STORE, for example --store redis://127.0.0.1:6379", unknown)}
	}
	return cfg, err
}

func (a *app) close() error {
	var err error
	if a.opened != nil {
		err = a.opened.Close()
	}
	if a.scratch != "" {
		err = errors.Join(err, os.RemoveAll(a.scratch))
	}
	return err
}

// helpOrUnknown is the run of a command that only has subcommands.
func helpOrUnknown(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	if !cmd.HasParent() {
		return cmd.Help()
	}
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	return usageError(cmd, fmt.Errorf("a command is missing: %s", strings.Join(names, ", ")))
}

func unknownCommand(cmd *cobra.Command, name string) error {
	text := fmt.Sprintf("unknown command %q", name)
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		text += ", perhaps " + strings.Join(near, " or ")
	}
	return usageError(cmd, errors.New(text))
}

// helpCommand is cobra's, but an unknown command is an error.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command",
		Example: `  dueq help schedule
  dueq help dead requeue`,
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) > 0 {
				return unknownCommand(topic, rest[0])
			}
			if err != nil {
				return usageError(cmd, err)
			}
			return topic.Help()
		},
	}
}

// failure is an error with its own text that is, to errors.Is, another one.
type failure struct {
	text string
	is   error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.is }

// usageError makes err exit with 2 and point to the help.
func usageError(cmd *cobra.Command, err error) error {
	return &failure{fmt.Sprintf("%v (see %s --help)", err, cmd.CommandPath()), dueq.ErrInvalid}
}

// errorLine is the one line on stderr: dueq: <what>: <reason>.
func errorLine(cmd *cobra.Command, err error) string {
	path := strings.Fields(cmd.CommandPath())
	if _, ok := err.(*dueq.CallError); ok || len(path) == 1 {
		return "dueq: " + err.Error() // it says what was done itself
	}
	return "dueq: " + strings.Join(path[1:], " ") + ": " + err.Error()
}
