package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Machine describes where and with what was measured.
type Machine struct {
	Measured time.Time         `json:"measured"`
	OS       string            `json:"os"`
	Kernel   string            `json:"kernel"`
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	MemoryGB float64           `json:"memory_gb"`
	Load     string            `json:"load"` // average of the minutes before
	Go       string            `json:"go"`
	Tree     string            `json:"tree"` // commit of dueq
	Systems  map[string]string `json:"systems"`
}

func describeMachine() Machine {
	kb := number(strings.Fields(lineOf("/proc/meminfo", "MemTotal:") + " 0")[0])
	return Machine{
		Measured: time.Now().UTC().Truncate(time.Second),
		OS:       strings.Trim(lineOf("/etc/os-release", "PRETTY_NAME="), `"`),
		Kernel:   lineOf("/proc/sys/kernel/osrelease", ""),
		CPU:      strings.TrimPrefix(lineOf("/proc/cpuinfo", "model name"), ": "),
		Cores:    runtime.NumCPU(),
		MemoryGB: kb / (1 << 20),
		Load:     lineOf("/proc/loadavg", ""),
		Go:       runtime.Version(),
		Tree:     commit(),
		Systems:  map[string]string{},
	}
}

// lineOf returns the rest of the first line of a file that begins so.
func lineOf(file, prefix string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func (m Machine) String() string {
	return fmt.Sprintf("%s, Linux %s, %s, %d cores shared by clients and servers, %.0f GB, %s, dueq %s, measured %s, load before %s",
		m.OS, m.Kernel, m.CPU, m.Cores, m.MemoryGB, m.Go, m.Tree, m.Measured.Format("2006-01-02 15:04 MST"), m.Load)
}
