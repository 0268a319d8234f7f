package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progress tells people how far a long command is.
type progress interface {
	at(bytes, tasks int64)
	clear() // before something else is written to stderr
	end()
}

// newProgress is a bar on a terminal, a line every few seconds elsewhere, and
// nothing with -o json. size is that of the input in bytes, or -1.
func (a *app) newProgress(what string, size int64) progress {
	switch {
	case a.format == "json":
		return noProgress{}
	case a.isTerminal(a.stderr):
		return newBar(a.stderr, escape(what), size)
	}
	return &lineProgress{app: a, what: what, size: size, began: time.Now(), said: time.Now()}
}

type noProgress struct{}

func (noProgress) at(int64, int64) {}
func (noProgress) clear()          {}
func (noProgress) end()            {}

// bar moves with the bytes read, of which the whole is known, and shows tasks.
type bar struct {
	*progressbar.ProgressBar
	what  string
	size  int64
	drawn time.Time
}

func newBar(w io.Writer, what string, size int64) *bar {
	if size < 1 {
		size = -1 // unknown, for which it has a spinner
	}
	return &bar{what: what, size: size, ProgressBar: progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
		progressbar.OptionFullWidth())}
}

func (b *bar) at(bytes, tasks int64) {
	if time.Since(b.drawn) < 100*time.Millisecond {
		return
	}
	b.drawn = time.Now()
	if b.size > 0 {
		bytes = min(bytes, b.size-1) // reading is ahead: it is not the end yet
	}
	b.Describe(fmt.Sprintf("%s: %d tasks", b.what, tasks))
	_ = b.Set64(bytes)
}

func (b *bar) clear() { _ = b.Clear() }
func (b *bar) end()   { _ = b.Clear() }

type lineProgress struct {
	app         *app
	what        string
	size        int64
	began, said time.Time
}

func (l *lineProgress) at(bytes, tasks int64) {
	now := time.Now()
	if now.Sub(l.said) < progressEvery {
		return
	}
	l.said = now
	share := ""
	if l.size > 0 {
		share = fmt.Sprintf(", %d %% of the file", 100*min(bytes, l.size)/l.size)
	}
	l.app.say("%s: %d tasks%s, %.0f/s", l.what, tasks, share, float64(tasks)/now.Sub(l.began).Seconds())
}

func (*lineProgress) clear() {}
func (*lineProgress) end()   {}
