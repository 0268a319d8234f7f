package dueq

import (
	"syscall"
	"time"
)

// systemSleep may return early, when a signal comes.
func systemSleep(d time.Duration) {
	rest := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&rest, nil)
}
