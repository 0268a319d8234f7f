package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

func TestHelp(t *testing.T) {
	c := onMemory(t)
	for line, want := range map[string]string{
		"": "dueq demo", "--help": "Exit codes", "help": "Exit codes", "work --help": "DUEQ_ATTEMPT",
		"help dead requeue": "--dry-run", "settings --help": "retry_factor", "completion bash": "__complete",
	} {
		t.Run(line, func(t *testing.T) {
			r := c.run(t, "", strings.Fields(line)...).must(t, 0)
			r.has(t, want)
			if r.stderr != "" {
				t.Errorf("stderr: %s", r.stderr)
			}
		})
	}
}

// TestHelpHasExamples walks all commands, cobra's own as well.
func TestHelpHasExamples(t *testing.T) {
	c := onMemory(t)
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			check(sub)
		}
		path := strings.Fields(cmd.CommandPath())
		if cmd.Short == "" || !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("%s: short %q, example %q", cmd.CommandPath(), cmd.Short, cmd.Example)
		}
		for _, line := range strings.Split(cmd.Example, "\n") {
			if !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: an example is not indented: %q", cmd.CommandPath(), line)
			}
		}
		r := c.run(t, "", append(path[1:], "--help")...).must(t, 0)
		r.has(t, "Examples:\n"+cmd.Example)
	}
	check((&app{}).root())
}

func TestCompletionOfValues(t *testing.T) {
	c := onMemory(t)
	for text, want := range map[string]string{
		"delivery=": "delivery=at_least_once\ndelivery=at_most_once\ndelivery=default\n:4\n",
		"retries=":  "retries=default\n:4\n",
		"nosuch=":   ":4\n",
	} {
		if r := c.run(t, "", "__complete", "settings", "q", "set", text).must(t, 0); r.stdout != want {
			t.Errorf("%s: got %s", text, r.stdout)
		}
	}
}

// requiredFlags are what cobra offers beside arguments.
var requiredFlags = regexp.MustCompile(`(?m)^--.*\n`)

func TestCompletion(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		c.schedule(t, "order:close", "m", farWhen)
		c.schedule(t, "sms:send", "m", farWhen)
		settings := strings.Join(dueq.SettingNames(), "=\n") + "="
		for line, want := range map[string]string{
			"list":                       "order:close\nsms:send",
			"stats":                      "order:close\nsms:send",
			"stats order:close":          "sms:send",
			"work order:close":           "sms:send",
			"settings":                   "order:close\nsms:send",
			"settings order:close":       "get\nset",
			"settings order:close set":   settings,
			"settings order:close show":  "",
			"dead":                       "delete\tDelete dead letters\nlist\tList dead letters by the time they died\nrequeue\tSchedule dead letters again, due at once",
			"dead list":                  "order:close\nsms:send",
			"dead requeue":               "order:close\nsms:send",
			"dead delete":                "order:close\nsms:send",
			"list order:close --state":   "scheduled\noverdue\nactive\ndead",
			"delete order:close --state": "scheduled\ndead\nall",
			"schedule":                   "order:close\nsms:send",
			"schedule q --format":        "csv\nndjson",
			"schedule q m --if-exists":   "replace\nkeep\nearlier\nlater",
			"schedule order:close m":     "",
			"reschedule":                 "order:close\nsms:send",
			"run-now":                    "order:close\nsms:send",
			"cancel":                     "order:close\nsms:send",
			"get":                        "order:close\nsms:send",
			"get order:close":            "",
			"move":                       "order:close\nsms:send",
			"move order:close":           "sms:send",
			"move order:close sms:send":  "",
			"drain":                      "order:close\nsms:send",
			"forward":                    "order:close\nsms:send",
			"delete":                     "order:close\nsms:send",
			"pause":                      "order:close\nsms:send",
			"resume":                     "order:close\nsms:send",
			"bench":                      "schedule\ndrain\nprecision",
			"queues -o":                  "table\njson",
		} {
			r := c.run(t, "", slices.Concat([]string{"__complete"}, strings.Fields(line), []string{""})...).must(t, 0)
			got, _, _ := strings.Cut(r.stdout, ":4\n") // no file names
			if line == "settings order:close set" {
				got, _, _ = strings.Cut(r.stdout, ":6\n") // nor a space
			}
			got = strings.TrimSuffix(requiredFlags.ReplaceAllString(got, ""), "\n")
			if got != want {
				t.Errorf("%s: got %q, want %q", line, got, want)
			}
		}
	})
}
