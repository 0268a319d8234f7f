package main

import (
	"context"
	"slices"
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

func (a *app) completeSettings(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0:
		return a.queueNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
	case len(args) == 1:
		return []string{"get", "set"}, cobra.ShellCompDirectiveNoFileComp
	case args[1] != "set":
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := dueq.SettingNames()
	for i := range names {
		names[i] += "="
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
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
