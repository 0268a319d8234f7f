package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/dueq/dueq"
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
	view := struct {
		Queue    string       `json:"queue"`
		Version  int64        `json:"version"`
		Settings settingsView `json:"settings"`
		Changed  []string     `json:"changed"` // names of those that are not the default
	}{queue, set.Version, viewSettings(set), []string{}}
	for _, name := range dueq.SettingNames() {
		if values[name] != defaults[name] {
			view.Changed = append(view.Changed, name)
		}
	}
	return a.print(view, func(w io.Writer) {
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

// settingsView is the settings as JSON shows them.
type settingsView struct {
	Batch              int     `json:"batch"`
	Concurrency        int     `json:"concurrency"`
	TimeoutMs          int64   `json:"timeout_ms"`
	LeaseMs            int64   `json:"lease_ms"`
	LeaseMaxMs         int64   `json:"lease_max_ms"`
	Retries            int     `json:"retries"`
	RetryFirstMs       int64   `json:"retry_first_ms"`
	RetryFactor        float64 `json:"retry_factor"`
	RetryCapMs         int64   `json:"retry_cap_ms"`
	RetryJitterPercent float64 `json:"retry_jitter_percent"`
	Delivery           string  `json:"delivery"`
	MaxLateMs          int64   `json:"max_late_ms"` // zero is off
	Priority           bool    `json:"priority"`
	DeadKeepMs         int64   `json:"dead_keep_ms"`
	BodyMax            int     `json:"body_max"`
	Paused             bool    `json:"paused"`
	WaitReplicas       int     `json:"wait_replicas"`
	Forward            string  `json:"forward"` // empty is off
	Push               string  `json:"push"`    // empty is off
}

func viewSettings(s dueq.Settings) settingsView {
	return settingsView{
		Batch: s.Batch, Concurrency: s.Concurrency,
		TimeoutMs: s.Timeout.Milliseconds(), LeaseMs: s.Lease.Milliseconds(), LeaseMaxMs: s.LeaseMax.Milliseconds(),
		Retries: s.Retries, RetryFirstMs: s.RetryFirst.Milliseconds(), RetryFactor: s.RetryFactor,
		RetryCapMs: s.RetryCap.Milliseconds(), RetryJitterPercent: math.Round(s.RetryJitter*1e6) / 1e4,
		Delivery: s.Delivery.String(), MaxLateMs: s.MaxLate.Milliseconds(), Priority: s.Priority,
		DeadKeepMs: s.DeadKeep.Milliseconds(), BodyMax: s.BodyMax, Paused: s.Paused, WaitReplicas: s.WaitReplicas,
		Forward: s.Forward, Push: s.Push,
	}
}
