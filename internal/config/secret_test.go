package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dueq/dueq/internal/config"
)

func TestSecretsFromAFile(t *testing.T) {
	t.Parallel()
	file := write(t, "push:\n  secrets:\n    - {queue: \"*\", secrets_file: push.secrets}\n")
	secrets := filepath.Join(filepath.Dir(file), "push.secrets")
	load := func(text string) (config.Config, error) {
		if err := os.WriteFile(secrets, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return config.Load(config.Sources{File: file})
	}
	cfg, err := load("# new\n" + whA + "\r\n\n  " + whB)
	if err != nil || !slices.Equal(cfg.Push.Secrets[0].Secrets, []string{whA, whB}) {
		t.Errorf("got %v, %v", cfg.Push.Secrets, err)
	}
	for text, want := range map[string]string{
		"":                            "push.secrets[0].secrets_file " + secrets + " has no secret (" + file + ":3)",
		"# none\n":                    "push.secrets[0].secrets_file " + secrets + " has no secret",
		whA + "\nS3CRET\n":            "push.secrets[0].secrets_file[1] does not begin with whsec_",
		strings.Repeat("x", 1<<20+1):  "push.secrets[0].secrets_file " + secrets + " cannot be read: it is larger than 1 MiB",
		strings.Repeat(whA+"\n", 100): "push.secrets[0].secrets_file holds 100 secrets",
	} {
		if _, err := load(text); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "S3CRET") {
			t.Errorf("%.40q: got %v, want %s", text, err, want)
		}
	}
	if err := os.Remove(secrets); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(secrets, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(config.Sources{File: file}); err == nil || !strings.Contains(err.Error(), "cannot be read: is a directory") {
		t.Errorf("a directory: got %v", err)
	}
}

func TestFilesWithSecretsThatAllMayReadAreWarnedOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, more string
		mode       os.FileMode
		want       bool
	}{
		"nothing secret":            {"tokens: [{name: a, hash: \"" + hashA + "\", scopes: [read]}]\nstore: redis://h\n", "", 0o644, false},
		"a password":                {"store: redis://u:p@h\n", "", 0o644, true},
		"a password for the group":  {"store: redis://u:p@h\n", "", 0o640, false},
		"a secret":                  {"push: {secrets: [{queue: a, secrets: [" + whA + "]}]}\n", "", 0o644, true},
		"a secret, for one":         {"push: {secrets: [{queue: a, secrets: [" + whA + "]}]}\n", "", 0o600, false},
		"a secret in another file":  {"push: {secrets: [{queue: a, secrets_file: more}]}\n", whA, 0o644, true},
		"a password in environment": {"grace: 1s\n", "", 0o644, false},
	} {
		file := write(t, c.file)
		more := filepath.Join(filepath.Dir(file), "more")
		if err := os.WriteFile(more, []byte(c.more), 0o600); err != nil {
			t.Fatal(err)
		}
		open := file
		if c.more != "" {
			open = more
		}
		if err := os.Chmod(open, c.mode); err != nil {
			t.Fatal(err)
		}
		src := config.Sources{File: file}
		if name == "a password in environment" {
			src.Env = []string{"DUEQ_STORE=redis://u:p@h"}
		}
		cfg, err := config.Load(src)
		if got := slices.Contains(cfg.Warnings(), open+" has secrets and everybody on this machine may read it: chmod o-r"); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v; want a warning: %v", name, cfg.Warnings(), err, c.want)
		}
	}
}
