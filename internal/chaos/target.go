// Package chaos runs producers and workers on a real store while faults are
// injected at random, and judges with package history what they saw.
//
// To add a system, write a file with its [Target] and name it in targets. The
// workload, the faults of processes and the verdict are the same for all.
package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

// Target is a kind of system that can be put to the test.
type Target struct {
	Name string
	// Start starts the system, which ends with the test.
	Start func(t testing.TB) *System
	// Open opens the store at an address of the system, in any process.
	Open func(addr string) (dueq.Store, error)
}

// System is a Target that runs.
type System struct {
	Addr   string
	Faults []Fault // besides those of producers and workers; they come one at a time
	Last   *Fault  // comes once, when nothing is produced any more; nil for none
	// Alone says that no other process can open the store, so that there are
	// none.
	Alone bool
	// Safe says that no fault loses what was acknowledged, not even one that
	// says it Loses something: the queues wait for a replica.
	Safe bool
	// Masters waits until all is well and names the servers that have the data,
	// where that can change. If it does and no fault Loses something, that is a
	// fault as well: a busy machine makes servers miss each other.
	Masters func() string
}

// Fault is something bad that a system can suffer.
type Fault struct {
	Kind string
	// Begin begins the fault and returns what ends it, nil if it is over. Both
	// run in the goroutine of the test, so they may fail it.
	Begin func() (end func())
	Hold  time.Duration // how long it lasts at most; the seed chooses. Zero: it ends at once
	Step  time.Duration // by which Begin moves the store's clock, negative: back; the end may undo it
	Loses time.Duration // writes acknowledged this long before may be gone afterwards; zero means none
	// Spares says that no lease of a living worker may end by it: it explains
	// no second run.
	Spares bool
	// Deposes says that a server goes on answering when another has its place.
	Deposes bool
}

// targets are all there are.
var targets = []Target{standalone, proxied, stepped, file, cluster, clusterAsync, sentinel, sentinelAsync}

// choose returns the targets that a comma-separated list names; empty is all.
func choose(list string) ([]Target, error) {
	if list == "" {
		return targets, nil
	}
	var out []Target
	for name := range strings.SplitSeq(list, ",") {
		target, err := named(name)
		if err != nil {
			return nil, err
		}
		out = append(out, target)
	}
	return out, nil
}

func named(name string) (Target, error) {
	var names []string
	for _, target := range targets {
		if target.Name == name {
			return target, nil
		}
		names = append(names, target.Name)
	}
	return Target{}, fmt.Errorf("chaos: no target %q, there are %s", name, strings.Join(names, ", "))
}
