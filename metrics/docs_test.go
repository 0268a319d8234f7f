package metrics_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/metrics"
)

// everything returns metrics of which each has a series.
func everything(t *testing.T) *metrics.Metrics {
	t.Helper()
	plain, _ := frozen()
	m := metrics.New(plain, metrics.Options{})
	store := m.Observe(m.Wrap(plain))
	schedule(t, store, "q", dueq.At(epoch.Add(-time.Second)), "1:x", "2:x")
	_, err := store.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 1})
	must(t, err)
	task := &dueq.Task{Queue: "q"}
	o := m.Observer()
	o.Started(task, time.Millisecond)
	o.Ended(task, dueq.VerdictAck, time.Second, nil)
	ask(m.HTTP(routes()), "GET", "/v1/queues/q/tasks/x")
	return m
}

// family is what a metric is.
type family struct{ kind, labels string }

// families reads what a scrape declares.
func families(t *testing.T, text string) map[string]family {
	t.Helper()
	found := map[string]family{}
	for _, line := range regexp.MustCompile(`(?m)^# TYPE (\w+) (\w+)$`).FindAllStringSubmatch(text, -1) {
		found[line[1]] = family{kind: line[2]}
	}
	label := regexp.MustCompile(`(\w+)="`)
	for series := range parse(t, text) {
		name, labels, _ := strings.Cut(series, "{")
		if _, declared := found[name]; !declared {
			name = name[:strings.LastIndexByte(name, '_')] // _bucket, _sum, _count
		}
		var names []string
		for _, match := range label.FindAllStringSubmatch(labels, -1) {
			if match[1] != "le" {
				names = append(names, match[1])
			}
		}
		slices.Sort(names)
		found[name] = family{found[name].kind, strings.Join(names, ", ")}
	}
	return found
}

func readDoc(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join("..", "docs", "metrics.md"))
	must(t, err)
	return string(doc)
}

func TestDocsListEveryMetricAndNoOther(t *testing.T) {
	t.Parallel()
	documented := map[string]family{}
	for line := range strings.Lines(readDoc(t)) {
		if cells := strings.Split(line, "|"); len(cells) == 8 && strings.Contains(cells[1], "`") {
			labels := strings.Split(strings.TrimSpace(cells[3]), ", ")
			slices.Sort(labels)
			documented[strings.Trim(cells[1], " `")] = family{strings.TrimSpace(cells[2]), strings.Join(labels, ", ")}
		}
	}
	told := families(t, scrapeText(t, everything(t).Handler()))
	maps.DeleteFunc(told, func(name string, _ family) bool { return !strings.HasPrefix(name, "dueq_") })
	if len(told) < 20 {
		t.Fatalf("only %d metrics", len(told))
	}
	for name, f := range told {
		if documented[name] != f {
			t.Errorf("%s is a %s with labels %q, the docs say %+v", name, f.kind, f.labels, documented[name])
		}
	}
	for name := range documented {
		if _, ok := told[name]; !ok {
			t.Errorf("the docs list %s, which there is not", name)
		}
	}
}

// The reasons, events, states and so on of the docs.
func TestDocsNameEveryValueOfALabel(t *testing.T) {
	t.Parallel()
	doc := readDoc(t)
	value := regexp.MustCompile(`(reason|outcome|error|state|event)="(\w+)"`)
	for series := range scrape(t, everything(t)).ours() {
		for _, match := range value.FindAllStringSubmatch(series, -1) {
			if !regexp.MustCompile(`\b` + match[2] + `\b`).MatchString(doc) {
				t.Errorf("the docs do not name the %s %s", match[1], match[2])
			}
		}
	}
}

func TestPromtoolHasNothingToSayAboutTheMetrics(t *testing.T) {
	t.Parallel()
	m := everything(t)
	users := prometheus.NewPedanticRegistry() // checks what is collected against what was described
	users.MustRegister(m)
	for name, text := range map[string]string{
		"Handler":           scrapeText(t, m.Handler()),
		"a user's registry": scrapeText(t, promhttp.HandlerFor(users, promhttp.HandlerOpts{})),
		"no store":          scrapeText(t, metrics.New(nil, metrics.Options{}).Handler()),
	} {
		if !strings.Contains(text, "dueq_build_info{") {
			t.Errorf("%s has nothing of dueq", name)
		}
		if said := promtool(t, text, "check", "metrics"); said != "" {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// Queries in the docs parse and are about metrics that exist.
func TestQueriesInTheDocsAreValid(t *testing.T) {
	t.Parallel()
	queries := regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(readDoc(t), -1)
	if len(queries) < 10 {
		t.Fatalf("only %d queries", len(queries))
	}
	told := families(t, scrapeText(t, everything(t).Handler()))
	metric := regexp.MustCompile(`\b(?:dueq|go|process)_\w+`)
	rules := "groups:\n- name: docs\n  rules:\n"
	for i, query := range queries {
		rules += fmt.Sprintf("  - alert: Query%d\n", i) + "    expr: |\n      " + strings.ReplaceAll(query[1], "\n", "\n      ") + "\n"
		for _, name := range metric.FindAllString(query[1], -1) {
			_, whole := told[name]
			if _, part := told[name[:strings.LastIndexByte(name, '_')]]; !whole && !part {
				t.Errorf("there is no %s", name)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	must(t, os.WriteFile(file, []byte(rules), 0o600))
	if said := promtool(t, "", "check", "rules", file); !strings.Contains(said, "SUCCESS") {
		t.Errorf("promtool says %s of\n%s", said, rules)
	}
}

// promtool returns all it says. Debian has it in the package prometheus.
func promtool(t *testing.T, input string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, &out)
	}
	return out.String()
}
