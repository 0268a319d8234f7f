package main

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
)

type textStep struct {
	line           string
	code           int
	stdout, stderr string
}

// textSteps has every command once where it works and once where it does not,
// in the order of their effects: the whole of stdout and of stderr, where …
// stands for any text. d:m1, d:m2 are dead letters, w:m is due.
var textSteps = []textStep{
	{"schedule q o_1:k --at " + far, 0, "scheduled o_1:k on q, due " + far + "\n", ""},
	{"schedule q o_1:k", 2, "", "dueq: schedule: …required (see dueq schedule --help)\n"},
	{"schedule q --from - --format csv", 0, "q: 2 scheduled, 0 replaced, 0 kept, 0 running, 0 bad, in … s\n", ""},
	{"schedule q --from - --format ndjson", 1, "q: 0 scheduled, 0 replaced, 0 kept, 0 running, 3 bad, in … s\n",
		"line 1: …\nline 2: …\nline 3: …\ndueq: schedule: 3 of 3 lines are bad\n"},
	{"reschedule q o_1:k --at " + farOther, 0, "rescheduled o_1:k on q, due 2099-01-02T03:04:05.679Z\n", ""},
	{"reschedule q nosuch --in 1h", 3, "", "dueq: reschedule q: nosuch: task not found\n"},
	{"reschedule d m1 --in 1h", 4, "", "dueq: reschedule d: m1: task is dead; use dead requeue or dead delete\n"},
	{"get q o_1:k", 0, "queue       q\nmember      o_1:k\n…state       scheduled\ndue         2099-01-02T03:04:05.679Z…", ""},
	{"get q nosuch", 3, "", "dueq: get q: nosuch: task not found\n"},
	{"list q", 0, "MEMBER  DUE                       FAILURES  ROUND  LAST ERROR\na       …Z  0         0      -\nb       …\no_1:k   2099-01-02T03:04:05.679Z  0         0      -\n", ""},
	{"list q --limit 1", 0, "MEMBER  DUE  …\na       …\n", "there are more: --cursor \"…\"\n"},
	{"list q --cursor !", 2, "", "dueq: …\n"},
	{"run-now q o_1:k", 0, "rescheduled o_1:k on q, due …Z\n", ""},
	{"run-now q nosuch", 3, "", "dueq: run-now q: nosuch: task not found\n"},
	{"queues", 0, "QUEUE  SCHEDULED  OVERDUE  ACTIVE  DEAD  PAUSED  NEXT DUE\nd      0          0        0       2     no      -\nq      3          …\nw      1          …\n", ""},
	{"queues q", 2, "", "dueq: queues: unexpected argument \"q\" (see dueq queues --help)\n"},
	{"stats q", 0, "queue           q\nscheduled       3\n…totals:\n  scheduled    3\n…\n", ""},
	{"stats a/b", 2, "", "dueq: …queue \"a/b\" may have letters…\n"},
	{"dead list d", 0, "MEMBER  DIED                      FAILURES  ROUND  LAST ERROR\nm1      …Z  1         0      boom\nm2      …Z  1         0      boom\n", ""},
	{"dead list a/b", 2, "", "dueq: …queue \"a/b\" may have letters…\n"},
	{"dead requeue d m1", 0, "m1  done\nrequeue d: 1 done\n", ""},
	{"dead requeue d nosuch", 3, "nosuch  not_found\nrequeue d: 1 not_found\n", "dueq: dead requeue d: 1 of 1 tasks, such as nosuch: task not found\n"},
	{"dead delete d m1", 4, "m1  changed\ndelete d: 1 changed\n", "dueq: dead delete d: 1 of 1 tasks, such as m1: task has changed\n"},
	{"dead delete d --all", 0, "m2  done\ndelete d: 1 done\n", ""},
	{"move q r a", 0, "moved 1 tasks from q to r\n", ""},
	{"move q r a", 3, "a  not_found  task not found\nmoved 0 tasks from q to r, left 1 not_found\n", "dueq: move: 1 of 1 tasks were left, such as a: task not found\n"},
	{"cancel r a", 0, "cancelled a on r\n", ""},
	{"cancel r a", 3, "", "dueq: cancel r: a: task not found\n"},
	{"drain r", 0, "drained r: 0 overdue, 0 active, 0 due later, 0 dead, after … s\n", ""},
	{"drain w --timeout 1ms", 1, "not drained w: 1 overdue, 0 active, 0 due later, 0 dead, after … s\n", "dueq: drain: not drained within 1ms: 1 overdue, 0 active\n"},
	{"drain nosuch", 3, "", "dueq: drain: queue nosuch is not known to this store\n"},
	{"delete q --yes", 0, "deleted from q: 2 scheduled, 0 dead\n", ""},
	{"delete q", 2, "", "dueq: …--yes is needed where there is no terminal to ask on…\n"},
	{"pause q", 0, "paused q\n", ""},
	{"pause a/b", 2, "", "dueq: …queue \"a/b\" may have letters…\n"},
	{"resume q", 0, "resumed q\n", ""},
	{"resume a/b", 2, "", "dueq: …queue \"a/b\" may have letters…\n"},
	{"settings q set retries=7", 0, "SETTING        VALUE          DEFAULT\n…\nretries        7              3\n…", ""},
	{"settings q set retries=many", 2, "", "dueq: …retries \"many\" is not a whole number…\n"},
	{"work w --for 300ms", 0, `{"queue":"w","member":"m",…}` + "\n", "…"},
	{"forward q --to set", 2, "", "dueq: forward: …\"set\" is not list, stream, list:KEY or stream:KEY (see dueq forward --help)\n"}, // where it works: forward_test.go
	{"work w w", 2, "", "dueq: work: queue w is given twice (see dueq work --help)\n"},
	{"bench schedule --tasks 10", 0, "WORK…\nschedule  10…\n", "…"},
	{"bench nosuch", 2, "", "dueq: bench: work \"nosuch\" is not one of schedule, drain, precision\n"},
	{"serve --print-config", 0, "store: …# $DUEQ_STORE\nprefix: …grace: 30s # default\n", ""},
	{"serve --listen nosuch", 2, "", "dueq: serve: listen[0] \"nosuch\" is not HOST:PORT, :PORT or unix:PATH (--listen)\n"},
	{"token shop --scope publish,consume --queue order:*", 0, "dueq_…\n\ntokens:\n  - name: shop\n    hash: sha256:…\n    scopes: [publish, consume]\n    queues: ['order:*']\n",
		"the secret, which is not shown again, and what to add to the file of dueq serve --config:\n"},
	{"token shop --scope reed", 2, "", "dueq: token: scope \"reed\" is not one of publish, consume, read, admin\n"},
	{"version", 0, "dueq …go1…\n", ""},
	{"version now", 2, "", "dueq: version: unexpected argument \"now\" (see dueq version --help)\n"},
	{"demo q", 2, "", "dueq: demo: unexpected argument \"q\" (see dueq demo --help)\n"}, // where it works: demo_test.go
}

func TestEveryCommandInText(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		c.die(t, "d", "boom", "m1", "m2")
		c.schedule(t, "w", "m", past)
		for _, step := range textSteps {
			r := c.run(t, "id,delay\na,1h\nb,2h\n", strings.Fields(step.line)...)
			if r.code != step.code || !matches(step.stdout, r.stdout) || !matches(step.stderr, r.stderr) {
				t.Errorf("%s\ngot exit code %d, stdout:\n%s\nstderr:\n%s\nwant exit code %d, stdout:\n%s\nstderr:\n%s",
					step.line, r.code, r.stdout, r.stderr, step.code, step.stdout, step.stderr)
			}
		}
	})
	t.Run("is complete", func(t *testing.T) {
		for _, cmd := range leaves((&app{}).root()) {
			path := strings.TrimPrefix(cmd.CommandPath(), "dueq ")
			var works, fails bool
			for _, step := range textSteps {
				if step.line == path || strings.HasPrefix(step.line, path+" ") {
					works, fails = works || step.code == 0, fails || step.code != 0
				}
			}
			if !works && path != "demo" && path != "forward" || !fails {
				t.Errorf("%s: tested where it works: %v, where it does not: %v", path, works, fails)
			}
		}
	})
}

// matches tells whether text is as wanted, where … stands for any text.
func matches(want, text string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(want), "…", "(?s:.*)")
	return regexp.MustCompile("^" + pattern + "$").MatchString(text)
}

// leaves are the commands of ours that do something.
func leaves(cmd *cobra.Command) []*cobra.Command {
	if !cmd.HasSubCommands() {
		return []*cobra.Command{cmd}
	}
	var all []*cobra.Command
	for _, sub := range cmd.Commands() {
		if sub.Name() != "help" && sub.Name() != "completion" {
			all = append(all, leaves(sub)...)
		}
	}
	return all
}

// TestStoreIsUnavailable has every command that needs the store exit with 5 and
// one line when there is none, and print no part of an answer.
func TestStoreIsUnavailable(t *testing.T) {
	c := onRedis(t)
	c.url = "redis://127.0.0.1:1"
	needsNone := []string{"version", "token", "demo", "serve"} // the demo brings its own, serve waits for one
	var group sync.WaitGroup                                   // each of them tries for a while
	for _, cmd := range leaves((&app{}).root()) {
		path := strings.TrimPrefix(cmd.CommandPath(), "dueq ")
		if slices.Contains(needsNone, path) {
			continue
		}
		line := path + " q --to list" // forward, which works on Redis only
		if i := slices.IndexFunc(textSteps, func(s textStep) bool { return s.code == 0 && strings.HasPrefix(s.line+" ", path+" ") }); i >= 0 {
			line = textSteps[i].line
		}
		for _, format := range []string{"table", "json"} {
			group.Go(func() { c.unavailable(t, line+" -o "+format) })
		}
	}
	group.Wait()
}

func (c *cli) unavailable(t *testing.T, line string) {
	r := c.run(t, "id,delay\na,1h\n", strings.Fields(line)...)
	if r.code != 5 || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "store unavailable") {
		t.Errorf("%s: exit code %d, want 5\nstdout: %s\nstderr: %s", line, r.code, r.stdout, r.stderr)
	}
}
