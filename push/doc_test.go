package push

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dueq/dueq"
)

// The receivers of docs/push.md run as they are written there.
func TestReceiversInTheDocs(t *testing.T) {
	t.Parallel()
	t.Run("go", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		write(t, filepath.Join(dir, "main.go"), block(t, "go"))
		write(t, filepath.Join(dir, "go.mod"), "module receiver\n\ngo 1.25\n")
		build := exec.Command("go", "build", "-o", "receiver", ".")
		build.Dir = dir
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		testReceiver(t, filepath.Join(dir, "receiver"))
	})
	t.Run("python", func(t *testing.T) {
		t.Parallel()
		script := filepath.Join(t.TempDir(), "receiver.py")
		write(t, script, block(t, "python"))
		testReceiver(t, "python3", script)
	})
}

// block returns the block of code in that language that docs/push.md has.
func block(t *testing.T, language string) string {
	t.Helper()
	doc, err := os.ReadFile("../docs/push.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(doc), "\n```"+language+"\n")
	code, _, closed := strings.Cut(rest, "\n```\n")
	if !found || !closed {
		t.Fatalf("docs/push.md has no %s", language)
	}
	return code + "\n"
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// testReceiver pushes to a receiver: what is signed is handled, the rest is not.
func testReceiver(t *testing.T, command ...string) {
	secret := secretOf('a')
	address, said := launch(t, secret, command...)
	store := inMemory(t)
	urls := quick("http://"+address+"/hooks/close", "retries", "0", "timeout", "20s")
	for _, queue := range []string{"order:close", "rotated", "forged"} {
		set(t, store, queue, urls)
	}
	start(t, store, Options{AllowPrivate: true, Secrets: func(queue string) []string {
		switch queue {
		case "rotated":
			return []string{secretOf('b'), secret}
		case "forged":
			return []string{secretOf('c')}
		}
		return []string{secret}
	}})
	schedule(t, store, "order:close", dueq.Task{ID: "order_1.5/ü", Kind: "pay_timeout", Body: []byte(`{"sum": "3 €"}`)})
	schedule(t, store, "rotated", dueq.Task{ID: "none"})
	schedule(t, store, "forged", dueq.Task{ID: "evil"})
	awaitAcked(t, store, "order:close", 1)
	awaitAcked(t, store, "rotated", 1)
	wantError(t, awaitDead(t, store, "forged", "evil"), "answer 401 Unauthorized")
	for _, line := range []string{`close order_1.5/ü:pay_timeout: {"sum": "3 €"}`, "close none: "} {
		if !strings.Contains(said(), line) {
			t.Errorf("%q does not contain %q", said(), line)
		}
	}
	if strings.Contains(said(), "evil") {
		t.Errorf("a forged task was handled: %s", said())
	}
}

// launch runs a receiver until the test ends, and returns where it listens and
// what it has printed.
func launch(t *testing.T, secret string, command ...string) (address string, said func() string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = listener.Addr().String()
	_ = listener.Close()
	var out output
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "LISTEN="+address, "WEBHOOK_SECRET="+secret)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, fmt.Sprintf("%s listens", command), func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return address, out.String
}

// output is written by one goroutine and read by another.
type output struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
