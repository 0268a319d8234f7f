package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

// TestEveryCommandInJSON pins the names of all fields on stdout, which scripts
// rely on, and that nothing else is there.
func TestEveryCommandInJSON(t *testing.T) {
	const (
		outcome  = "due_at member queue status"
		task     = "cancelled died_at due_at failures has_body id kind last_error lease_ends_at malformed member priority queue round scheduled_again state trace"
		settings = "changed queue settings version"
		deads    = "counts dry_run op queue results"
	)
	want := map[string]string{ // in order of their effects
		"schedule q m --in 1h":                outcome,
		"schedule q --from - --format ndjson": "bad bad_lines complete kept line queue replaced running scheduled took_ms tasks",
		"reschedule q m --in 2h":              outcome,
		"run-now q m":                         outcome,
		"get q m":                             task,
		"list q":                              "cursor queue state tasks",
		"queues":                              "queues",
		"stats q":                             "queues",
		"dead list d":                         "cursor queue state tasks",
		"dead requeue d m1":                   deads,
		"dead delete d m2":                    deads,
		"move q r m":                          "complete counts dest dry_run left queue",
		"cancel r m":                          outcome,
		"delete r --yes":                      "complete dead dry_run queue running scheduled",
		"drain r":                             "active dead drained overdue queue scheduled took_ms",
		"pause q":                             "paused queue",
		"resume q":                            "paused queue",
		"settings q":                          settings,
		"settings q set retries=1":            settings,
		"bench schedule --tasks 10":           "[] allocs_per_task drift_max_ms drift_p50_ms drift_p99_ms early parallel tasks tasks_per_s took_ms work",
		"version":                             "commit go modified platform version",
		"demo":                                "", // see demo_test.go
		"work q":                              "", // see work_test.go
		"serve":                               "", // see serve_test.go
		"serve --print-config":                "config sources",
		"token shop --scope read":             "hash name queues scopes secret",
		"forward q":                           "", // see forward_test.go
	}
	order := []string{"schedule q m", "schedule q --from", "reschedule", "run-now", "get", "list", "queues", "stats", "dead list", "dead requeue", "dead delete",
		"move", "cancel", "delete", "drain", "pause", "resume", "settings q", "bench", "serve --print", "token", "version"}
	on(t, func(t *testing.T, c *cli) {
		c.die(t, "d", "boom", "m1", "m2")
		for _, front := range order {
			for _, line := range slices.Sorted(maps.Keys(want)) {
				if !strings.HasPrefix(line, front) {
					continue
				}
				r := c.run(t, `{"id":"n","delay_ms":3600000}`, append(strings.Fields(line), "-o", "json")...).must(t, 0)
				if got := fieldsOf(t, r.stdout); got != sorted(want[line]) {
					t.Errorf("%s: got fields %s\nwant %s", line, got, sorted(want[line]))
				}
				if r.stderr != "" && front != "bench" {
					t.Errorf("%s: stderr %s", line, r.stderr)
				}
			}
		}
	})
	t.Run("is complete", func(t *testing.T) {
		var check func(cmd *cobra.Command)
		check = func(cmd *cobra.Command) {
			for _, sub := range cmd.Commands() {
				if sub.Name() != "help" && sub.Name() != "completion" {
					check(sub)
				}
			}
			path := strings.TrimPrefix(cmd.CommandPath(), "dueq ")
			if !cmd.HasSubCommands() && !slices.ContainsFunc(slices.Collect(maps.Keys(want)), func(line string) bool { return line == path || strings.HasPrefix(line, path+" ") }) {
				t.Errorf("%s has no JSON test", path)
			}
		}
		check((&app{}).root())
	})
	t.Run("of a list of tasks has the fields of one", func(t *testing.T) {
		c := onMemory(t)
		c.schedule(t, "q", "m", dueq.In(0))
		var list struct{ Tasks []map[string]any }
		if err := json.Unmarshal([]byte(c.run(t, "", "list", "q", "-o", "json").must(t, 0).stdout), &list); err != nil || len(list.Tasks) != 1 {
			t.Fatal(list, err)
		}
		if got := strings.Join(slices.Sorted(maps.Keys(list.Tasks[0])), " "); got != task {
			t.Errorf("got %s\nwant %s", got, task)
		}
	})
}

func sorted(fields string) string {
	list := strings.Fields(fields)
	slices.Sort(list)
	return strings.Join(list, " ")
}

// fieldsOf names the fields of an object, after [] those of a list's first one.
func fieldsOf(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, text)
	}
	front := ""
	if list, ok := v.([]any); ok && len(list) > 0 {
		front, v = "[] ", list[0]
	}
	object, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprintf("%T", v)
	}
	return front + strings.Join(slices.Sorted(maps.Keys(object)), " ")
}
