package main

import (
	"encoding/json"
	"testing"
	"unicode"
)

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"plain ünïcode ✓ \\n": "plain ünïcode ✓ \\n",
		"a\x1b[31m\n\t\x7f":   `a\x1b[31m\n\t\x7f`,
		"\u009b\u202e\ufeff":  `\u009b\u202e\ufeff`,
		"bad\xffutf8 \ufffd":  `bad\xffutf8 ` + "\ufffd",
	} {
		if got := escape(in); got != want {
			t.Errorf("escape(%q) = %s, want %s", in, got, want)
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a\x1b\u202e\U000e0001\xff\n")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range escape(s) {
			if !unicode.IsPrint(r) {
				t.Fatalf("escape(%q) has %U", s, r)
			}
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		escaped := escapeJSON(text)
		for _, r := range string(escaped) {
			if !unicode.IsPrint(r) {
				t.Fatalf("escapeJSON of %q has %U", s, r)
			}
		}
		var before, after string
		if json.Unmarshal(text, &before) != nil || json.Unmarshal(escaped, &after) != nil || before != after {
			t.Fatalf("escapeJSON changed %q to %q", before, after)
		}
	})
}
