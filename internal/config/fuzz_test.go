package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dueq/dueq/internal/config"
)

// FuzzLoad reads any file and variable: they are taken, and then what is
// printed is the same again or refused for what was hidden, or refused.
func FuzzLoad(f *testing.F) {
	f.Add(full, "30s")
	f.Add("tokens: [{name: a}]\nlisten: *a\n<<: {}\n? [x]\n: y\n", "x: y")
	f.Add("\xef\xbb\xbfgrace: 1s\n--- {}\n", "[{name: a, scopes: [read, reed]}]")
	f.Add("a: &a [*a]\nlog: !!map {level: !!str 5}\nprefix: |\n  text\n", "[[[")
	f.Fuzz(func(t *testing.T, text, variable string) {
		file := filepath.Join(t.TempDir(), "dueq.yaml")
		src := config.Sources{File: file, Env: []string{"DUEQ_GRACE=" + variable, "DUEQ_TOKENS=" + variable, "DUEQ_LISTEN=" + variable}}
		for _, env := range [][]string{nil, src.Env[:1], src.Env[1:2], src.Env[2:]} {
			src.Env = env
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := config.Load(src)
			if err != nil {
				continue
			}
			var b bytes.Buffer
			if err := cfg.Print(&b); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			again, err := config.Load(config.Sources{File: file})
			if strings.Contains(b.String(), "***") {
				continue
			}
			if err != nil || !same(cfg, again) {
				t.Errorf("%s\n%v, got\n%s\nwant\n%s", b.String(), err, values(again), values(cfg))
			}
		}
	})
}
