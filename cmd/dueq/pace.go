package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

// errInterrupted ends a command that did part of its work, between two calls.
var errInterrupted = errors.New("interrupted")

// pace spaces out a command's work on many tasks, and ends it between two
// calls when its context ends.
type pace struct {
	perSecond int // zero is as fast as it goes
	most      int // tasks a call; zero is MaxItems

	began time.Time
	done  int
}

func (p *pace) add(cmd *cobra.Command) {
	cmd.Flags().Var(newValue(&p.perSecond, "", "N/s", parseRate), "rate", "at most so many tasks a second")
}

func parseRate(s string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(s, "/s"))
	if err != nil || n < 1 || n > 1_000_000 {
		return 0, &dueq.FieldError{Field: "rate", Reason: fmt.Sprintf("%q is not 1/s to 1000000/s", s)}
	}
	return n, nil
}

// each calls f with some of the members at a time. The context f gets does not
// end with ctx: what began is finished.
func (p *pace) each(ctx context.Context, members []string, f func(ctx context.Context, members []string) error) error {
	for some := range slices.Chunk(members, p.chunk()) {
		if err := p.wait(ctx); err != nil {
			return err
		}
		if err := f(context.WithoutCancel(ctx), some); err != nil {
			return err
		}
		p.done += len(some)
	}
	return nil
}

// chunk is a tenth of a second's share, so that a slow rate does not come in
// bursts.
func (p *pace) chunk() int {
	n := dueq.MaxItems
	if p.most > 0 {
		n = p.most
	}
	if p.perSecond > 0 {
		n = min(n, max(p.perSecond/10, 1))
	}
	return n
}

func (p *pace) wait(ctx context.Context) error {
	if p.began.IsZero() {
		p.began = time.Now()
	}
	due := time.Duration(0)
	if p.perSecond > 0 {
		due = time.Duration(float64(p.done) / float64(p.perSecond) * float64(time.Second))
	}
	return pause(ctx, time.Until(p.began.Add(due)))
}

// pause waits for d, or fails with errInterrupted when ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return errInterrupted
	case <-timer.C:
	}
	if ctx.Err() != nil { // both, and the timer was taken
		return errInterrupted
	}
	return nil
}
