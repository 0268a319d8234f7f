// Package child runs a test binary a second time, as a process of its own that
// can be frozen and killed: a worker or a producer that is not this process.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

const (
	variable = "DUEQ_CHILD" // a JSON array: the role and its arguments
	patience = 30 * time.Second
)

// Role is what a child does until ctx ends, which it does when the parent
// wants or is gone. What it writes to standard output is for its parent.
type Role func(ctx context.Context, args []string) error

// Main is called first by TestMain. In a child it plays the role and does not
// return; otherwise it does nothing.
func Main(roles map[string]Role) {
	text, ok := os.LookupEnv(variable)
	if !ok {
		return
	}
	var args []string
	if err := json.Unmarshal([]byte(text), &args); err != nil || len(args) == 0 || roles[args[0]] == nil {
		fmt.Fprintf(os.Stderr, "child: no role in %q, %v\n", text, err)
		os.Exit(2)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := roles[args[0]](ctx, args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, args, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Process is a child. Its methods are safe from any goroutine.
type Process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	read  chan struct{} // closed when its output has been read
	done  chan struct{} // closed when it is gone; err is set then
	err   error
}

// Start starts a child, which is killed when the test or this process ends at
// the latest. Each whole line of its output is given to line, one after the
// other and without its end; line may keep it.
func Start(t testing.TB, line func(text []byte), role string, args ...string) *Process {
	t.Helper()
	p, err := start(line, append([]string{role}, args...))
	if err != nil {
		t.Fatalf("child: start %s: %v", role, err)
	}
	t.Cleanup(p.Kill)
	return p
}

func start(line func([]byte), args []string) (*Process, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(path), read: make(chan struct{}), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), variable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	started := make(chan error)
	go p.supervise(started)
	if err := <-started; err != nil {
		return nil, err
	}
	go p.listen(out, line)
	return p, nil
}

// supervise starts the child and waits for its end, all on one thread: the
// kernel sends Pdeathsig when the thread that forked ends.
func (p *Process) supervise(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	<-p.read
	p.err = p.cmd.Wait()
	close(p.done)
}

func (p *Process) listen(out io.Reader, line func([]byte)) {
	defer close(p.read)
	lines := bufio.NewReader(out)
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return // half a line says nothing
		}
		line(text[:len(text)-1])
	}
}

// Kill ends the child by SIGKILL and returns when it is gone and its output has
// been read. Killing it again does nothing.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Freeze stops the child by SIGSTOP, Thaw lets it go on.
func (p *Process) Freeze() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw undoes Freeze.
func (p *Process) Thaw() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// Stop ends the context of the child's role and waits for its end, which is an
// error if the role had one or it takes too long; then it is killed.
func (p *Process) Stop() error {
	_ = p.stdin.Close()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.err
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("child did not end within %v", patience)
	}
}
