package main

import (
	"fmt"

	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

// change applies op to the one task that args name, QUEUE MEMBER, and prints
// what came of it.
func (a *app) change(cmd *cobra.Command, args []string, op dueq.Op, when dueq.When) error {
	queue, member := args[0], args[1]
	store, err := a.store(cmd.Context())
	if err != nil {
		return err
	}
	outcomes, err := store.Change(cmd.Context(), queue, op, []dueq.Target{{Member: member, When: when}})
	if err != nil {
		return err
	}
	if err := changeError(op, outcomes[0]); err != nil {
		return &dueq.CallError{Op: cmd.Name(), Queue: queue, Err: &failure{member + ": " + err.Error(), err}}
	}
	done := map[dueq.Op]string{dueq.OpCancel: "cancelled", dueq.OpStop: "stopped", dueq.OpReschedule: "rescheduled"}[op]
	return a.printOutcome(done, queue, member, outcomes[0])
}

// changeError says why a change did not happen, and what can be done.
func changeError(op dueq.Op, o dueq.Outcome) error {
	switch {
	case o.Status == dueq.StatusRunning && op == dueq.OpCancel:
		return fmt.Errorf("%w; its later schedule is taken away and this run is its last; use --running to end it", dueq.ErrRunning)
	case o.Status == dueq.StatusRunning:
		return dueq.ErrRunning
	case o.Status == dueq.StatusDead:
		return fmt.Errorf("%w; use dead requeue or dead delete", dueq.ErrDead)
	}
	return o.Error()
}
