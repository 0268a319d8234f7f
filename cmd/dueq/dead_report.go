package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/dueq/dueq"
)

// deadReport tells what a command did to dead letters, call by call, so that it
// needs no more memory for a million than for a thousand.
type deadReport struct {
	app  *app
	head deadHead
	deadTail
	list *jsonList // with -o json

	results []memberStatus // that were not printed yet
	tasks   int
	failed  int
	first   memberStatus // of those that failed: not found before the rest
}

type deadHead struct {
	Queue  string `json:"queue"`
	Op     string `json:"op"`
	DryRun bool   `json:"dry_run"`
}

// deadTail comes after the results, which are counted on the way.
type deadTail struct {
	Counts map[string]int `json:"counts"` // by status
}

type memberStatus struct {
	Member string `json:"member"`
	Status string `json:"status"`
	err    error
}

func newDeadReport(a *app, head deadHead) *deadReport {
	return &deadReport{
		app: a, head: head, deadTail: deadTail{map[string]int{}},
		list: &jsonList{out: a.stdout, head: head, name: "results"},
	}
}

func (r *deadReport) apply(ctx context.Context, store dueq.Store, op dueq.Op, members []string) error {
	if r.head.DryRun {
		return r.foresee(ctx, store, op, members)
	}
	targets := make([]dueq.Target, len(members))
	for i, member := range members {
		targets[i].Member = member
		if op == dueq.OpDelete {
			targets[i].State = dueq.StateDead
		}
	}
	outcomes, err := store.Change(ctx, r.head.Queue, op, targets)
	for i, o := range outcomes {
		r.add(members[i], o.Status.String(), changeError(op, o))
	}
	return err
}

// foresee tells what apply would answer.
func (r *deadReport) foresee(ctx context.Context, store dueq.Store, op dueq.Op, members []string) error {
	infos, err := store.Get(ctx, r.head.Queue, members)
	if err != nil {
		return err
	}
	for i, info := range infos {
		status := map[dueq.State]dueq.Status{
			dueq.StateNone: dueq.StatusNotFound, dueq.StateActive: dueq.StatusRunning,
			dueq.StateDead: dueq.StatusDone, dueq.StateScheduled: dueq.StatusKept,
		}[info.State]
		if op == dueq.OpDelete && (status == dueq.StatusKept || status == dueq.StatusRunning) {
			status = dueq.StatusChanged
		}
		r.add(members[i], status.String(), changeError(op, dueq.Outcome{Status: status}))
	}
	return nil
}

func (r *deadReport) add(member, status string, err error) {
	result := memberStatus{member, status, err}
	r.results = append(r.results, result)
	r.tasks++
	r.Counts[status]++
	if err == nil {
		return
	}
	r.failed++
	missing := dueq.StatusNotFound.String()
	if r.failed == 1 || status == missing && r.first.Status != missing {
		r.first = result
	}
}

// flush prints the results of one call.
func (r *deadReport) flush() error {
	results := r.results
	r.results = r.results[:0]
	if r.app.format != "json" {
		return r.app.print(nil, func(w io.Writer) {
			for _, result := range results {
				row(w, result.Member, result.Status)
			}
		})
	}
	for _, result := range results {
		if err := r.list.add(result); err != nil {
			return err
		}
	}
	return r.list.flush()
}

func (r *deadReport) end() error {
	if r.app.format == "json" {
		return r.list.end(r.deadTail)
	}
	return r.app.print(nil, func(w io.Writer) { row(w, r.summary()) })
}

func (r *deadReport) summary() string {
	text := fmt.Sprintf("%s %s:", r.head.Op, r.head.Queue)
	if r.head.DryRun {
		text = "dry run of " + text
	}
	for _, status := range slices.Sorted(maps.Keys(r.Counts)) {
		text += fmt.Sprintf(" %d %s", r.Counts[status], status)
	}
	if len(r.Counts) == 0 {
		text += " nothing to do"
	}
	return text
}

// error is that of the named members, nil if none failed.
func (r *deadReport) error(op dueq.Op) error {
	if r.failed == 0 {
		return nil
	}
	text := fmt.Sprintf("%d of %d tasks, such as %s: %v", r.failed, r.tasks, r.first.Member, r.first.err)
	return &dueq.CallError{Op: "dead " + op.String(), Queue: r.head.Queue, Err: &failure{text, r.first.err}}
}
