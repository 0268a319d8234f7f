package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

const demoHelp = `Close unpaid orders, the main job of a delay queue, in a few seconds:
orders are scheduled to be closed 0 to 5 s from now. Some are paid in time and
cancelled, some get another time, some fail and are tried again, and one fails
until it is a dead letter. Meanwhile a user is reminded three times, at growing
intervals. At the end everything must add up, and nothing may have run early.

It runs in a file of its own that goes at the end, whatever DUEQ_STORE says,
unless --store is given. There it uses queues of its own and empties them at the end.`

// demoMost is how long the demo may take; usually it is half of it.
const demoMost = 20 * time.Second

func (a *app) demo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Watch orders being closed on time, self-contained",
		Long:  demoHelp,
		Example: `  dueq demo
  dueq demo --store redis://127.0.0.1:6379 -o json`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			suffix := fmt.Sprintf("-demo-%06x", rand.N(1<<24))
			if a.url == "" {
				suffix = ""
			}
			store, err := a.demoStore(cmd.Context())
			if err != nil {
				return err
			}
			ctx, release := a.stopOnSignal(cmd.Context(), func() {})
			defer release()
			d := newDemo(store, suffix)
			defer d.cleanUp(ctx)
			if err := d.run(ctx, a.progress()); err != nil {
				return err
			}
			return a.printDemo(cmd.Context(), d)
		},
	}
}

// demoStore opens the store that was named, or a new one that goes at the end.
func (a *app) demoStore(ctx context.Context) (dueq.Store, error) {
	if a.url != "" {
		return a.store(ctx)
	}
	dir, err := os.MkdirTemp("", "dueq-demo-")
	if err != nil {
		return nil, err
	}
	a.scratch = dir
	a.opened, err = a.open(ctx, "sqlite:"+filepath.Join(dir, "demo.db"), a.prefix)
	return a.opened, err
}

// run does it all and returns when every task has come to its end.
func (d *demo) run(ctx context.Context, progress func(c demoCounts, last bool)) error {
	if err := d.set(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- d.worker().Run(ctx)
		stop() // a worker that failed ends the rest
	}()
	err := d.produce(ctx)
	if err == nil {
		err = d.wait(ctx, progress)
	} else if ctx.Err() != nil {
		err = errStopped
	}
	stop()
	if workErr := <-ended; workErr != nil {
		return workErr
	}
	return err
}

var errStopped = errors.New("stopped before the end")

func (d *demo) wait(ctx context.Context, progress func(c demoCounts, last bool)) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		counts, stopped := d.counts(), ctx.Err() != nil
		left, late := counts.left(), counts.Elapsed > demoMost
		progress(counts, left == 0 || late || stopped)
		switch {
		case left == 0:
			return nil
		case stopped:
			return errStopped
		case late:
			return fmt.Errorf("%d tasks have not come to an end after %v", left, demoMost)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// progress returns what shows the counts on stderr: in one line of a terminal
// that changes, elsewhere in a line a second.
func (a *app) progress() func(c demoCounts, last bool) {
	if isTerminal(a.stderr) {
		return func(c demoCounts, last bool) {
			fmt.Fprintf(a.stderr, "\r\x1b[K%v%s", c, map[bool]string{true: "\n"}[last])
		}
	}
	next := time.Duration(0)
	return func(c demoCounts, last bool) {
		if c.Elapsed < next && !last {
			return
		}
		next = c.Elapsed.Truncate(time.Second) + time.Second
		fmt.Fprintln(a.stderr, c)
	}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// demoView is the summary as JSON shows it.
type demoView struct {
	Orders              string  `json:"order_queue"`
	Reminders           string  `json:"reminder_queue"`
	Scheduled           int     `json:"scheduled"`
	Handled             int     `json:"handled"`
	Cancelled           int     `json:"cancelled"`
	Dead                int     `json:"dead"`
	AddsUp              bool    `json:"adds_up"`
	Problem             string  `json:"problem"` // why it does not
	Rescheduled         int     `json:"rescheduled"`
	Retries             int     `json:"retries"`
	Reminded            int     `json:"reminders"`
	ReminderIntervalsMs []int64 `json:"reminder_intervals_ms"`
	Early               int     `json:"early"`
	Starts              int     `json:"starts"` // of handlers, what drift is measured on
	DriftP50Us          int64   `json:"drift_p50_us"`
	DriftP99Us          int64   `json:"drift_p99_us"`
	DriftMaxUs          int64   `json:"drift_max_us"`
	ElapsedMs           int64   `json:"elapsed_ms"`
}

func (a *app) printDemo(ctx context.Context, d *demo) error {
	counts := d.counts()
	problem := d.check(ctx, counts)
	view := demoView{
		Orders: d.orders, Reminders: d.reminders,
		Scheduled: counts.Scheduled, Handled: counts.Handled, Cancelled: counts.Cancelled, Dead: counts.Dead,
		AddsUp: problem == nil, Rescheduled: counts.Rescheduled, Retries: counts.Retries,
		Reminded: len(counts.Intervals), ReminderIntervalsMs: []int64{},
		Early: counts.Early, Starts: len(counts.Drifts),
		DriftP50Us: counts.drift(0.5).Microseconds(), DriftP99Us: counts.drift(0.99).Microseconds(), DriftMaxUs: counts.drift(1).Microseconds(),
		ElapsedMs: counts.Elapsed.Milliseconds(),
	}
	if problem != nil {
		view.Problem = problem.Error()
	}
	for _, interval := range counts.Intervals {
		view.ReminderIntervalsMs = append(view.ReminderIntervalsMs, interval.Milliseconds())
	}
	if err := a.print(view, func(w io.Writer) { tableDemo(w, view, a.url) }); err != nil {
		return err
	}
	return problem
}

func tableDemo(w io.Writer, v demoView, url string) {
	row(w, "scheduled", v.Scheduled, "tasks on "+v.Orders+" and "+v.Reminders)
	row(w, "handled", v.Handled, fmt.Sprintf("%d were rescheduled before, %d runs failed and were tried again", v.Rescheduled, v.Retries))
	row(w, "cancelled", v.Cancelled, "paid in time")
	row(w, "dead", v.Dead, "retries used up: a dead letter")
	row(w, "adds up", yesNo(v.AddsUp), sumOr(v))
	row(w, "reminders", v.Reminded, "at intervals of "+intervals(v.ReminderIntervalsMs))
	row(w, "early", v.Early, "starts before the due time")
	row(w, "drift p50", ms(v.DriftP50Us), fmt.Sprintf("from due to start, of %d starts", v.Starts))
	row(w, "drift p99", ms(v.DriftP99Us), "")
	row(w, "drift max", ms(v.DriftMaxUs), "")
	row(w)
	row(w, "What to try next:")
	switch {
	case url == "":
		row(w, "  dueq demo --store redis://127.0.0.1:6379")
	case strings.Contains(url, "@"):
		row(w, "  export DUEQ_STORE=…") // there is a password in it
	default:
		row(w, "  export DUEQ_STORE="+url)
	}
	row(w, "  dueq work order:close -- sh -c 'echo closing $DUEQ_ID'")
	row(w, "  dueq schedule order:close order_123456:pay_timeout --in 5s")
	row(w, "  dueq stats order:close")
}

func sumOr(v demoView) string {
	if !v.AddsUp {
		return v.Problem
	}
	return fmt.Sprintf("%d = %d + %d + %d, as the store counts", v.Scheduled, v.Handled, v.Cancelled, v.Dead)
}

func intervals(all []int64) string {
	var texts []string
	for _, ms := range all {
		texts = append(texts, fmt.Sprintf("%.2f s", float64(ms)/1000))
	}
	return strings.Join(texts, ", ")
}

func ms(us int64) string { return fmt.Sprintf("%.1f ms", float64(us)/1000) }
