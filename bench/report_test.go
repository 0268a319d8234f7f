package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for value, want := range map[float64]string{
		0: "0", 0.0666: "0.0666", 0.5: "0.5", 2: "2", 2.346: "2.35", 12.34: "12.3", 100: "100", 123.4: "123",
		1234.5: "1,235", 1_000_000: "1,000,000", -0.93: "-0.93", -1500: "-1,500", 99.97: "100",
	} {
		if got := short(value); got != want {
			t.Errorf("short(%v) = %q, want %q", value, got, want)
		}
	}
}

func lineOfTest(work, kase, system, metric string, median float64) line {
	return line{work, kase, system, map[string]Figure{metric: {median, median - 1, median + 1, 3}}}
}

func TestGoalsAreHeldAgainstMediansOfTheSameRun(t *testing.T) {
	t.Parallel()
	lines := []line{
		lineOfTest("schedule", "128", "dueq", "tasks_per_s", 600),
		lineOfTest("schedule", "128", "asynq", "tasks_per_s", 100),
		lineOfTest("schedule", "128", "textbook", "tasks_per_s", 200),
		lineOfTest("precision", "1,000/s", "dueq", "drift_p50_ms", 0.6),
		lineOfTest("precision", "1,000/s", "dueq", "drift_p99_ms", 1.6),
	}
	found := make(map[string]Reached)
	for _, g := range reach(goals(), lines) {
		found[g.What] = g
	}
	for what, want := range map[string]Reached{
		"schedule, 128 callers: × asynq":    {Goal: "≥ 5", Value: 6, Known: true, Met: true},
		"schedule, 128 callers: × textbook": {Goal: "≥ 3.5", Value: 3, Known: true},
		"schedule, 128 callers: × BullMQ":   {Goal: "≥ 6"},
		"drift at 1,000/s, p50, ms":         {Goal: "≤ 0.7", Value: 0.6, Known: true, Met: true},
		"drift at 1,000/s, p99, ms":         {Goal: "≤ 1.5", Value: 1.6, Known: true},
	} {
		want.What = what
		if found[what] != want {
			t.Errorf("got %+v, want %+v", found[what], want)
		}
	}
}

// A goal that names a metric or a case that nothing measures would stay "not
// measured" for ever.
func TestEveryGoalNamesWhatIsMeasured(t *testing.T) {
	t.Parallel()
	o := options{full: true}
	cases := make(map[[2]string]bool)
	for _, m := range o.measurements(o.sizes()) {
		cases[[2]string{m.Work, m.Case}] = true
	}
	metrics := make(map[[2]string]bool)
	for _, table := range tables {
		for _, c := range table.columns {
			metrics[[2]string{table.work, c.metric}] = true
		}
	}
	for _, g := range goals() {
		for _, r := range []ref{g.of, g.over} {
			if r == (ref{}) {
				continue
			}
			p, err := findPeer(r.system)
			if err != nil || !p.does(r.work) || !cases[[2]string{r.work, r.kase}] || !metrics[[2]string{r.work, r.metric}] {
				t.Errorf("%s: nothing measures %+v", g.what, r)
			}
		}
	}
}

func TestReportBeginsWithTheMachineAndShowsGoalsFailuresAndSpans(t *testing.T) {
	t.Parallel()
	r := Report{
		Machine: Machine{OS: "Debian", Cores: 2, Systems: map[string]string{"asynq": "v0.26.0"}},
		Goals:   []Reached{{What: "a", Goal: "≥ 5", Value: 6, Known: true, Met: true}, {What: "b", Goal: "≤ 1"}},
		Failed:  []Failure{{System: "BullMQ", Reason: "is not\ninstalled"}},
		Lines:   []line{lineOfTest("schedule", "128", "dueq", "tasks_per_s", 5000)},
	}
	var page strings.Builder
	r.Markdown(&page)
	if !strings.HasPrefix(page.String(), "Debian") {
		t.Errorf("the page begins with %.40q", page.String())
	}
	for _, want := range []string{
		"- asynq: v0.26.0\n", "| a | ≥ 5 | 6 | yes |\n", "| b | ≤ 1 | not measured | – |\n",
		"- BullMQ: is not installed\n", "| 128 | dueq | 5,000 (4,999–5,001) | – |",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is missing from\n%s", want, page.String())
		}
	}
}

func TestReportIsWrittenAsPageAndAsJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	want := Report{Lines: []line{lineOfTest("idle", "1", "dueq", "commands_per_s", 2)}}
	if err := want.write(filepath.Join(dir, "new"), "peers"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "new", "peers.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got Report
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Lines) != 1 || got.Lines[0].Figures["commands_per_s"].Median != 2 {
		t.Errorf("the JSON reads back as %+v", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "new", "peers.md")); err != nil {
		t.Error(err)
	}
}

func TestDocumentKeepsWhatIsOutsideTheMarkers(t *testing.T) {
	t.Parallel()
	document := "before\n<!-- bench:peers -->\nold\n<!-- /bench:peers -->\nafter\n"
	got, err := insert(document, "peers", "new\n\n")
	if want := "before\n<!-- bench:peers -->\nnew\n<!-- /bench:peers -->\nafter\n"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for _, broken := range []string{"no markers", "<!-- bench:peers --> not closed"} {
		if _, err := insert(broken, "peers", "new"); err == nil {
			t.Errorf("%q was accepted", broken)
		}
	}
}

func TestDocumentOfTheProjectHasTheMarkers(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"peers", "growth"} {
		if _, err := insert(string(document), name, ""); err != nil {
			t.Error(err)
		}
	}
}

func TestPictureIsWellFormedAndStaysInsideItsPanels(t *testing.T) {
	t.Parallel()
	lines := []line{
		lineOfTest("growth", "10,000", "dueq", "schedule_per_s", 300_000),
		lineOfTest("growth", "10,000,000", "dueq", "schedule_per_s", 90_000),
	}
	var b strings.Builder
	drawPicture(&b, lines)
	decoder := xml.NewDecoder(strings.NewReader(b.String()))
	circles := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		element, ok := token.(xml.StartElement)
		if !ok || element.Name.Local != "circle" {
			continue
		}
		circles++
		for _, a := range element.Attr {
			limit := map[string]float64{"cx": panelWidth, "cy": panelHeight}[a.Name.Local]
			if v := number(a.Value); limit > 0 && (v < 0 || v > limit) {
				t.Errorf("%s is %v, outside 0 to %v", a.Name.Local, v, limit)
			}
		}
	}
	if circles != 2 {
		t.Errorf("%d points are drawn, want 2", circles)
	}
}

func TestAxesEndAtRoundNumbers(t *testing.T) {
	t.Parallel()
	for value, want := range map[float64]float64{0: 0, 0.3: 0.5, 1: 1, 1.1: 2, 4.9: 5, 51: 100, 330_000: 500_000} {
		if got := roundUp(value); got < want*0.999 || got > want*1.001 {
			t.Errorf("roundUp(%v) = %v, want %v", value, got, want)
		}
	}
}
