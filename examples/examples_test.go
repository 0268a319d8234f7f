// Package examples_test builds and runs the examples as their readers do.
package examples_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq/internal/redistest"
)

// prints are regular expressions of what the examples print.
var prints = map[string]string{
	"order-close": `order_2 is paid
order_[13] is closed: nobody paid in time
order_[13] is closed: nobody paid in time
`,
	"sms-expiry": `SMS to user_2: your code is 5678
no SMS to user_1: it is dead
`,
	"reminders": `reminder 1 of payment_7, \d+ms after the failure
reminder 2 of payment_7, [\d.]+m?s after the failure
reminder 3 of payment_7, [\d.]+m?s after the failure
payment_7 is paid: no more reminders
`,
	"poll-until-done": `(round [0-2]: job_a is (running|done)\n|round [0-5]: job_b is running\n){9}`,
	"feature-switch": `new_checkout on at \d\d.000, early: false
drift [\d.]+ ms
enabled: true
`,
}

func TestExamples(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir, "./...").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mains, err := filepath.Glob("*/main.go")
	if err != nil || len(mains) != len(prints) {
		t.Errorf("there are %v, %v; want one for each of %d", mains, err, len(prints))
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range prints {
		if !strings.Contains(string(readme), "("+name+"/main.go)") {
			t.Errorf("README.md lacks %s", name)
		}
		source, err := os.ReadFile(name + "/main.go")
		if err != nil || bytes.Count(source, []byte("\n")) > 80 {
			t.Errorf("%s has over 80 lines, %v", name, err)
		}
		t.Run(name+"/memory", func(t *testing.T) {
			t.Parallel()
			run(t, filepath.Join(dir, name), "", want)
		})
		t.Run(name+"/redis", func(t *testing.T) {
			t.Parallel()
			url := redistest.Start(t).URL()
			run(t, filepath.Join(dir, name), url, want)
			run(t, filepath.Join(dir, name), url, want) // what is left of one run does not disturb the next
		})
	}
}

func run(t *testing.T, binary, url, want string) {
	t.Helper()
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), "DUEQ_STORE="+url)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	if took := time.Since(began); err != nil || took > 10*time.Second {
		t.Errorf("it took %v: %v\n%s", took, err, stderr.String())
	}
	if !regexp.MustCompile("^" + want + "$").MatchString(stdout.String()) {
		t.Errorf("it printed\n%s\nwant\n%s\nstderr: %s", stdout.String(), want, stderr.String())
	}
}
