package main

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/openstore"
)

// TestUsage has every wrong command line exit with 2 and one line that names
// what is wrong.
func TestUsage(t *testing.T) {
	c := onMemory(t)
	for line, want := range map[string]string{
		"nosuch":                                    `dueq: unknown command "nosuch" (see dueq --help)`,
		"shedule q m --in 1s":                       `perhaps schedule`,
		"--nosuch":                                  `dueq: unknown flag: --nosuch (see dueq --help)`,
		"list q --nosuch":                           `dueq: list: unknown flag: --nosuch (see dueq list --help)`,
		"list -z q":                                 `dueq: list: unknown shorthand flag: 'z'`,
		"-o yaml queues":                            `output "yaml" is not one of table, json`,
		"--prefix= queues":                          `prefix is empty`,
		"queues q":                                  `dueq: queues: unexpected argument "q"`,
		"list":                                      `QUEUE is missing`,
		"list q r":                                  `unexpected argument "r"`,
		"list -q":                                   `unknown shorthand flag: 'q'`,
		"list a/b":                                  `queue "a/b" may have letters, digits`,
		"list trace:x":                              `queue trace is a reserved name`,
		"list q --state gone":                       `state "gone" is not one of scheduled, overdue, active, dead`,
		"list q --limit 0":                          `limit "0" is not a whole number from 1 to 1000`,
		"list q --limit 1001":                       `limit "1001"`,
		"stats q a/b":                               `queue "a/b"`,
		"get q":                                     `MEMBER is missing`,
		"cancel q m n":                              `unexpected argument "n"`,
		"schedule q m":                              `[in at from] is required`,
		"schedule q m --in 1s --at " + far:          `[in at]`,
		"schedule q m n --in 1s":                    `unexpected argument "n"`,
		"schedule q m --in -1s":                     `delay -1s is negative`,
		"schedule q m --in 5":                       `duration "5" is not a duration`,
		"schedule q m --at 2026-12-01T08:00:00":     `"2026-12-01T08:00:00" is neither RFC 3339 with an offset`,
		"schedule q m --at 1717023456":              `perhaps it is in seconds`,
		"schedule q a:b: --in 1s":                   `kind is empty after the last colon`,
		"schedule q . --in 1s":                      `id may not be . or ..`,
		"schedule q a#b#c --in 1s":                  `trace contains #`,
		"schedule q m --in 1s --if-exists new":      `if_exists "new" is not one of replace, keep, earlier, later`,
		"schedule q m --in 1s --member-max 513":     `member-max "513" is not a whole number from 1 to 512`,
		"schedule q long --in 1s --member-max 3":    `member is 4 bytes, the limit is 3`,
		"schedule q m --in 1s --body @/nosuch/file": `body cannot be read from /nosuch/file: no such file`,
		"schedule q m:p1 --in 1s":                   `priority`,
		"reschedule q m":                            `[in at] is required`,
		"run-now q":                                 `MEMBER is missing`,
		"dead":                                      `a command is missing: delete, list, requeue`,
		"dead bury":                                 `unknown command "bury" (see dueq dead --help)`,
		"dead list":                                 `QUEUE is missing`,
		"dead requeue":                              `QUEUE is missing`,
		"dead requeue q":                            `give one of MEMBER…, --all and --error or --kind, not 0 of them`,
		"dead delete q m --all":                     `not 2 of them`,
		"dead delete q --all --error x":             `not 2 of them`,
		"dead delete q --error=":                    `--error is empty`,
		"pause":                                     `QUEUE is missing`,
		"settings q put":                            `unexpected argument "put": it is get or set`,
		"settings q get x":                          `unexpected argument "x"`,
		"settings q set":                            `NAME=VALUE is missing`,
		"settings q set retries":                    `setting "retries" is not NAME=VALUE`,
		"settings q set retries=":                   `setting "retries=" is not NAME=VALUE`,
		"settings q set retries=1 retries=2":        `retries is given twice`,
		"settings q set nosuch=1":                   `nosuch is not a setting; there are batch`,
		"settings q set retries=many":               `retries "many" is not a whole number`,
		"settings q set lease=2d":                   `lease 2d is over lease_max`,
		"work":                                      `QUEUE is missing`,
		"work q q":                                  `queue q is given twice`,
		"work q --":                                 `COMMAND is missing after --`,
		"work q -- /nosuch/command":                 `command "/nosuch/command" cannot be run`,
		"work q --again 0s":                         `again "0s" is not more than zero`,
		"work q --concurrency 0":                    `concurrency "0" is not a whole number from 1 to 10000`,
		"work q --grace soon":                       `"soon" is not a duration`,
		"work q --grace -1s":                        `grace "-1s" is negative`,
		"work q --for -1s":                          `for "-1s" is not more than zero`,
		"work q --log-level loud":                   `log-level "loud" is not one of debug, info, warn, error`,
		"work q --log-format xml":                   `log-format "xml" is not one of text, json`,
		"list q --all --limit 5":                    `[all limit]`,
		"list q --kind p1":                          `kind looks like a priority`,
		"stats --interval 5s":                       `--interval goes with --watch`,
		"stats --watch --interval 1ms":              `interval "1ms" is under 100ms`,
		"dead requeue q --all --rate 0":             `rate "0" is not 1/s to 1000000/s`,
		"dead requeue q --all --rate 5/m":           `rate "5/m"`,
		"dead delete q --all --kind k":              `not 2 of them`,
		"schedule q --from x.txt":                   `--format is needed: "x.txt" does not end in .csv, .ndjson or .jsonl`,
		"schedule q --from -":                       `--format is needed`,
		"schedule q --from= --format csv":           `--from is empty`,
		"schedule q --from - --format xml":          `format "xml" is not one of csv, ndjson`,
		"schedule q --from /nosuch.csv":             `from /nosuch.csv cannot be read: no such file`,
		"schedule q --from / --format csv":          `from / cannot be read: it is a directory`,
		"schedule q m --from x.csv":                 `unexpected argument "m"`,
		"schedule q --from x.csv --in 1s":           `[from in]`,
		"schedule q --from x.csv --body x":          `[from body]`,
		"schedule q m --in 1s --strict":             `--strict goes with --from`,
		"schedule q m --in 1s --format csv":         `--format goes with --from`,
		"move q":                                    `DEST is missing`,
		"move q r":                                  `MEMBER is missing, or --all`,
		"move q q --all":                            `DEST is QUEUE itself, q`,
		"move q a/b --all":                          `queue "a/b"`,
		"move q r m --all":                          `give MEMBER… or --all, not both`,
		"move q r m --if-exists new":                `if_exists "new"`,
		"drain":                                     `QUEUE is missing`,
		"drain q --timeout 0s":                      `timeout "0s" is not more than zero`,
		"delete q":                                  `--yes is needed where there is no terminal to ask on`,
		"delete q m --yes":                          `unexpected argument "m"`,
		"delete q --state active --yes":             `state "active" is not one of scheduled, dead, all`,
		"delete q --error= --yes":                   `error is empty; without it all tasks are meant`,
		"version now":                               `unexpected argument "now"`,
		"completion tcsh":                           `unknown command "tcsh"`,
		"help nosuch":                               `unknown command "nosuch"`,
		"help dead bury":                            `unknown command "bury"`,
		"demo q":                                    `unexpected argument "q"`,
	} {
		t.Run(line, func(t *testing.T) {
			r := c.run(t, "", strings.Fields(line)...).must(t, 2)
			r.says(t, want)
			if r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "dueq: ") {
				t.Errorf("want nothing on stdout and one line on stderr\nstdout: %s\nstderr: %s", r.stdout, r.stderr)
			}
		})
	}
	if stats, err := c.store.Stats(t.Context()); err != nil || slices.ContainsFunc(stats, func(s dueq.QueueStats) bool { return s.Scheduled > 0 }) {
		t.Errorf("something was scheduled: %v %v", stats, err)
	}
}

func TestStoreFlag(t *testing.T) {
	real := onRedis(t)
	c := &cli{open: real.open}
	t.Run("without a store two commands meet in a file and name it once", func(t *testing.T) {
		c := &cli{open: real.open, home: t.TempDir()}
		c.run(t, "", "schedule", "q", "m", "--in", "1h").must(t, 0)
		r := c.run(t, "", "queues", "-o", "json").must(t, 0)
		r.has(t, `"q"`)
		if url, err := openstore.Default(func(name string) string { return map[string]string{"HOME": c.home}[name] }, runtime.GOOS); err != nil || strings.Count(r.stderr, url) != 1 {
			t.Errorf("%s (%v) is not named once: %s", url, err, r.stderr)
		}
	})
	t.Run("without a store and a home every command says how to name one", func(t *testing.T) {
		for _, line := range []string{"queues", "get q m", "cancel q m", "list q", "stats", "pause q", "settings q", "dead list q",
			"dead delete q --all", "schedule q m --in 1s", "run-now q m", "reschedule q m --in 1s", "work q"} {
			r := c.run(t, "", strings.Fields(line)...).must(t, 2)
			r.says(t, "store is not set", "--store URL", "DUEQ_STORE", "redis://127.0.0.1:6379")
		}
	})
	t.Run("a store of another kind is refused", func(t *testing.T) {
		c.run(t, "", "queues", "--store", "mysql://u:s3cret@h").must(t, 2).says(t, "store is none of redis://")
	})
	t.Run("a store that does not answer exits 5 and keeps the password", func(t *testing.T) {
		r := c.run(t, "", "queues", "--store", "redis://u:s3cret@127.0.0.1:1").must(t, 5)
		r.says(t, "store unavailable")
		if strings.Contains(r.stderr, "s3cret") {
			t.Errorf("the password is shown: %s", r.stderr)
		}
	})
	t.Run("a server that does not know the token exits 1 and keeps it", func(t *testing.T) {
		c := onHTTP(t)
		for _, token := range []string{"", "wr0ng"} {
			c.token = token
			for _, line := range []string{"queues", "work q", "schedule q m --in 1s", "queues --store " + strings.Replace(c.url, "//", "//:wr0ng@", 1)} {
				r := c.run(t, "", strings.Fields(line)...).must(t, 1)
				r.says(t, "token")
				if strings.Contains(r.stderr, "wr0ng") || strings.Count(r.stderr, "\n") != 1 {
					t.Errorf("%s: %s", line, r.stderr)
				}
			}
		}
		c.token = ""
		c.run(t, "", "queues", "--store", strings.Replace(c.url, "//", "//:"+testToken+"@", 1)).must(t, 0)
		c.run(t, "", "queues", "--store", "http://127.0.0.1:1").must(t, 5)
		c.run(t, "", "queues", "--store", c.url+"?batch=1").must(t, 2).says(t, `"batch"`)
		c.run(t, "", "queues", "--prefix", "other:").must(t, 2).says(t, "prefix is for Redis")
	})
	t.Run("the flag wins over the environment", func(t *testing.T) {
		c := &cli{open: real.open, url: "redis://127.0.0.1:1"}
		c.run(t, "", "queues", "--store", real.url).must(t, 0)
	})
	t.Run("prefixes are apart", func(t *testing.T) {
		real.schedule(t, "only:here", "m", farWhen)
		if r := c.run(t, "", "queues", "--store", real.url, "--prefix", "other:").must(t, 0); strings.Contains(r.stdout, "only:here") {
			t.Errorf("a queue of another prefix is listed:\n%s", r.stdout)
		}
	})
}
