package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a child that dies with this process. Its methods are safe from any
// goroutine. Once the child has ended, pause fails and the others do nothing.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed by supervise when the child has been reaped
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = dieWithParent()
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go p.supervise(started)
	return p, <-started
}

// supervise starts the child and waits for its end, all on one thread, because
// the kernel sends Pdeathsig when the thread that forked ends.
func (p *process) supervise(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait()
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

func (p *process) kill() {
	_ = p.signal(syscall.SIGKILL)
	<-p.done
}

// terminate asks the child to end and reports whether it did. After the timeout
// it is killed.
func (p *process) terminate(timeout time.Duration) bool {
	p.resume()
	_ = p.signal(syscall.SIGTERM)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		p.kill()
		return false
	}
}

func (p *process) resume() { _ = p.signal(syscall.SIGCONT) }

// pause stops the child and returns once its main thread is off the processor,
// which is later than kill(2) returns.
func (p *process) pause(timeout time.Duration) error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if stopped, err := p.stopped(); stopped || err != nil {
			return err
		}
		select {
		case <-timer.C:
			return errors.New("still running after SIGSTOP")
		case <-tick.C:
		}
	}
}

// runs reports whether the child has neither ended nor been paused.
func (p *process) runs() bool {
	select {
	case <-p.done:
		return false
	default:
		stopped, err := p.stopped()
		return !stopped && err == nil
	}
}

// stopped reads the state letter, which follows the parenthesised name.
func (p *process) stopped() (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid()))
	if err != nil {
		return false, err
	}
	end := bytes.LastIndexByte(stat, ')')
	return bytes.HasPrefix(stat[end+1:], []byte(" T")), nil
}
