package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

// raw tells bytes that a terminal or a reader of lines would act on.
func raw(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f || r == 0x9b || r == 0x202e }

// What failed says why in its own words, which may be meant to deceive.
func TestFaultErrorsOfTasksForgeNoLineAndNoTerminalCode(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		const evil = "x\nlevel=ERROR msg=forged\x1b[2J\r\u009b\u202e\x7f"
		c.die(t, "q", evil, "m1:k", "m2:k")
		_, err := c.store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"retry_first": "1h"})
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"get q m1:k", "get q m1:k -o json", "list q --state dead", "list q --state dead -o json", "dead list q",
			"dead list q -o json", "dead list q --error forged", "dead requeue q --error forged --dry-run", "stats q", "queues"} {
			r := c.run(t, "", strings.Fields(line)...)
			for _, text := range []string{r.stdout, r.stderr} {
				if strings.ContainsFunc(text, raw) || strings.Contains(text, "\nlevel=ERROR msg=forged") {
					t.Errorf("%q prints control bytes or a forged line: %q", line, text)
				}
			}
		}
		c.schedule(t, "q", "m3:k", dueq.In(0))
		c.run(t, "", "work", "q", "--for", "1s", "--", "sh", "-c", `printf 'x\nlevel=ERROR msg=forged\033[2J' >&2; exit 1`) // what it prints is its own
		info := c.info(t, "q", "m3:k")
		if !strings.Contains(info.LastError, "forged") {
			t.Errorf("the last error is %q, want what the command said", info.LastError)
		}
		if got := c.run(t, "", "get", "q", "m3:k"); strings.ContainsFunc(got.stdout, raw) {
			t.Errorf("get prints control bytes: %q", got.stdout)
		}
	})
}

func TestFaultDelaysThatAreNoneAreRefusedAndStoreNothing(t *testing.T) {
	on(t, func(t *testing.T, c *cli) {
		for flag, values := range map[string][]string{
			"--in": {"NaN", "nan", "Inf", "+Inf", "-Inf", "Infinity", "1e400", "1e30", "1e3s", "0x10", "5", "1.5", "-0.1s", "-1ms", "null", "true", "[]", "",
				" ", "1h ", "1_000s", "NaNs", "infd", "99999999999999999999h"},
			"--at": {"NaN", "Inf", "1e12", "1e400", "0", "-1", "1.5", "1717023456", "1969-12-31T23:59:59Z", "1900-01-01T00:00:00Z", "0001-01-01T00:00:00Z",
				"2026-12-01", "2026-12-01T08:00:00", "tomorrow", "", "9999999999999999999", "2026-13-01T00:00:00Z"},
		} {
			for _, value := range values {
				for _, line := range [][]string{{"schedule", "q", "m"}, {"reschedule", "q", "m"}} {
					r := c.run(t, "", append(line, flag+"="+value)...).must(t, 2)
					if r.stderr == "" || r.stdout != "" {
						t.Errorf("%q %s=%q: stdout %q, stderr %q", line, flag, value, r.stdout, r.stderr)
					}
				}
			}
		}
		var csv, ndjson strings.Builder
		csv.WriteString("id,delay\n")
		bad := 0
		for i, value := range []string{"NaN", "Inf", "-Infinity", "1e400", "1e30", "5", "-1s", "0x10", "null", "true"} {
			fmt.Fprintf(&csv, "c%d,%s\n", i, value)
			bad++
		}
		c.run(t, csv.String(), "schedule", "q", "--from", "-", "--format", "csv").must(t, 1).says(t, fmt.Sprint(bad))
		for i, value := range []string{"NaN", "Infinity", `"NaN"`, `"5"`, "1e400", "1e30", "1.5", "-1", "null", "true", "[]", "{}", ""} {
			fmt.Fprintf(&ndjson, "{\"id\":\"n%d\",\"delay_ms\":%s}\n", i, value)
		}
		c.run(t, ndjson.String(), "schedule", "q", "--from", "-", "--format", "ndjson").must(t, 1)
		if st := c.stats(t, "q"); st.Scheduled+st.Active+st.Dead != 0 || st.Totals.Scheduled != 0 {
			t.Errorf("something is stored: %+v", st)
		}
		c.run(t, "", "schedule", "q", "m", "--in", "0").must(t, 0) // zero needs no unit
		c.run(t, "", "schedule", "q", "m", "--in", "-0s").must(t, 0)
		if due := c.info(t, "q", "m").Due; time.Until(due) > time.Second {
			t.Errorf("a delay of -0s is due %v, want now", due)
		}
	})
}
