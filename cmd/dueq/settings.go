package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
	"github.com/spf13/cobra"
)

func (a *app) settings() *cobra.Command {
	return &cobra.Command{
		Use:   "settings QUEUE [get | set NAME=VALUE…]",
		Short: "Show or change the settings of a queue",
		Long: `Show or change the settings of a queue. A change takes effect in all workers
within a second. The value default takes the default again.

Settings: ` + strings.Join(dueq.SettingNames(), ", "),
		Example: `  dueq settings order:close
  dueq settings order:close set timeout=10s retries=5 retry_jitter=20%
  dueq settings order:close set retries=default`,
		Args:              settingsArgs,
		ValidArgsFunction: a.completeSettings,
		RunE: func(cmd *cobra.Command, args []string) error {
			var patch dueq.SettingsPatch
			if len(args) > 2 {
				var err error
				if patch, err = parsePatch(args[2:]); err != nil {
					return err
				}
			}
			store, err := a.store(cmd.Context())
			if err != nil {
				return err
			}
			var set dueq.Settings
			if patch == nil {
				set, err = store.Settings(cmd.Context(), args[0])
			} else {
				set, err = store.SetSettings(cmd.Context(), args[0], patch)
			}
			if err != nil {
				return err
			}
			return a.printSettings(args[0], set)
		},
	}
}

func settingsArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 1 && args[1] == "set" {
		return atLeast("QUEUE", "set", "NAME=VALUE")(cmd, args)
	}
	if len(args) > 1 && args[1] != "get" {
		return fmt.Errorf("unexpected argument %q: it is get or set", args[1])
	}
	if len(args) > 1 {
		return exactly("QUEUE", "get")(cmd, args)
	}
	return exactly("QUEUE")(cmd, args)
}

func parsePatch(args []string) (dueq.SettingsPatch, error) {
	patch := dueq.SettingsPatch{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" || value == "" {
			return nil, &dueq.FieldError{Field: "setting", Reason: fmt.Sprintf("%q is not NAME=VALUE", arg)}
		}
		if _, twice := patch[name]; twice {
			return nil, &dueq.FieldError{Field: name, Reason: "is given twice"}
		}
		patch[name] = value
	}
	return patch, nil
}

func (a *app) printSettings(queue string, set dueq.Settings) error {
	values, defaults := set.Format(), dueq.DefaultSettings().Format()
	shown := view.NewQueueSettings(queue, set)
	return a.print(shown, func(w io.Writer) {
		row(w, "SETTING", "VALUE", "DEFAULT")
		for _, name := range dueq.SettingNames() {
			mark := "default"
			if values[name] != defaults[name] {
				mark = defaults[name]
			}
			row(w, name, values[name], mark)
		}
	})
}
