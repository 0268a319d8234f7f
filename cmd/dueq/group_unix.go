//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup starts cmd in its own process group, which is told to end as one.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
