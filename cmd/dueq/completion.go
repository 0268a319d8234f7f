package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

// completeQueue offers queues for the first argument.
func (a *app) completeQueue(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.queueNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
}

// completeQueues offers queues for every argument, each once.
func (a *app) completeQueues(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	names := slices.DeleteFunc(a.queueNames(cmd.Context()), func(name string) bool { return slices.Contains(args, name) })
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeTwoQueues offers queues for the first two arguments.
func (a *app) completeTwoQueues(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeQueues(cmd, args, text)
}

func (a *app) completeSettings(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0:
		return a.queueNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
	case len(args) == 1:
		return []string{"get", "set"}, cobra.ShellCompDirectiveNoFileComp
	case args[1] != "set":
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if name, _, ok := strings.Cut(text, "="); ok {
		return settingValues(name), cobra.ShellCompDirectiveNoFileComp
	}
	names := dueq.SettingNames()
	for i := range names {
		names[i] += "="
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// settingValues offers the words among the values of a setting.
func settingValues(name string) []string {
	words := map[string][]string{
		"delivery": {dueq.AtLeastOnce.String(), dueq.AtMostOnce.String()},
		"priority": {"on", "off"}, "paused": {"on", "off"}, "max_late": {"off"},
	}[name]
	if slices.Contains(dueq.SettingNames(), name) {
		words = append(words, dueq.Default)
	}
	for i := range words {
		words[i] = name + "=" + words[i]
	}
	return words
}

// completeWords offers words for a flag.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// queueNames is silent about errors: the shell has no place for them.
func (a *app) queueNames(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	store, err := a.store(ctx)
	if err != nil {
		return nil
	}
	stats, err := store.Stats(ctx)
	if err != nil {
		return nil
	}
	names := make([]string, len(stats))
	for i, s := range stats {
		names[i] = s.Queue
	}
	return names
}

// addCompletionExamples says on each of cobra's commands how it is used, as the
// help of our own does.
func addCompletionExamples(completion *cobra.Command) {
	examples := map[string]string{
		"bash":       "  source <(dueq completion bash)",
		"zsh":        "  source <(dueq completion zsh)",
		"fish":       "  dueq completion fish | source",
		"powershell": "  dueq completion powershell | Out-String | Invoke-Expression",
	}
	completion.Example = examples["bash"]
	for _, shell := range completion.Commands() {
		shell.Example = examples[shell.Name()]
	}
}
