package redistest

import "syscall"

// dieWithParent makes the kernel kill a child whose parent has died.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
