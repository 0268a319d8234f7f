package config_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/dueq/dueq/internal/config"
)

func printed(t *testing.T, cfg config.Config) string {
	t.Helper()
	var b bytes.Buffer
	if err := cfg.Print(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPrintNamesTheSourceOfEachKey(t *testing.T) {
	t.Parallel()
	file := write(t, "grace: 1m\nlisten: [127.0.0.1:0]\n")
	cfg, err := config.Load(config.Sources{Store: "memory:", File: file, Env: []string{"DUEQ_LOG_LEVEL=warn"}, Flags: map[string]string{"drain": "1s"}})
	if err != nil {
		t.Fatal(err)
	}
	want := `store: 'memory:' # default
prefix: "" # default
listen: # FILE:2
  - 127.0.0.1:0
insecure_any_host: false # default
trusted_origins: [] # default
tokens: [] # default
limits:
  member: 64 # default
  header: 32KiB # default
  header_timeout: 10s # default
  idle_timeout: 2m # default
  open_polls: 10000 # default
  open_streams: 1000 # default
push:
  secrets: [] # default
  unsigned: false # default
  allow_private: false # default
  allowed_networks: [] # default
  timeout: 0s # default
metrics:
  enabled: true # default
  max_queues: 200 # default
log:
  level: warn # $DUEQ_LOG_LEVEL
  format: text # default
drain: 1s # --drain
grace: 1m # FILE:1
`
	if got := strings.ReplaceAll(printed(t, cfg), file, "FILE"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPrintCanBeReadBack(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"",
		"prefix: \"12\"\nstore: \"true\"\n",
		"prefix: \"#a: 'b' \\\"c\\\"\\n\\t\"\n",
		"listen: [localhost:0, \"[::1]:80\", unix:/run/dueq.sock]\ntrusted_origins: [https://a.example, http://b.example:8080]\n" +
			"push:\n  allowed_networks: [\"fd00::/8\", 10.0.0.0/8]\n  timeout: 1m30s\n  secrets:\n    - {queue: \"*\", secrets_file: " + write(t, whA+"\n") + "}\n" +
			"limits: {header: 65537, member: 512}\nmetrics: {enabled: false}\nlog: {level: debug}\ngrace: 0s\n",
	} {
		cfg, err := config.Load(config.Sources{File: write(t, text)})
		if err != nil {
			t.Fatal(err)
		}
		again, err := config.Load(config.Sources{File: write(t, printed(t, cfg))})
		if err != nil || !same(cfg, again) {
			t.Errorf("%s\n%v, got\n%s\nwant\n%s", printed(t, cfg), err, values(again), values(cfg))
		}
	}
}

func TestPrintHidesSecrets(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load(config.Sources{File: write(t, full)})
	if err != nil {
		t.Fatal(err)
	}
	text := printed(t, cfg)
	for _, secret := range []string{"s3cret", hashA, hashB, whA, whB} {
		if strings.Contains(text, secret) {
			t.Errorf("%s is shown:\n%s", secret, text)
		}
	}
	for _, shown := range []string{"redis://:***@redis.internal:6379/2?pool_size=30", "sha256:***", "whsec_***", "name: shop", "scopes:\n      - publish\n      - read\n"} {
		if !strings.Contains(text, shown) {
			t.Errorf("%s is not shown:\n%s", shown, text)
		}
	}
	if cfg.Tokens[0].Hash != hashA || cfg.Push.Secrets[0].Secrets[0] != whA || !strings.Contains(cfg.Store, "s3cret") {
		t.Error("printing has changed the configuration itself")
	}
	_, err = config.Load(config.Sources{File: write(t, text)})
	got := lines(t, err)
	want := []string{"store has ***", "tokens[0].hash is sha256:***", "tokens[1].hash is sha256:***", "push.secrets[0].secrets[0] is whsec_***", "push.secrets[0].secrets[1] is whsec_***"}
	for i := range want {
		if len(got) != len(want) || !strings.HasPrefix(got[i], want[i]) {
			t.Fatalf("what is hidden is not all that is refused:\n%s", strings.Join(got, "\n"))
		}
	}
}
