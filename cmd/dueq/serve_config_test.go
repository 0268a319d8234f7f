package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dueq/dueq/httpapi"
	"github.com/dueq/dueq/internal/config"
	"github.com/dueq/dueq/internal/redistest"
)

func TestConfigNamesTheStoreForEveryCommand(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t).URL()
	c := onServer(t, redis, nil)
	c.extra = nil
	c.schedule(t, "here", "m", farWhen) // under the prefix test:
	file := configFile(t, "store: "+redis+"\nprefix: \"test:\"\n")
	sqlite := onSQLite(t)
	sqlite.schedule(t, "there", "m", farWhen)
	for name, run := range map[string]struct {
		env, args []string
		has       string
	}{
		"the flag":                     {nil, []string{"--config", file}, "here"},
		"the variable":                 {[]string{"DUEQ_CONFIG=" + file}, nil, "here"},
		"DUEQ_STORE over it":           {[]string{"DUEQ_STORE=" + sqlite.url}, []string{"--config", file}, "there"},
		"--store over both":            {[]string{"DUEQ_STORE=redis://127.0.0.1:1"}, []string{"--config", file, "--store", sqlite.url}, "there"},
		"DUEQ_PREFIX":                  {[]string{"DUEQ_STORE=" + redis, "DUEQ_PREFIX=test:"}, nil, "here"},
		"--prefix over it":             {[]string{"DUEQ_STORE=" + redis, "DUEQ_PREFIX=other:"}, []string{"--prefix", "test:"}, "here"},
		"the prefix of a URL":          {nil, []string{"--store", redis + "?prefix=test:"}, "here"},
		"what serve alone needs aside": {[]string{"DUEQ_STORE=" + sqlite.url, "DUEQ_GRACE=nonsense"}, nil, "there"},
	} {
		cmd := (&cli{}).command(t, append(run.args, "queues", "-o", "json")...)
		cmd.Env = append(os.Environ(), run.env...)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), `"`+run.has+`"`) {
			t.Errorf("%s: %v, want the queue %s:\n%s", name, err, run.has, out)
		}
	}
}

func TestConfigProblemsAreALineEach(t *testing.T) {
	t.Parallel()
	file := configFile(t, "stor: a\nlog: {level: loud}\ngrace: \"\\n\\x1b[2J\"\n")
	for _, line := range [][]string{{"serve", "--drain", "x"}, {"serve", "--print-config", "--drain", "x"}, {"queues"}} {
		r := onMemory(t).run(t, "", append(line, "--config", file)...).must(t, 2)
		want := []string{": stor is not a key, perhaps store (" + file + ":1)", ": grace \"", ": log.level \"loud\" is not one of", ": drain \"x\" is not a duration"}
		if line[0] != "serve" {
			want = want[:3]
		}
		got := strings.SplitAfter(strings.TrimSuffix(r.stderr, "\n"), "\n")
		for _, text := range want {
			if !strings.Contains(r.stderr, "dueq: "+line[0]+text) {
				t.Errorf("%v: stderr lacks %s:\n%s", line, text, r.stderr)
			}
		}
		if len(got) != len(want) || r.stdout != "" || strings.Contains(r.stderr, "\x1b") {
			t.Errorf("%v: want %d lines on stderr\nstdout: %s\nstderr: %s", line, len(want), r.stdout, r.stderr)
		}
	}
	onMemory(t).run(t, "", "queues", "--config", "/nosuch/dueq.yaml").must(t, 2).says(t, "dueq: queues: config cannot be read: no such file or directory (/nosuch/dueq.yaml)\n")
}

func TestConfigIsPrinted(t *testing.T) {
	t.Parallel()
	c := onMemory(t)
	c.url = "redis://u:s3cret@h"
	file := configFile(t, "grace: 1m\n")
	r := c.run(t, "", "serve", "--print-config", "--config", file, "--listen", "127.0.0.1:0,localhost:1", "--log-level", "debug").must(t, 0)
	r.has(t, "store: redis://u:***@h # $DUEQ_STORE\n", "listen: # --listen\n  - 127.0.0.1:0\n  - localhost:1\n", "grace: 1m # "+file+":1\n", "level: debug # --log-level\n")
	again := onMemory(t)
	again.url = ""
	again.run(t, "", "serve", "--print-config", "--config", configFile(t, r.stdout)).must(t, 2).says(t, "store has *** where the password was")
	var view struct {
		Config  map[string]any
		Sources map[string]string
	}
	r = c.run(t, "", "serve", "--print-config", "--config", file, "-o", "json").must(t, 0)
	if err := json.Unmarshal([]byte(r.stdout), &view); err != nil || view.Config["grace"] != "1m" || view.Sources["grace"] != file+":1" || view.Sources["log.level"] != "default" || strings.Contains(r.stdout, "s3cret") {
		t.Errorf("%v: %s", err, r.stdout)
	}
}

func TestConfigWarningsAreLogged(t *testing.T) {
	t.Parallel()
	file := configFile(t, "push: {secrets: [{queue: a, secrets: ["+webhookSecret+"]}]}\n")
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	p := inMemory().command(t, "serve", "--config", file, "--listen", "256.0.0.1:0", "--insecure-any-host", "--log-format", "json")
	p.Env = append(p.Env, "DUEQ_LISTN=:80")
	out, _ := p.CombinedOutput()
	for _, text := range []string{`"level":"WARN","msg":"check the configuration","why":"the variable DUEQ_LISTN is not known, perhaps DUEQ_LISTEN"`, `"why":"` + file + ` has secrets and everybody on this machine may read it: chmod o-r"`} {
		if !strings.Contains(string(out), text) {
			t.Errorf("the log lacks %s:\n%s", text, out)
		}
	}
}

// TestConfigTakesNoTokenThatTheServerRefuses compares the two that check them.
func TestConfigTakesNoTokenThatTheServerRefuses(t *testing.T) {
	t.Parallel()
	taken := 0
	for _, name := range []string{"a", strings.Repeat("a", 64), strings.Repeat("a", 65), "a.b-c_D9", "", "a b", "é"} {
		for _, queue := range []string{"*", "order:*", "*:close", "a", "a*b", "", "a b", "trace:*", ".a", strings.Repeat("a", 128), strings.Repeat("a", 129)} {
			for _, scope := range append(config.Scopes, "", "all") {
				_, hash := httpapi.NewToken()
				file := filepath.Join(t.TempDir(), "dueq.yaml")
				if err := os.WriteFile(file, []byte("tokens: [{name: \""+name+"\", hash: \""+hash+"\", scopes: [\""+scope+"\"], queues: [\""+queue+"\"]}]\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				cfg, err := config.Load(config.Sources{File: file})
				if err != nil {
					continue
				}
				taken++
				if err := tokenOf(cfg.Tokens[0]).Validate(); err != nil {
					t.Errorf("name %q, queue %q, scope %q: %v", name, queue, scope, err)
				}
			}
		}
	}
	if taken < 3*5*4 {
		t.Errorf("only %d were taken", taken)
	}
}

// readmeCall is a call of the README's part about HTTP.
var readmeCall = regexp.MustCompile(`(?m)^curl --json '(.*)' http://127\.0\.0\.1:8080(\S+)$`)

func TestServeAsTheReadmeSays(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	calls := readmeCall.FindAllStringSubmatch(string(readme), -1)
	if len(calls) != 2 {
		t.Fatalf("got %d calls: %v", len(calls), calls)
	}
	s := inMemory().ready(t)
	s.call(t, "POST "+calls[0][2], calls[0][1]).must(t, 201)
	s.call(t, "POST "+calls[1][2], calls[1][1]).must(t, 200, `"member":"order_123456:pay_timeout"`)
	s.stop(t)
}
