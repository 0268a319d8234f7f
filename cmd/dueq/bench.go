package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

const benchHelp = `Measure a store with dueq's own client and worker, default settings, on queues
made for it and emptied at the end:

  schedule   callers schedule tasks one by one, due an hour ahead at random
  drain      a worker handles tasks that are due, leased and acknowledged
  precision  tasks come due at a steady rate; drift is from due to handler start

Without names all three run. Client and server share this machine's cores, if
the store is here: compare figures of one run, not of two machines.`

// benchPlan is what to measure.
type benchPlan struct {
	works       []string
	tasks       int
	callers     int
	concurrency int
	rate        int
	seconds     int
}

var benchWorks = []string{"schedule", "drain", "precision"}

func (a *app) bench() *cobra.Command {
	var plan benchPlan
	cmd := &cobra.Command{
		Use:   "bench [WORK…]",
		Short: "Measure a store: schedule, drain, precision",
		Long:  benchHelp,
		Example: `  dueq bench --store redis://127.0.0.1:6379
  dueq bench precision --rate 1000 --seconds 10 --store memory:`,
		ValidArgs: benchWorks,
		Args:      cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if plan.works = args; len(args) == 0 {
				plan.works = benchWorks
			}
			for _, work := range plan.works {
				if _, err := oneOf("work", benchWorks...)(work); err != nil {
					return err
				}
			}
			store, err := a.store(cmd.Context())
			if err != nil {
				return err
			}
			return a.measure(cmd.Context(), store, plan)
		},
	}
	flags := cmd.Flags()
	flags.Var(newValue(&plan.tasks, "50000", "N", between("tasks", 1, 10_000_000)), "tasks", "tasks to schedule and to drain")
	flags.Var(newValue(&plan.callers, "128", "N", between("callers", 1, 10_000)), "callers", "goroutines that schedule")
	flags.Var(newValue(&plan.concurrency, "16", "N", between("concurrency", 1, 10_000)), "concurrency", "handlers at once")
	flags.Var(newValue(&plan.rate, "1000", "N", between("rate", 1, 100_000)), "rate", "tasks per second that come due")
	flags.Var(newValue(&plan.seconds, "5", "N", between("seconds", 1, 3600)), "seconds", "how long they come due")
	return cmd
}

// benchView is one measurement. What a work does not measure is zero.
type benchView struct {
	Work       string  `json:"work"`
	Tasks      int     `json:"tasks"`
	Parallel   int     `json:"parallel"` // callers, or handlers at once
	TookMilli  float64 `json:"took_ms"`
	PerSecond  float64 `json:"tasks_per_s"`
	DriftP50   float64 `json:"drift_p50_ms"`
	DriftP99   float64 `json:"drift_p99_ms"`
	DriftMax   float64 `json:"drift_max_ms"`
	Early      int     `json:"early"`
	AllocsTask float64 `json:"allocs_per_task"`
}

func (a *app) measure(ctx context.Context, store dueq.Store, plan benchPlan) error {
	ctx, release := a.stopOnSignal(ctx, func() {})
	defer release()
	b := &bench{store: store, plan: plan, suffix: fmt.Sprintf("bench-%06x", rand.N(1<<24))}
	works := map[string]func(context.Context) (benchView, error){
		"schedule": b.schedule, "drain": b.drain, "precision": b.precision,
	}
	var views []benchView
	for _, work := range plan.works {
		a.say("measuring %s …", work)
		view, err := works[work](ctx)
		if cleanErr := b.cleanUp(work); err == nil {
			err = cleanErr
		}
		if err != nil {
			return err
		}
		views = append(views, view)
	}
	return a.print(views, func(w io.Writer) { printBench(w, views) })
}

func printBench(w io.Writer, views []benchView) {
	row(w, "WORK", "TASKS", "PARALLEL", "TASKS/S", "ALLOCS/TASK", "DRIFT P50", "P99", "MAX", "EARLY")
	for _, v := range views {
		if v.Work == "precision" {
			row(w, v.Work, v.Tasks, v.Parallel, fmt.Sprintf("%.0f", v.PerSecond), fmt.Sprintf("%.1f", v.AllocsTask),
				fmt.Sprintf("%.2f ms", v.DriftP50), fmt.Sprintf("%.2f ms", v.DriftP99), fmt.Sprintf("%.2f ms", v.DriftMax), v.Early)
			continue
		}
		row(w, v.Work, v.Tasks, v.Parallel, fmt.Sprintf("%.0f", v.PerSecond), fmt.Sprintf("%.1f", v.AllocsTask), "-", "-", "-", "-")
	}
}

// timing is what a work took, from start to stop.
type timing struct {
	began  time.Time
	allocs uint64
}

func startTiming() timing {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return timing{time.Now(), m.Mallocs}
}

func (t timing) view(work string, tasks, parallel int, took time.Duration) benchView {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return benchView{
		Work: work, Tasks: tasks, Parallel: parallel,
		TookMilli:  float64(took.Microseconds()) / 1000,
		PerSecond:  float64(tasks) / took.Seconds(),
		AllocsTask: float64(m.Mallocs-t.allocs) / float64(tasks),
	}
}

// drifts summarises drifts in place.
func (v *benchView) drifts(all []time.Duration) {
	slices.Sort(all)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	at := func(share float64) time.Duration { return all[min(int(share*float64(len(all))), len(all)-1)] }
	v.DriftP50, v.DriftP99, v.DriftMax = ms(at(0.50)), ms(at(0.99)), ms(all[len(all)-1])
	v.Early, _ = slices.BinarySearch(all, 0)
}
