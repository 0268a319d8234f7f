package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/dueq/dueq"
	"github.com/redis/go-redis/v9/logging"
)

// alive tells whether a process exists and is not a zombie.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

var buildOnce struct {
	sync.Once
	dir, binary string
	err         error
}

func TestMain(m *testing.M) {
	logging.Disable() // as main does
	code := m.Run()
	if buildOnce.dir != "" {
		os.RemoveAll(buildOnce.dir)
	}
	os.Exit(code)
}

// binary builds the command, once.
func binary(t *testing.T) string {
	t.Helper()
	buildOnce.Do(func() {
		if buildOnce.dir, buildOnce.err = os.MkdirTemp("", "dueq-test"); buildOnce.err != nil {
			return
		}
		buildOnce.binary = filepath.Join(buildOnce.dir, "dueq")
		out, err := exec.Command("go", "build", "-o", buildOnce.binary, ".").CombinedOutput()
		if err != nil {
			buildOnce.err = errors.New(string(out))
		}
	})
	if buildOnce.err != nil {
		t.Fatal(buildOnce.err)
	}
	return buildOnce.binary
}

// process is a dueq of its own.
type process struct {
	*exec.Cmd
	stdout *bufio.Reader
	stderr bytes.Buffer
}

// command is a command line for a process of its own.
func (c *cli) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary(t), slices.Concat(c.extra, args)...)
	cmd.Env = append(os.Environ(), "DUEQ_STORE="+c.url, "HOME="+c.home, "XDG_DATA_HOME="+c.home)
	return cmd
}

func (c *cli) start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: c.command(t, args...)}
	p.Stderr = &p.stderr
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewReader(stdout)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// line reads one line of stdout.
func (p *process) line(t *testing.T) string {
	t.Helper()
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("no line on stdout: %v\nstderr: %s", err, p.stderr.String())
	}
	return strings.TrimSpace(line)
}

// signal sends SIGTERM to the process, and SIGINT to its group as a terminal
// does.
func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	to := p.Process.Pid
	if s == syscall.SIGINT {
		to = -to
	}
	if err := syscall.Kill(to, s); err != nil {
		t.Fatal(err)
	}
}

// exit waits for the end and returns the exit code.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	rest, _ := io.ReadAll(p.stdout)
	_ = p.Wait()
	t.Logf("rest of stdout: %s\nstderr: %s", rest, p.stderr.String())
	return p.ProcessState.ExitCode()
}

func TestSignals(t *testing.T) {
	c := onRedis(t)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String()+" lets a running command end", func(t *testing.T) {
			queue := map[syscall.Signal]string{syscall.SIGTERM: "a", syscall.SIGINT: "b"}[s]
			gate := filepath.Join(t.TempDir(), "gate")
			if err := syscall.Mkfifo(gate, 0o600); err != nil {
				t.Fatal(err)
			}
			p := c.start(t, "work", queue, "--", "sh", "-c", "echo started; cat "+gate)
			c.scheduleBody(t, queue, "m", "x")
			p.line(t)
			p.signal(t, s)
			c.scheduleBody(t, queue, "later", "x") // may not be claimed any more
			if err := os.WriteFile(gate, []byte("released\n"), 0); err != nil {
				t.Fatal(err)
			}
			if got := p.line(t); got != "released" {
				t.Errorf("got %q", got)
			}
			if code := p.exit(t); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			if s := c.stats(t, queue); s.Totals.Acked < 1 || s.Active != 0 {
				t.Errorf("got %+v", s)
			}
		})
	}
	t.Run("after grace a command is told to end and its task comes back", func(t *testing.T) {
		c.run(t, "", "settings", "c", "set", "timeout=1h").must(t, 0)
		p := c.start(t, "work", "c", "--grace", "100ms", "--", "sh", "-c", "trap 'echo told; exit 1' TERM; echo started; sleep 600 & wait")
		c.scheduleBody(t, "c", "m", "x")
		p.line(t)
		p.signal(t, syscall.SIGTERM)
		if got := p.line(t); got != "told" {
			t.Errorf("got %q", got)
		}
		if code := p.exit(t); code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
		if info := c.info(t, "c", "m"); info.State != dueq.StateScheduled {
			t.Errorf("it is %v, want scheduled", info.State)
		}
	})
	t.Run("a second signal kills the commands and exits with 1", func(t *testing.T) {
		c.run(t, "", "settings", "d", "set", "timeout=1h").must(t, 0)
		p := c.start(t, "work", "d", "--", "sh", "-c", "trap '' TERM INT; echo $$; while :; do sleep 600; done")
		c.scheduleBody(t, "d", "m", "x")
		pid := p.line(t)
		p.signal(t, syscall.SIGTERM)
		p.signal(t, syscall.SIGINT)
		if code := p.exit(t); code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
		eventually(t, func() bool { return !alive(pid) })
		if info := c.info(t, "d", "m"); info.State != dueq.StateActive {
			t.Errorf("it is %v, want active until its lease ends", info.State)
		}
	})
	t.Run("a reader that goes away loses no task", func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p := &process{Cmd: c.command(t, "work", "e"), stdout: bufio.NewReader(strings.NewReader(""))}
		p.Stdout, p.Stderr = w, &p.stderr
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		r.Close()
		w.Close()
		c.scheduleBody(t, "e", "m", "x")
		if code := p.exit(t); code != 1 || !strings.Contains(p.stderr.String(), "stdout: write") {
			t.Errorf("exit code %d, want 1", code)
		}
		if s := c.stats(t, "e"); s.Scheduled != 1 || s.Totals.Acked != 0 {
			t.Errorf("got %+v", s)
		}
	})
	t.Run("errors of a store that is gone are one line", func(t *testing.T) {
		p := c.start(t, "queues", "--store", "redis://127.0.0.1:1")
		if code := p.exit(t); code != 5 || strings.Count(p.stderr.String(), "\n") != 1 {
			t.Errorf("exit code %d, stderr %q", code, p.stderr.String())
		}
	})
}
