package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Report is all that one run found.
type Report struct {
	Machine Machine   `json:"machine"`
	Sizes   Sizes     `json:"sizes"`
	Took    float64   `json:"took_s"`
	Goals   []Reached `json:"goals,omitempty"`
	Failed  []Failure `json:"failed"`
	Lines   []line    `json:"measurements"`
}

// table is how one work is shown.
type table struct {
	work, title string
	parallel    string // what a case is
	columns     []column
}

type column struct{ metric, title string }

var (
	cost = []column{
		{"redis_cpu_s", "server CPU s/100k"}, {"commands", "commands/task"},
		{"client_cpu_s", "client CPU s/100k"}, {"allocs", "allocs/task"},
	}
	micros = []column{
		{"us_zadd", "ZADD"}, {"us_zrange", "ZRANGE"}, {"us_zrem", "ZREM…"}, {"us_zscore", "ZMSCORE, ZINTERCARD"},
		{"us_others", "other commands"}, {"us_lua", "Lua"}, {"us_outside", "connections and the rest"},
	}
	drift = []column{{"drift_p50_ms", "drift p50 ms"}, {"drift_p99_ms", "p99 ms"}, {"drift_max_ms", "max ms"}}
)

var tables = []table{
	{"schedule", "Schedule, one call a task, due in one to two hours at random", "callers",
		slices.Concat([]column{{"tasks_per_s", "tasks/s"}}, cost)},
	{"batch", "Schedule, 100 tasks a call, 128 callers", "due",
		slices.Concat([]column{{"tasks_per_s", "tasks/s"}}, cost)},
	{"drain", "Drain of due tasks, acknowledged (raw Redis, raw SQLite: claims only)", "concurrency",
		slices.Concat([]column{{"tasks_per_s", "tasks/s"}}, cost, []column{{"claims", "claims/task"}})},
	{"schedule", "Where Redis' time goes: schedule, us a task", "callers", micros},
	{"batch", "Where Redis' time goes: schedule, 100 tasks a call, us a task", "due", micros},
	{"drain", "Where Redis' time goes: drain, us a task", "concurrency", micros},
	{"precision", "Drift at 1,000 tasks/s, 16 slots", "rate",
		slices.Concat(drift, []column{{"early", "early"}, {"earliest_ms", "earliest ms"}}, cost[:3])},
	{"processes", "Worker processes on one queue, 1,000 tasks/s, 16 slots each", "processes",
		slices.Concat(drift, []column{{"early", "early"}, {"claims", "claims/task"}}, cost[:3])},
	{"idle", "Idle, one worker process", "queues",
		[]column{{"commands_per_s", "commands sent/s"}, {"trips_per_s", "bursts/s"}, {"cpu_share", "server CPU share"}}},
	{"memory", "Memory of a scheduled task, ids of 28 bytes", "tasks", []column{{"bytes", "bytes/task"}}},
	{"claim", "Claim of 100 due tasks among scheduled ones", "scheduled",
		[]column{{"claim_p50_ms", "p50 ms"}, {"claim_p99_ms", "p99 ms"}}},
	{"growth", "Growth with what is scheduled", "scheduled",
		[]column{{"schedule_per_s", "schedule/s"}, {"drain_per_s", "drain/s"}, {"claim_p50_ms", "claim of 100 p50 ms"}, {"claim_p99_ms", "p99 ms"}}},
	{"queues", "Growth with queues in one worker process", "queues",
		[]column{{"drain_per_s", "drain/s"}, {"drift_p50_ms", "drift p50 ms"}, {"drift_p99_ms", "p99 ms"}, {"commands_per_s", "idle commands/s"}, {"trips_per_s", "idle bursts/s"}}},
}

// brief is the first figures of a work, for the log.
func (v Values) brief(work string) string {
	var parts []string
	for _, t := range tables {
		if t.work != work {
			continue
		}
		for _, c := range t.columns[:min(3, len(t.columns))] {
			if value, ok := v[c.metric]; ok {
				parts = append(parts, short(value)+" "+c.title)
			}
		}
		break
	}
	return strings.Join(parts, ", ")
}

// Markdown writes the report as a page.
func (r *Report) Markdown(w io.Writer) {
	fmt.Fprintf(w, "%s. Took %s. Medians of up to %d interleaved repeats, min–max beside them; CPU is seconds per 100,000 tasks; commands include those inside scripts.\n\n",
		r.Machine, time.Duration(r.Took*float64(time.Second)).Round(time.Second), r.Sizes.Rounds)
	for _, p := range peers {
		if version, ok := r.Machine.Systems[p.Name]; ok {
			fmt.Fprintf(w, "- %s: %s\n", p.Name, version)
		}
	}
	fmt.Fprintln(w)
	r.writeGoals(w)
	r.writeFailed(w)
	for _, t := range tables {
		t.write(w, r.Lines)
	}
}

func (r *Report) writeGoals(w io.Writer) {
	if len(r.Goals) == 0 {
		return
	}
	fmt.Fprint(w, "### Goals\n\n| what | goal | reached | met |\n|---|---|---|---|\n")
	for _, g := range r.Goals {
		reached, met := "not measured", "–"
		if g.Known {
			reached, met = short(g.Value), "no"
		}
		if g.Met {
			met = "yes"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", g.What, g.Goal, reached, met)
	}
	fmt.Fprintln(w)
}

func (r *Report) writeFailed(w io.Writer) {
	if len(r.Failed) == 0 {
		return
	}
	fmt.Fprint(w, "### Not measured\n\n")
	for _, f := range r.Failed {
		where := strings.TrimSpace(strings.Join([]string{f.System, f.Work, f.Case}, " "))
		fmt.Fprintf(w, "- %s: %s\n", where, strings.Join(strings.Fields(f.Reason), " "))
	}
	fmt.Fprintln(w)
}

func (t table) write(w io.Writer, lines []line) {
	lines = slices.DeleteFunc(slices.Clone(lines), func(l line) bool { return l.Work != t.work || !t.shows(l) })
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "### %s\n\n| %s | system |", t.title, t.parallel)
	for _, c := range t.columns {
		fmt.Fprintf(w, " %s |", c.title)
	}
	fmt.Fprintf(w, "\n|---|---|%s\n", strings.Repeat("---|", len(t.columns)))
	for _, l := range lines {
		fmt.Fprintf(w, "| %s | %s |", l.Case, l.System)
		for _, c := range t.columns {
			fmt.Fprintf(w, " %s |", l.cell(c.metric))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

// shows reports whether a line has any figure of a table.
func (t table) shows(l line) bool {
	return slices.ContainsFunc(t.columns, func(c column) bool { _, ok := l.Figures[c.metric]; return ok })
}

func (l line) cell(metric string) string {
	f, ok := l.Figures[metric]
	switch {
	case !ok:
		return "–"
	case f.N < 2 || f.Min == f.Max:
		return short(f.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", short(f.Median), short(f.Min), short(f.Max))
}

// short writes a number with three digits, or none behind the point from 100 on.
func short(f float64) string {
	switch a := math.Abs(f); {
	case a == 0:
		return "0"
	case a >= 1000:
		return grouped(int(math.Round(f)))
	case a >= 100:
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(f))))
	text := strconv.FormatFloat(f, 'f', min(digits, 5), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// grouped writes a whole number with commas.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// write stores the report as dir/name.md and dir/name.json.
func (r *Report) write(dir, name string) error {
	var page strings.Builder
	r.Markdown(&page)
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name+".md"), []byte(page.String()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".json"), append(data, '\n'), 0o644)
}
