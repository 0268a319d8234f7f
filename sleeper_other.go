//go:build !linux

package dueq

import "time"

func systemSleep(d time.Duration) { time.Sleep(d) }
