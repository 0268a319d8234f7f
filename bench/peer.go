package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
)

// Peer is a system as the driver sees it: what it needs, and what it can do.
type Peer struct {
	Name    string
	start   func() (Server, error)
	open    func(addr string) (System, error) // in a client process; nil if the client is a program of its own
	program []string                          // that client
	batch   bool                              // has a batch form
	fast    bool                              // done in a blink; see Measurement.Brief
	works   []string                          // what is measured
	find    func() (version string, err error)
}

var peers = []*Peer{
	{Name: "dueq", start: startRedis, open: openDueqRedis, batch: true, fast: true,
		works: []string{"schedule", "batch", "drain", "precision", "processes", "idle", "memory", "claim", "growth", "queues"},
		find:  func() (string, error) { return "this tree", nil }},
	{Name: "dueq SQLite", start: startFile, open: openDueqSQLite, batch: true, fast: true,
		works: []string{"schedule", "batch", "drain", "precision"},
		find:  module("modernc.org/sqlite")},
	{Name: "raw SQLite", start: startFile, open: openRawSQLite, batch: true,
		works: []string{"batch", "drain"},
		find:  module("modernc.org/sqlite")},
	{Name: "raw Redis", start: startRedis, open: openRaw, batch: true, fast: true,
		works: []string{"batch", "drain", "memory", "claim"},
		find:  program("redis-server", "--version")},
	{Name: "textbook", start: startRedis, open: openTextbook, batch: true,
		works: []string{"schedule", "batch", "drain", "precision", "processes", "idle", "claim"},
		find:  module("github.com/redis/go-redis/v9")},
	{Name: "asynq", start: startRedis, open: openAsynq,
		works: []string{"schedule", "drain", "precision", "processes", "idle", "memory"},
		find:  module("github.com/hibiken/asynq")},
	{Name: "BullMQ", start: startRedis, program: []string{"node", "bullmq/client.mjs"}, batch: true,
		works: []string{"schedule", "batch", "drain", "precision", "processes", "idle", "memory"},
		find:  findBullMQ},
	{Name: "beanstalkd", start: startBeanstalkd, open: openBeanstalkd,
		works: []string{"schedule", "drain", "precision", "idle", "memory"},
		find:  program("beanstalkd", "-v")},
}

func findPeer(name string) (*Peer, error) {
	for _, p := range peers {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("system %q is unknown", name)
}

func (p *Peer) does(work string) bool { return slices.Contains(p.works, work) }

// module finds the version of a Go module that is linked in.
func module(path string) func() (string, error) {
	return func() (string, error) {
		info, ok := debug.ReadBuildInfo()
		if !ok {
			return "", errors.New("the driver was built without modules")
		}
		for _, dep := range info.Deps {
			if dep.Path == path {
				return path + " " + dep.Version, nil
			}
		}
		return "", fmt.Errorf("%s is not linked in", path)
	}
}

// program finds what a program says of its version.
func program(name string, arg string) func() (string, error) {
	return func() (string, error) {
		out, err := exec.Command(name, arg).Output()
		if err != nil {
			return "", fmt.Errorf("%s cannot be had: %w", name, err)
		}
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return first, nil
	}
}

func findBullMQ() (string, error) {
	if _, err := os.Stat("bullmq/node_modules/bullmq"); err != nil {
		return "", fmt.Errorf("bullmq is not installed (npm ci in bench/bullmq): %w", err)
	}
	out, err := exec.Command("node", "bullmq/client.mjs", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("node cannot be had: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
