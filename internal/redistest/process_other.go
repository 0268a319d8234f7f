//go:build !linux

package redistest

import "syscall"

// dieWithParent changes nothing: only Linux can kill a child whose parent has
// died. The package compiles elsewhere, so that its users can be vetted there.
func dieWithParent() *syscall.SysProcAttr { return nil }
