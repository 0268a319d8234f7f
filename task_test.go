package dueq_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/dueq/dueq"
)

// checkMember checks the law of members for any text: refused, or it reads and
// writes back unchanged and holds what was promised.
func checkMember(t interface {
	Helper()
	Errorf(string, ...any)
}, member string) {
	t.Helper()
	task, err := dueq.ParseMember(member)
	if err != nil {
		if field, ok := err.(*dueq.FieldError); !ok || field.Field == "" || field.Reason == "" {
			t.Errorf("%q: %v is not a FieldError", member, err)
		}
		return
	}
	if got := task.Member(); got != member {
		t.Errorf("%q reads as %+v, which writes as %q", member, task, got)
	}
	if len(member) > dueq.MemberMax || !utf8.ValidString(member) || strings.ContainsFunc(member, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		t.Errorf("%q was accepted", member)
	}
	if err := task.Validate(len(member)); err != nil {
		t.Errorf("%q reads as %+v: %v", member, task, err)
	}
	if err := task.Validate(len(member) - 1); err == nil {
		t.Errorf("%q is accepted with a limit of %d", member, len(member)-1)
	}
}

// checkTask checks the law for any task: refused, or it reads back as it was
// written.
func checkTask(t interface {
	Helper()
	Errorf(string, ...any)
}, task dueq.Task) (valid bool) {
	t.Helper()
	if task.Validate(dueq.MemberMax) != nil {
		return false
	}
	got, err := dueq.ParseMember(task.Member())
	if err != nil || got.ID != task.ID || got.Kind != task.Kind || got.Trace != task.Trace || got.Priority != task.Priority {
		t.Errorf("%+v writes as %q, reads as %+v, %v", task, task.Member(), got, err)
	}
	return true
}

// aPart is text with what matters in members.
var aPart = rapid.StringOf(rapid.OneOf(
	rapid.SampledFrom([]rune("ab:#p09.%{}é世\u2028 \x00\x7f")),
	rapid.Rune(),
))

func TestMember(t *testing.T) {
	t.Run("writes back as it reads", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) { checkMember(t, aPart.Draw(t, "member")) })
	})
	t.Run("reads back as it was written, if valid", func(t *testing.T) {
		t.Parallel()
		valid := 0
		rapid.Check(t, func(t *rapid.T) {
			task := dueq.Task{
				ID: aPart.Draw(t, "id"), Kind: aPart.Draw(t, "kind"), Trace: aPart.Draw(t, "trace"),
				Priority: dueq.Priority(rapid.IntRange(0, 12).Draw(t, "priority")),
			}
			if checkTask(t, task) {
				valid++
			}
		})
		if valid == 0 {
			t.Error("no valid task was drawn")
		}
	})
	t.Run("has these parts", func(t *testing.T) {
		t.Parallel()
		for member, want := range map[string]dueq.Task{
			"order_1":                {ID: "order_1"},
			"order_1:pay":            {ID: "order_1", Kind: "pay"},
			"a:b:c":                  {ID: "a:b", Kind: "c"},
			"a:p5":                   {ID: "a", Priority: dueq.P(5)},
			"a:b:p0":                 {ID: "a", Kind: "b", Priority: dueq.P(0)},
			"a:b:p9#t:r:p1":          {ID: "a", Kind: "b", Priority: dueq.P(9), Trace: "t:r:p1"},
			"a#t":                    {ID: "a", Trace: "t"},
			"a:p10":                  {ID: "a", Kind: "p10"},
			"a:P5":                   {ID: "a", Kind: "P5"},
			"p5":                     {ID: "p5"},
			"p5:p5":                  {ID: "p5", Priority: dueq.P(5)},
			":k":                     {}, // refused, see below
			"日本:語":                   {ID: "日本", Kind: "語"},
			"{a}:b":                  {ID: "{a}", Kind: "b"},
			"..:k":                   {},
			"...":                    {ID: "..."},
			strings.Repeat("x", 512): {ID: strings.Repeat("x", 512)},
		} {
			got, err := dueq.ParseMember(member)
			if (err != nil) != (want.ID == "") || err == nil && (got.ID != want.ID || got.Kind != want.Kind || got.Priority != want.Priority || got.Trace != want.Trace) {
				t.Errorf("%q: %+v, %v; want %+v", member, got, err, want)
			}
		}
	})
	t.Run("is refused, the field named", func(t *testing.T) {
		t.Parallel()
		for member, field := range map[string]string{
			"":                       "member",
			":":                      "kind",
			":k":                     "id",
			"a:":                     "kind",
			"a:b:":                   "kind",
			"a::p1":                  "kind",
			":p1":                    "id",
			"#t":                     "id",
			"a#":                     "trace",
			"a#b#c":                  "trace",
			"a:p1:p2":                "kind",
			"a:b:p1:p2":              "kind",
			".":                      "id",
			"..":                     "id",
			"..:k":                   "id",
			"a b":                    "id",
			"a:b c":                  "kind",
			"a#b c":                  "trace",
			"a\n":                    "id",
			"a\x00":                  "id",
			"a\u00a0b":               "id",
			"a\u2028b":               "id",
			"a\u0085b":               "id",
			"a\xffb":                 "id",
			"a:\xff":                 "kind",
			strings.Repeat("x", 513): "member",
			strings.Repeat("é", 257): "member",
		} {
			_, err := dueq.ParseMember(member)
			wantField(t, err, field)
		}
	})
}

func FuzzParseMember(f *testing.F) {
	for _, seed := range []string{"order_1", "a:b:p5#t", "a:p1:p2", "a::p1", "#", ":", "..", "a\u2028b", "\xff", strings.Repeat("x", 513)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, member string) { checkMember(t, member) })
}

func FuzzTask(f *testing.F) {
	for _, seed := range []dueq.Task{{ID: "order_1"}, {ID: "a:b", Kind: "c", Trace: "t:r:p1"}, {ID: "a", Kind: "p0"}, {ID: "p5"}, {ID: "a", Trace: "#"}} {
		f.Add(seed.ID, seed.Kind, seed.Trace, uint8(seed.Priority))
	}
	f.Fuzz(func(t *testing.T, id, kind, trace string, priority uint8) {
		checkTask(t, dueq.Task{ID: id, Kind: kind, Trace: trace, Priority: dueq.Priority(priority)})
	})
}

func TestTaskIsRefused(t *testing.T) {
	t.Parallel()
	for field, tasks := range map[string][]dueq.Task{
		"id":       {{}, {ID: "."}, {ID: "a#b"}, {ID: "a b"}, {ID: "a\x1b[0m"}},
		"kind":     {{ID: "a:b"}, {ID: "a", Kind: "b:c"}, {ID: "a", Kind: "b#c"}, {ID: "a", Kind: "p0"}, {ID: "a", Kind: " "}},
		"trace":    {{ID: "a", Trace: "b#c"}, {ID: "a", Trace: "\t"}},
		"priority": {{ID: "a", Priority: 11}},
		"member":   {{ID: strings.Repeat("x", 65)}, {ID: strings.Repeat("x", 60), Kind: "kind"}, {ID: strings.Repeat("x", 62), Priority: dueq.P(1)}, {ID: strings.Repeat("x", 63), Trace: "t"}},
	} {
		for _, task := range tasks {
			wantField(t, task.Validate(dueq.DefaultMemberMax), field)
		}
	}
	if err := (dueq.Task{ID: strings.Repeat("x", 59), Kind: "kind"}).Validate(dueq.DefaultMemberMax); err != nil {
		t.Errorf("64 bytes: %v", err)
	}
}

func TestQueueNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"q", "order:close", "A-1_b.c:d", "9", "traces", "tracer:x", "q:trace", strings.Repeat("q", 128)} {
		if err := dueq.ValidateQueue(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "trace", "trace:", "trace:x", "@queues", "q@1", "{q}", "a b", ":a", "-a", ".a", "_a", "é", "a\n", "a*", "a/b", strings.Repeat("q", 129)} {
		wantField(t, dueq.ValidateQueue(name), "queue")
	}
}

func TestPriority(t *testing.T) {
	t.Parallel()
	for n := range 10 {
		if got := dueq.P(n).Level(); got != n {
			t.Errorf("P(%d).Level() is %d", n, got)
		}
	}
	if got := dueq.Priority(0).Level(); got != 0 {
		t.Errorf("no priority is level %d", got)
	}
	for _, n := range []int{-1, 10} {
		if !panics(func() { dueq.P(n) }) {
			t.Errorf("P(%d) did not panic", n)
		}
	}
}
