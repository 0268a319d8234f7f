package config

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented are the rows of the table in docs/config.md: key and default.
var documented = regexp.MustCompile("(?m)^\\| `([a-z_.\\[\\]]+)` \\|(.*?)\\|")

func docs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDocsHaveEveryKeyWithItsDefault(t *testing.T) {
	t.Parallel()
	want := map[string]string{"store": "a file in your data directory", "prefix": "of the store"}
	for _, k := range keys {
		if _, special := want[k.path]; !special {
			want[k.path] = defaultText(valueOf(Default(), k.path))
		}
		if elem := k.typ; elem.Kind() == reflect.Slice && elem.Elem().Kind() == reflect.Struct {
			for name := range fieldsOf(elem.Elem()) {
				want[k.path+"[]."+name] = ""
			}
		}
	}
	want["tokens[].queues"] = "all"
	got := map[string]string{}
	for _, row := range documented.FindAllStringSubmatch(docs(t), -1) {
		got[row[1]] = strings.TrimSpace(row[2])
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if text, ok := got[key]; !ok || text != want[key] {
			t.Errorf("%s: the docs say %q, want %q (there: %v)", key, text, want[key], ok)
		}
		delete(got, key)
	}
	if len(got) > 0 {
		t.Errorf("the docs have keys that are none: %v", got)
	}
}

func defaultText(v reflect.Value) string {
	switch {
	case v.Kind() != reflect.Slice:
		return scalarNode(v).Value
	case v.Len() == 0:
		return "none"
	}
	return v.Index(0).String()
}

// TestDocsHaveAnExampleThatLoads reads the first YAML of the docs.
func TestDocsHaveAnExampleThatLoads(t *testing.T) {
	t.Parallel()
	_, example, _ := strings.Cut(docs(t), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	dir := t.TempDir()
	for name, text := range map[string]string{"dueq.yaml": example, "push.secrets": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := Load(Sources{File: filepath.Join(dir, "dueq.yaml")})
	if err != nil || len(cfg.Tokens) != 2 || len(cfg.Push.Secrets) != 1 || len(cfg.Warnings()) > 0 {
		t.Errorf("got %+v, %v", cfg, err)
	}
}

// TestDocsHaveMessagesAsTheyAre checks the examples of what is refused.
func TestDocsHaveMessagesAsTheyAre(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "dueq.yaml")
	text := "\n\nlisen: []\n\n\n\n\ntokens:\n  - {name: a, hash: " + strings.Repeat("a", 64) + ", scopes: [read]}\n  -\n    name: b\n    hash: x\n    scopes:\n      - reed\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(Sources{File: file, Env: []string{"DUEQ_LIMITS_HEADER=4MB"}})
	problems, _ := err.(Problems)
	said := map[string]bool{}
	for _, p := range problems {
		said[strings.ReplaceAll(p.Error(), file, "dueq.yaml")] = true
	}
	n := 0
	for line := range strings.Lines(docs(t)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "dueq: serve: "); ok {
			n++
			if !said[text] {
				t.Errorf("nobody says %s, but\n%v", text, err)
			}
		}
	}
	if n == 0 {
		t.Error("the docs have no examples of messages")
	}
}
