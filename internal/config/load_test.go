package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/config"
)

const (
	hashA = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	hashB = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	whA   = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	whB   = "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY="
)

const full = `
store: redis://:s3cret@redis.internal:6379/2?pool_size=30
prefix: "shop:"
listen: [0.0.0.0:8080, unix:/run/dueq/dueq.sock]
insecure_any_host: false
trusted_origins:
  - https://ops.example.com
tokens:
  - name: shop
    hash: ` + hashA + `
    scopes: [publish, read]
    queues: ["order:*"]
  - {name: ops, hash: "` + hashB + `", scopes: [admin]}
limits:
  member: 100
  header: 65536
  header_timeout: 1s
  idle_timeout: 5m
  open_polls: 20
  open_streams: 3
push:
  secrets:
    - queue: order:*
      secrets:
        - ` + whA + `
        - ` + whB + `
  unsigned: true
  allow_private: true
  allowed_networks: [10.1.0.0/16, "fd00::/8"]
  timeout: 3s
metrics: {enabled: false, max_queues: 7}
log:
  level: debug
  format: json
drain: 5s
grace: 1m
`

// write puts a file beside nothing else, for its owner only.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dueq.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// same compares what can be set.
func same(a, b config.Config) bool { return values(a) == values(b) }

func values(cfg config.Config) string {
	v, text := reflect.ValueOf(cfg), ""
	for i := range v.NumField() {
		if v.Type().Field(i).IsExported() {
			text += fmt.Sprintf("%s: %#v\n", v.Type().Field(i).Name, v.Field(i).Interface())
		}
	}
	return strings.NewReplacer("(nil)", "{}").Replace(text)
}

func TestLoadReadsEveryKey(t *testing.T) {
	t.Parallel()
	got, err := config.Load(config.Sources{File: write(t, full)})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{
		Store: "redis://:s3cret@redis.internal:6379/2?pool_size=30", Prefix: "shop:",
		Listen: []string{"0.0.0.0:8080", "unix:/run/dueq/dueq.sock"}, TrustedOrigins: []string{"https://ops.example.com"},
		Tokens: []config.Token{
			{Name: "shop", Hash: hashA, Scopes: []string{"publish", "read"}, Queues: []string{"order:*"}},
			{Name: "ops", Hash: hashB, Scopes: []string{"admin"}},
		},
		Limits: config.Limits{
			Member: 100, Header: 64 << 10, HeaderTimeout: time.Second, IdleTimeout: 5 * time.Minute,
			OpenPolls: 20, OpenStreams: 3,
		},
		Push: config.Push{
			Secrets:  []config.PushSecret{{Queue: "order:*", Secrets: []string{whA, whB}}},
			Unsigned: true, AllowPrivate: true, Timeout: 3 * time.Second, AllowedNetworks: []string{"10.1.0.0/16", "fd00::/8"},
		},
		Metrics: config.Metrics{MaxQueues: 7}, Log: config.Log{Level: "debug", Format: "json"},
		Drain: 5 * time.Second, Grace: time.Minute,
	}
	if !same(got, want) {
		t.Errorf("got\n%s\nwant\n%s", values(got), values(want))
	}
	if len(got.Warnings()) != 0 {
		t.Errorf("warnings: %v", got.Warnings())
	}
}

func TestLoadOfNothingIsTheDefault(t *testing.T) {
	t.Parallel()
	want := config.Default()
	want.Store = "sqlite:/data/dueq.db"
	for _, text := range []string{"", "\n# a comment\n", "---\n", "tokens:\nlimits:\npush:\n", "{}"} {
		got, err := config.Load(config.Sources{Store: want.Store, File: write(t, text), Env: []string{"HOME=/root", "DUEQ_GRACE="}})
		if err != nil || !same(got, want) || !got.IsDefault("grace") {
			t.Errorf("%q: got\n%s%v", text, values(got), err)
		}
	}
}

func TestLaterSourcesWin(t *testing.T) {
	t.Parallel()
	src := config.Sources{
		Store: "memory:",
		File:  write(t, "store: redis://file\nprefix: \"file:\"\ngrace: 1s\nlisten: [127.0.0.1:1, 127.0.0.1:2, 127.0.0.1:3]\nlog: {level: warn, format: json}\n"),
		Env: []string{
			"DUEQ_STORE=redis://env", "DUEQ_PREFIX=env:", "DUEQ_LISTEN=127.0.0.1:4, localhost:5", "DUEQ_LOG_LEVEL=error",
			"DUEQ_LIMITS_HEADER=512KiB", "DUEQ_METRICS_ENABLED=false",
			`DUEQ_TOKENS=[{name: env, hash: "` + hashA + `", scopes: [read]}]`,
		},
		Flags: map[string]string{"store": "redis://flag", "log.level": "debug"},
	}
	got, err := config.Load(src)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Store, want.Prefix, want.Grace, want.Listen = "redis://flag", "env:", time.Second, []string{"127.0.0.1:4", "localhost:5"}
	want.Log, want.Limits.Header, want.Metrics.Enabled = config.Log{Level: "debug", Format: "json"}, 512<<10, false
	want.Tokens = []config.Token{{Name: "env", Hash: hashA, Scopes: []string{"read"}}}
	if !same(got, want) {
		t.Errorf("got\n%s\nwant\n%s", values(got), values(want))
	}
	for path, isDefault := range map[string]bool{"store": false, "grace": false, "drain": true, "tokens": false, "limits.header": false, "limits.member": true} {
		if got.IsDefault(path) != isDefault {
			t.Errorf("%s is the default: %v, want %v", path, !isDefault, isDefault)
		}
	}
}

// TestWrong has everything that can be wrong, the text of each problem with the
// key as it is written and the place.
func TestWrong(t *testing.T) {
	t.Parallel()
	token := func(more string) string {
		return "tokens:\n  - name: a\n    hash: " + hashA + "\n    scopes: [read]\n" + more
	}
	for _, c := range []struct{ name, file, want string }{
		{"not YAML", "a: b: c\n", `config is not YAML: mapping values are not allowed in this context (FILE)`},
		{"a tab", "log:\n\tlevel: info\n", `config is not YAML: line 2: found character that cannot start any token (FILE)`},
		{"half a file", "tokens: [{name: a", `config is not YAML: line 1: did not find expected ',' or '}' (FILE)`},
		{"no keys", "- a\n", `config is a list, want keys and values (FILE)`},
		{"text", "hello\n", `config is text, want keys and values (FILE)`},
		{"two documents", "grace: 1s\n---\ngrace: 2s\n", `config has more than one document, or what follows --- is not YAML (FILE)`},
		{"an unknown key", "grace: 1s\ngracee: 2s\n", `gracee is not a key, perhaps grace (FILE:2)`},
		{"one of another section", "loglevel: debug\n", `loglevel is not a key, perhaps log.level (FILE:1)`},
		{"one without its section", "header: 1MiB\n", `header is not a key, perhaps limits.header (FILE:1)`},
		{"one like no other", "log:\n  something: else\n", `log.something is not a key; there are level, format (FILE:2)`},
		{"one in a list", token("    scope: [read]\n"), `tokens[0].scope is not a key, perhaps tokens[0].scopes (FILE:5)`},
		{"another spelling", "Grace: 1s\n", `Grace is not a key, perhaps grace (FILE:1)`},
		{"a merge", "log: {<<: {level: info}}\n", `log.<< is not a key; there are level, format (FILE:1)`},
		{"a number as key", "1: 2\n", `1 is not a key; there are `},
		{"a list as key", "? [a]\n: 2\n", `? is not a key; there are `},
		{"a key twice", "grace: 1s\nlog: {}\ngrace: 2s\n", `grace is given twice, first in line 1 (FILE:3)`},
		{"a key twice in a list", token("    name: b\n"), `tokens[0].name is given twice, first in line 2 (FILE:5)`},
		{"an anchor", "grace: &g 1s\ndrain: *g\n", `grace has an anchor or an alias, & or *, which are not for here (FILE:1)` + "\n" +
			`drain has an anchor or an alias, & or *, which are not for here (FILE:2)`},
		{"text for a number", "metrics: {max_queues: \"8080\"}\n", `metrics.max_queues is text, want a whole number (FILE:1)`},
		{"a fraction", "metrics: {max_queues: 1.5}\n", `metrics.max_queues is a number with a fraction or out of range, want a whole number (FILE:1)`},
		{"an octal number", "metrics: {max_queues: 010}\n", `metrics.max_queues "010" is not a whole number in plain digits (FILE:1)`},
		{"a huge number", "metrics: {max_queues: 99999999999999999999}\n", `metrics.max_queues is a number with a fraction or out of range, want a whole number (FILE:1)`},
		{"a number for text", "prefix: 12\n", `prefix is a number, want text (FILE:1)`},
		{"a date for text", "prefix: 2026-11-30\n", `prefix is a date, want text (FILE:1)`},
		{"yes", "metrics: {enabled: yes}\n", `metrics.enabled is text, want true or false (FILE:1)`},
		{"True", "metrics: {enabled: True}\n", `metrics.enabled "True" is neither true nor false (FILE:1)`},
		{"a duration without unit", "grace: 30\n", `grace is a number, want a duration like 30s (FILE:1)`},
		{"no duration", "grace: soon\n", `grace "soon" is not a duration like 30s, 5m or 1d (FILE:1)`},
		{"no size", "limits: {header: 4MB}\n", `limits.header "4MB" is not a size like 64KiB, 4MiB or a number of bytes (FILE:1)`},
		{"text for a list", "listen: 127.0.0.1:8080\n", `listen is text, want a list (FILE:1)`},
		{"a section for a list", "tokens: {name: a}\n", `tokens is keys and values, want a list (FILE:1)`},
		{"a list for a section", "log: [debug]\n", `log is a list, want keys and values (FILE:1)`},
		{"a list for text", "prefix: [a]\n", `prefix is a list, want text (FILE:1)`},
		{"nothing for text", "prefix:\n", `prefix has no value, want text (FILE:1)`},
		{"nothing in a list", "listen:\n  -\n", `listen[0] has no value, want text (FILE:2)`},
		{"a tag", "prefix: !!binary YQ==\n", `prefix is of the type !!binary, want text (FILE:1)`},
		{"a tag of one's own", "log: !secret {}\n", `log is of the type !secret, want keys and values (FILE:1)`},
		{"nowhere to listen", "listen: []\n", `listen is empty (FILE:1)`},
		{"no port", "listen:\n  - 127.0.0.1\n", `listen[0] "127.0.0.1" is not HOST:PORT, :PORT or unix:PATH (FILE:2)`},
		{"a port too high", "listen: [\"127.0.0.1:65536\"]\n", `listen[0] "127.0.0.1:65536" is not HOST:PORT`},
		{"a named port", "listen: [\"127.0.0.1:http\"]\n", `listen[0] "127.0.0.1:http" is not HOST:PORT`},
		{"a URL", "listen: [\"http://127.0.0.1:80\"]\n", `listen[0] "http://127.0.0.1:80" is not HOST:PORT`},
		{"a relative socket", "listen: [\"unix:dueq.sock\"]\n", `listen[0] "unix:dueq.sock" is not unix: and an absolute path`},
		{"a listener twice", "listen: [\"127.0.0.1:80\", \"127.0.0.1:80\"]\n", `listen[1] "127.0.0.1:80" is there already (FILE:1)`},
		{"all interfaces without tokens", "listen: [\":8080\"]\n", `listen[0] ":8080" can be reached from other machines and there are no tokens: add one (dueq token NAME --scope publish,consume), listen on 127.0.0.1, or insist with insecure_any_host (FILE:1)`},
		{"an address without tokens", "listen: [\"10.0.0.1:8080\"]\n", `listen[0] "10.0.0.1:8080" can be reached`},
		{"a name without tokens", "listen: [\"dueq.internal:8080\"]\n", `listen[0] "dueq.internal:8080" can be reached`},
		{"an origin with a path", "trusted_origins: [\"https://a.example/x\"]\n", `trusted_origins[0] "https://a.example/x" is not https://HOST or https://HOST:PORT (FILE:1)`},
		{"no name", "tokens:\n  - {hash: \"" + hashA + "\", scopes: [read]}\n", `tokens[0].name "" is not a name of 1 to 64 letters, digits and . _ - (FILE:2)`},
		{"a name twice", token("  - {name: a, hash: \"" + hashB + "\", scopes: [read]}\n"), `tokens[1].name "a" is there already (FILE:5)`},
		{"a hash twice", token("  - {name: b, hash: \"" + hashA + "\", scopes: [read]}\n"), `tokens[1].hash is that of another token (FILE:5)`},
		{"a secret for a hash", "tokens:\n  - {name: a, hash: dueq_S3CRET, scopes: [read]}\n", `tokens[0].hash is not sha256: and 64 digits 0-9 a-f; dueq token makes one (FILE:2)`},
		{"no scopes", "tokens:\n  - {name: a, hash: \"" + hashA + "\"}\n", `tokens[0].scopes is empty; there are publish, consume, read, admin (FILE:2)`},
		{"a wrong scope", "tokens:\n  - name: a\n    hash: " + hashA + "\n    scopes:\n    - read\n    - reed\n", `tokens[0].scopes[1] "reed" is not one of publish, consume, read, admin (FILE:6)`},
		{"a scope twice", "tokens: [{name: a, hash: \"" + hashA + "\", scopes: [read, read]}]\n", `tokens[0].scopes[1] "read" is there already (FILE:1)`},
		{"a wrong pattern", token("    queues: [\"order close\"]\n"), `tokens[0].queues[0] "order close" is not the name of a queue, in which * is any text (FILE:5)`},
		{"a limit too low", "limits: {header: 5}\n", `limits.header 5 is not from 8KiB to 1MiB (FILE:1)`},
		{"a time too long", "limits: {idle_timeout: 1d}\n", `limits.idle_timeout 1d is not from 100ms to 1h (FILE:1)`},
		{"a negative time", "grace: -1s\n", `grace -1s is not from 0s to 1h (FILE:1)`},
		{"no secrets", "push: {secrets: [{queue: a}]}\n", `push.secrets[0].secrets holds 0 secrets, it must be 1, or 2 while one takes the place of the other (FILE:1)`},
		{"three secrets", "push: {secrets: [{queue: a, secrets: [" + whA + ", " + whB + ", " + whA + "]}]}\n", `push.secrets[0].secrets holds 3 secrets`},
		{"a short secret", "push: {secrets: [{queue: a, secrets: [whsec_c2hvcnQ=]}]}\n", `push.secrets[0].secrets[0] is not whsec_ and 24 to 64 bytes in base64`},
		{"a secret without whsec_", "push: {secrets: [{queue: a, secrets: [S3CRET]}]}\n", `push.secrets[0].secrets[0] does not begin with whsec_ (FILE:1)`},
		{"a pattern twice", "push: {secrets: [{queue: a, secrets: [" + whA + "]}, {queue: a, secrets: [" + whA + "]}]}\n", `push.secrets[1].queue "a" is there already (FILE:1)`},
		{"no network", "push: {allowed_networks: [10.0.0.1/8]}\n", `push.allowed_networks[0] "10.0.0.1/8" is not a network like 10.0.0.0/8 (FILE:1)`},
		{"a file that is not there", "push: {secrets: [{queue: a, secrets_file: nosuch}]}\n", `push.secrets[0].secrets_file DIR/nosuch cannot be read: no such file or directory (FILE:1)`},
		{"secrets and a file", "push: {secrets: [{queue: a, secrets: [" + whA + "], secrets_file: b}]}\n", `push.secrets[0].secrets are given, and secrets_file too (FILE:1)`},
		{"a level", "log: {level: loud, format: xml}\n", `log.level "loud" is not one of debug, info, warn, error (FILE:1)` + "\n" + `log.format "xml" is not one of text, json (FILE:1)`},
		{"a hidden password", "store: redis://u:***@h\n", `store has *** where the password was before --print-config hid it (FILE:1)`},
		{"a hidden hash", "tokens: [{name: a, hash: \"sha256:***\", scopes: [read]}]\n", `tokens[0].hash is sha256:***, which --print-config put in its place (FILE:1)`},
		{"a hidden secret", "push: {secrets: [{queue: a, secrets: [\"whsec_***\"]}]}\n", `push.secrets[0].secrets[0] is whsec_***, which --print-config put in its place (FILE:1)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := write(t, c.file)
			_, err := config.Load(config.Sources{File: file})
			if !errors.Is(err, dueq.ErrInvalid) || dueq.ExitCode(err) != 2 {
				t.Fatalf("got %v, want ErrInvalid", err)
			}
			got := lines(t, err)
			want := strings.Split(strings.NewReplacer("FILE", file, "DIR", filepath.Dir(file)).Replace(c.want), "\n")
			if len(got) != len(want) || !slices.EqualFunc(got, want, strings.HasPrefix) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			for _, secret := range []string{"S3CRET", whA} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("a secret is shown: %v", err)
				}
			}
		})
	}
}

func lines(t *testing.T, err error) []string {
	t.Helper()
	var problems config.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("got %v, want Problems", err)
	}
	var all []string
	for _, p := range problems {
		all = append(all, p.Error())
	}
	return all
}

func TestAllProblemsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	file := write(t, "grace: forever\nlisen: []\ntokens:\n  - name: a b\n    hash: x\n    scopes: [all]\n")
	_, err := config.Load(config.Sources{File: file, Env: []string{"DUEQ_LIMITS_HEADER=big", "DUEQ_DRAIN=2h"}, Flags: map[string]string{"log.level": "loud"}})
	want := []string{
		"grace \"forever\"", "lisen is not a key, perhaps listen", "limits.header \"big\" is not a size like 64KiB, 4MiB or a number of bytes ($DUEQ_LIMITS_HEADER)",
		"tokens[0].name", "tokens[0].hash", "tokens[0].scopes[0]", "log.level \"loud\" is not one of debug, info, warn, error (--log-level)", "drain 2h is not from 0s to 1h ($DUEQ_DRAIN)",
	}
	got := lines(t, err)
	if len(got) != len(want) || !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestWhoInsistsIsReachable(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]config.Sources{
		"by the file": {File: write(t, "listen: [\":80\"]\ninsecure_any_host: true\n")},
		"by flags":    {Flags: map[string]string{"listen": ":80", "insecure_any_host": "true"}},
		"by a token":  {File: write(t, "listen: [\":80\"]\n"), Env: []string{`DUEQ_TOKENS=[{name: a, hash: "` + hashA + `", scopes: [read]}]`}},
		"not at all":  {Flags: map[string]string{"listen": "127.0.0.1:80,[::1]:80,localhost:81,127.1.2.3:80,[::ffff:127.0.0.1]:82,unix:/run/a.sock"}},
	} {
		if _, err := config.Load(src); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnknownVariablesAreWarnings(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load(config.Sources{Env: []string{
		"DUEQ_LISTN=:80", "DUEQ_TOKEN=x", "DUEQ_CONFIG=y", "DUEQ_ID=z", "DUEQ_QUEUE=q", "DUEQ_SERVICE_HOST=10.0.0.1", "DUEQ_PORT=tcp://10.0.0.1:80", "DUEQ_PORT_80_TCP=x",
		"DUEQ_LOGLEVEL=debug", "DUEQ_ELSE=x", "OTHER=x",
	}})
	want := []string{"the variable DUEQ_LISTN is not known, perhaps DUEQ_LISTEN", "the variable DUEQ_LOGLEVEL is not known, perhaps DUEQ_LOG_LEVEL", "the variable DUEQ_ELSE is not known"}
	if err != nil || !slices.Equal(cfg.Warnings(), want) {
		t.Errorf("got %q, %v\nwant %q", cfg.Warnings(), err, want)
	}
}

func TestBlameNamesTheSource(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load(config.Sources{File: write(t, "store: nosuch://\n"), Env: []string{"DUEQ_PREFIX=a"}})
	if err != nil {
		t.Fatal(err)
	}
	other := errors.New("other")
	if got := cfg.Blame(other); got != other {
		t.Errorf("got %v", got)
	}
	for field, want := range map[string]string{"store": "dueq.yaml:1)", "prefix": "($DUEQ_PREFIX)", "queue": "is wrong"} {
		err := cfg.Blame(&dueq.FieldError{Field: field, Reason: "is wrong"})
		if !strings.HasSuffix(err.Error(), want) || !errors.Is(err, dueq.ErrInvalid) {
			t.Errorf("got %v, want …%s", err, want)
		}
	}
}
