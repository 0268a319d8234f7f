package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/bulk"
	"github.com/spf13/cobra"
)

const (
	badShown = 20                     // bad lines that are reported one by one
	idleSend = 200 * time.Millisecond // a batch that is not full waits no longer for input
)

// fromFlags are those of schedule that go with --from.
type fromFlags struct {
	from      string
	format    bulk.Format
	strict    bool
	ifExists  dueq.IfExists
	memberMax int
}

func (f *fromFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.from, "from", "", "schedule many: a `FILE` with a task a line, or - for stdin")
	flags.Var(newValue(&f.format, "", "FORMAT", bulk.ParseFormat), "format", "of --from: csv or ndjson (default by the name: .csv, .ndjson, .jsonl)")
	flags.BoolVar(&f.strict, "strict", false, "with --from, schedule nothing unless all lines are good")
	completeWords(cmd, "format", "csv", "ndjson")
	for _, other := range []string{"in", "at", "body"} {
		cmd.MarkFlagsMutuallyExclusive("from", other)
	}
	cmd.MarkFlagsOneRequired("in", "at", "from")
}

// args takes QUEUE MEMBER for one task and QUEUE for many.
func (f *fromFlags) args(cmd *cobra.Command, args []string) error {
	if !cmd.Flags().Changed("from") {
		for _, name := range []string{"format", "strict"} {
			if cmd.Flags().Changed(name) {
				return fmt.Errorf("--%s goes with --from", name)
			}
		}
		return exactly("QUEUE", "MEMBER")(cmd, args)
	}
	if f.format == 0 && f.from != "" {
		var known bool
		if f.format, known = bulk.FormatOf(f.from); !known {
			return fmt.Errorf("--format is needed: %q does not end in .csv, .ndjson or .jsonl", f.from)
		}
	}
	if f.from == "" {
		return errors.New("--from is empty")
	}
	return exactly("QUEUE")(cmd, args)
}

// loadView is what came of a file.
type loadView struct {
	Queue     string    `json:"queue"`
	Tasks     int64     `json:"tasks"` // good and bad ones that were dealt with
	Scheduled int64     `json:"scheduled"`
	Replaced  int64     `json:"replaced"`
	Kept      int64     `json:"kept"`
	Running   int64     `json:"running"`
	Bad       int64     `json:"bad"`
	BadLines  []badLine `json:"bad_lines"` // the first 20
	Line      int       `json:"line"`      // up to which the file is done
	Complete  bool      `json:"complete"`
	TookMilli int64     `json:"took_ms"`
}

type badLine struct {
	Line   int    `json:"line"`
	Reason string `json:"reason"`
}

// load schedules the tasks of one file.
type load struct {
	app    *app
	name   string
	flags  fromFlags
	client *dueq.Client
	view   loadView
	show   progress
	in     *counted
}

func (a *app) scheduleFrom(cmd *cobra.Command, queue string, flags fromFlags) error {
	in, err := a.openFrom(flags.from)
	if err != nil {
		return err
	}
	defer in.Close()
	store, err := a.store(cmd.Context())
	if err != nil {
		return err
	}
	ctx, release := a.stopOnSignal(cmd.Context(), func() {})
	defer release()
	l := &load{
		app: a, name: in.name, flags: flags, client: dueq.NewClient(store, dueq.ClientOptions{MemberMax: flags.memberMax}),
		view: loadView{Queue: queue, BadLines: []badLine{}},
	}
	began := time.Now()
	if flags.strict {
		err = l.strictly(ctx, store, in)
	} else {
		err = l.schedule(ctx, in.file, in.size)
	}
	l.view.TookMilli = time.Since(began).Milliseconds()
	if err != nil && l.view.Tasks == 0 { // nothing was done
		return err
	}
	if more := l.view.Bad - badShown; more > 0 {
		a.say("and %d more bad lines", more)
	}
	if printErr := a.print(l.view, l.table); err == nil {
		err = printErr
	}
	if err == nil && l.view.Bad > 0 {
		err = fmt.Errorf("%d of %d lines are bad", l.view.Bad, l.view.Tasks)
		if !l.view.Complete {
			err = fmt.Errorf("%w: nothing was scheduled", err)
		}
	}
	return err
}

func (l *load) table(w io.Writer) {
	v := l.view
	row(w, fmt.Sprintf("%s: %d scheduled, %d replaced, %d kept, %d running, %d bad, in %.1f s",
		v.Queue, v.Scheduled, v.Replaced, v.Kept, v.Running, v.Bad, float64(v.TookMilli)/1000))
}

// schedule streams a file into the queue.
func (l *load) schedule(ctx context.Context, r io.Reader, size int64) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	records := l.read(reading, r, "scheduling", size)
	defer l.show.end()
	batch := &batch{}
	timer := time.NewTimer(idleSend)
	defer timer.Stop()
	for {
		select {
		case rec := <-records:
			if rec.end != nil {
				return l.finish(ctx, batch, rec.end)
			}
			batch.add(l.view.Queue, rec.Record)
			if !batch.full() {
				continue
			}
		case <-timer.C:
		case <-ctx.Done():
			return l.finish(ctx, batch, errInterrupted)
		}
		if err := l.send(ctx, batch); err != nil {
			return err
		}
		timer.Reset(idleSend)
	}
}

// finish sends the last batch, and returns why it is the last: nil at the end
// of the file.
func (l *load) finish(ctx context.Context, b *batch, why error) error {
	if err := l.send(ctx, b); err != nil {
		return err
	}
	switch {
	case why == io.EOF:
		l.view.Complete = true
		return nil
	case errors.Is(why, errInterrupted):
		return l.stopped(errInterrupted)
	case l.view.Tasks == 0:
		return why // of a header
	}
	return l.stopped(why)
}

// stopped says how far it came.
func (l *load) stopped(why error) error {
	return fmt.Errorf("%w: done up to line %d; --if-exists keep goes on from there when it is run again", why, l.view.Line)
}

// received is a record, or the error that ends the file.
type received struct {
	bulk.Record
	end error
}

// read parses a file beside the calls to the store. A read that hangs, of a
// pipe, cannot be ended: its goroutine may stay until the process ends.
func (l *load) read(ctx context.Context, r io.Reader, what string, size int64) <-chan received {
	l.in = &counted{r: r}
	l.show = l.app.newProgress(what+" "+l.name, size)
	reader := bulk.NewReader(l.in, bulk.Options{Format: l.flags.format, IfExists: l.flags.ifExists, MemberMax: l.flags.memberMax})
	records := make(chan received, 16) // few, since each may be RecordMax long
	go func() {
		for {
			rec, err := reader.Next()
			select {
			case records <- received{rec, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return records
}

// batch is the records of one call, and those before it that are bad.
type batch struct {
	records []bulk.Record
	items   []dueq.Item
	bytes   int
}

func (b *batch) add(queue string, rec bulk.Record) {
	b.records = append(b.records, rec)
	b.items = append(b.items, dueq.Item{Queue: queue, Task: rec.Task, When: rec.When, IfExists: rec.IfExists})
	b.bytes += len(rec.Task.Body)
}

func (b *batch) full() bool {
	return len(b.records) >= dueq.MaxItems || b.bytes >= dueq.MaxBytes
}

// send schedules what is in the batch and empties it. It is not interrupted.
func (l *load) send(ctx context.Context, b *batch) error {
	if len(b.records) == 0 {
		return nil
	}
	good := make([]dueq.Item, 0, len(b.items))
	for i, rec := range b.records {
		if rec.Err == nil {
			good = append(good, b.items[i])
		}
	}
	outcomes, err := l.client.ScheduleAll(context.WithoutCancel(ctx), good)
	if err != nil {
		l.countKnown(outcomes)
		return l.stopped(err)
	}
	next := 0
	for _, rec := range b.records {
		if rec.Err == nil {
			rec.Err = l.count(outcomes[next])
			next++
		}
		l.note(rec)
	}
	b.records, b.items, b.bytes = b.records[:0], b.items[:0], 0
	l.show.at(l.in.n.Load(), l.view.Tasks)
	return nil
}

// count adds an outcome to the counts, or returns why the task was refused.
func (l *load) count(o dueq.Outcome) error {
	switch o.Status {
	case dueq.StatusScheduled:
		l.view.Scheduled++
	case dueq.StatusReplaced:
		l.view.Replaced++
	case dueq.StatusKept:
		l.view.Kept++
	case dueq.StatusRunning:
		l.view.Running++
	}
	return o.Error()
}

func (l *load) countKnown(outcomes []dueq.Outcome) {
	for _, o := range outcomes {
		_ = l.count(o)
	}
}

// note counts a record that is dealt with, and reports a bad one.
func (l *load) note(rec bulk.Record) {
	l.view.Tasks++
	l.view.Line = rec.End
	if rec.Err == nil {
		return
	}
	l.view.Bad++
	if l.view.Bad > badShown {
		return
	}
	l.view.BadLines = append(l.view.BadLines, badLine{rec.Line, rec.Err.Error()})
	l.show.clear()
	l.app.say("line %d: %v", rec.Line, rec.Err)
}

// strictly reads the file twice, and schedules only when all of it is good.
func (l *load) strictly(ctx context.Context, store dueq.Store, in *source) error {
	file, remove, err := in.again(ctx)
	if err != nil {
		return err
	}
	defer remove()
	before, err := file.Stat()
	if err != nil {
		return badFrom(l.flags.from, err)
	}
	set, err := store.Settings(context.WithoutCancel(ctx), l.view.Queue)
	if err != nil {
		return err
	}
	if err := l.check(ctx, file, before.Size(), set); err != nil {
		return err
	}
	if l.view.Bad > 0 {
		return nil
	}
	l.view = loadView{Queue: l.view.Queue, BadLines: []badLine{}}
	after, err := file.Stat()
	if err == nil && (after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime())) {
		err = errors.New("it changed while it was read; nothing was scheduled")
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return badFrom(l.flags.from, err)
	}
	return l.schedule(ctx, file, before.Size())
}

// check reads a file to its end for what is wrong with it, also by the queue's
// settings.
func (l *load) check(ctx context.Context, r io.Reader, size int64, set dueq.Settings) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	records := l.read(reading, r, "checking", size)
	defer l.show.end()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: nothing was scheduled", errInterrupted)
		case rec := <-records:
			if rec.end == io.EOF {
				return nil
			}
			if rec.end != nil {
				return rec.end
			}
			if rec.Err == nil {
				rec.Err = fits(rec.Record, set)
			}
			l.note(rec.Record)
			if l.view.Tasks%dueq.MaxItems == 0 {
				l.show.at(l.in.n.Load(), l.view.Tasks)
			}
		}
	}
}

// fits foresees what the store refuses by the settings of the queue.
func fits(rec bulk.Record, set dueq.Settings) error {
	switch {
	case rec.Task.Priority != 0 && !set.Priority:
		return &dueq.FieldError{Field: "priority", Reason: "is given, but the queue's setting priority is off"}
	case len(rec.Task.Body) > set.BodyMax:
		return fmt.Errorf("body is %d bytes, body_max of the queue is %d: %w", len(rec.Task.Body), set.BodyMax, dueq.ErrTooLarge)
	}
	return nil
}

func badFrom(name string, err error) error {
	if pathErr := (*os.PathError)(nil); errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return &dueq.FieldError{Field: "from", Reason: fmt.Sprintf("%s cannot be read: %v", name, err)}
}
