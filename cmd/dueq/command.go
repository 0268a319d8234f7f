package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
)

// Exit codes of a command that are not plain failures, from sysexits.h.
const (
	exitAgain = 75 // EX_TEMPFAIL
	exitDead  = 65 // EX_DATAERR
)

const (
	killAfter = 2 * time.Second // from SIGTERM to SIGKILL
	errorKept = 1 << 10         // bytes of stderr
)

// command is the handler that runs a command for each task, in a process group
// of its own, so that a terminal's Ctrl-C reaches the worker alone.
type command struct {
	args           []string
	again          time.Duration
	stdout, stderr io.Writer

	mu     sync.Mutex // guards what follows
	groups map[int]struct{}
	over   bool // killAll was called: no more are started
}

func newCommand(args []string, again time.Duration, stdout, stderr io.Writer) (*command, error) {
	if _, err := exec.LookPath(args[0]); err != nil {
		return nil, &dueq.FieldError{Field: "command", Reason: fmt.Sprintf("%q cannot be run: %v", args[0], errors.Unwrap(err))}
	}
	return &command{args: args, again: again, stdout: stdout, stderr: stderr, groups: map[int]struct{}{}}, nil
}

func (c *command) Handle(ctx context.Context, t *dueq.Task) error {
	kept := &tail{}
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Env = append(os.Environ(), taskEnv(t)...)
	if len(t.Body) > 0 {
		cmd.Stdin = bytes.NewReader(t.Body)
	}
	cmd.Stdout = c.stdout
	cmd.Stderr = io.MultiWriter(c.stderr, kept)
	cmd.WaitDelay = killAfter
	ownGroup(cmd)
	told := false // to end; Wait returns after Cancel did
	tell := cmd.Cancel
	cmd.Cancel = func() error {
		told = true
		return tell()
	}
	if err := c.start(cmd); err != nil {
		return fmt.Errorf("command did not start: %w", err)
	}
	err := cmd.Wait()
	if ctx.Err() != nil {
		killGroup(cmd.Process.Pid) // what its children left running
	}
	c.forget(cmd.Process.Pid)
	if told {
		return c.verdict(cmd, err, kept.String(), context.Cause(ctx))
	}
	return c.verdict(cmd, err, kept.String(), nil)
}

func taskEnv(t *dueq.Task) []string {
	return []string{
		"DUEQ_QUEUE=" + t.Queue,
		"DUEQ_ID=" + t.ID,
		"DUEQ_KIND=" + t.Kind,
		"DUEQ_ATTEMPT=" + strconv.Itoa(t.Attempt),
		"DUEQ_ROUND=" + strconv.Itoa(t.Round),
		"DUEQ_DUE=" + view.Instant(t.Due).String(),
	}
}

// verdict reads the exit code. Success of a command that was told to end, for
// the cause given, does not count: it may be the end that SIGTERM asked for.
func (c *command) verdict(cmd *exec.Cmd, err error, stderr string, told error) error {
	code := cmd.ProcessState.ExitCode()
	if err == nil || code == 0 && told == nil {
		return nil // an error beside code 0 is about what it left open
	}
	if code == exitAgain {
		return dueq.Again(c.again)
	}
	text := stderr
	if text == "" {
		text = cmd.ProcessState.String()
	}
	if told != nil {
		text = told.Error() + ": " + text
	}
	if code == exitDead {
		return dueq.Dead(errors.New(text))
	}
	return errors.New(text)
}

// start starts a command and notes its group in one step, so that killAll
// misses none.
func (c *command) start(cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return errors.New("all commands were killed")
	}
	err := cmd.Start()
	if err == nil {
		c.groups[cmd.Process.Pid] = struct{}{}
	}
	return err
}

func (c *command) forget(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.groups, pid)
}

// killAll kills all commands that run, and lets no more start.
func (c *command) killAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for pid := range c.groups {
		killGroup(pid)
	}
}

// tail keeps the last bytes written to it.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - errorKept; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	return strings.TrimSpace(strings.ToValidUTF8(string(t.kept), ""))
}
