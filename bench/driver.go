package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"sync"
	"time"
)

// Sizes say how much is measured.
type Sizes struct {
	Rounds           int   `json:"rounds"`
	Schedule         int   `json:"schedule"` // tasks; a tenth with one caller, five times as many in batches
	Drain            int   `json:"drain"`
	PrecisionSeconds int   `json:"precision_seconds"`
	IdleSeconds      int   `json:"idle_seconds"`
	Memory           []int `json:"memory"`
	Claim            []int `json:"claim"`
	ClaimRounds      int   `json:"claim_rounds"`
	Growth           []int `json:"growth"`
}

// Measurement is one case of one work; every system that does the work is
// measured with it.
type Measurement struct {
	Work, Case string
	Rounds     func(*Peer) int // how often a system is measured at most; nil is every round
	Together   bool            // all systems at the same time, since nothing is timed
	Brief      bool            // fast systems are measured four times a round
	Run        func(context.Context, *session) (Values, error)
}

// driver measures, and keeps what it found.
type driver struct {
	sizes Sizes
	peers []*Peer // those that can be had
	until time.Time
	say   io.Writer

	mu     sync.Mutex // guards what follows
	values map[row][]Values
	failed []Failure
}

// row is one line of a table.
type row struct{ Work, Case, System string }

// Failure is a system that could not be had, or a measurement that failed its
// check.
type Failure struct {
	Work   string `json:"work,omitempty"`
	Case   string `json:"case,omitempty"`
	System string `json:"system"`
	Reason string `json:"reason"`
}

// measure repeats the measurements, systems in turn: A B C A B C. When time is
// up no new round begins, and one under way ends early; the first is always
// whole.
func (d *driver) measure(ctx context.Context, all []Measurement) {
	for round := range d.sizes.Rounds {
		for _, m := range all {
			d.measureAll(ctx, m, round)
		}
	}
}

// measureAll measures one case with every system that does it.
func (d *driver) measureAll(ctx context.Context, m Measurement, round int) {
	var together sync.WaitGroup
	defer together.Wait()
	for _, p := range d.peers {
		late := round > 0 && time.Now().After(d.until)
		if ctx.Err() != nil || late || !p.does(m.Work) || m.Rounds != nil && round >= m.Rounds(p) {
			continue
		}
		if m.Together {
			together.Go(func() { d.measureOne(ctx, m, p, round) })
			continue
		}
		for range m.repeats(p) {
			d.measureOne(ctx, m, p, round)
		}
	}
}

// repeats is how often a system is measured in a round.
func (m Measurement) repeats(p *Peer) int {
	if m.Brief && p.fast {
		return 4
	}
	return 1
}

func (d *driver) measureOne(ctx context.Context, m Measurement, p *Peer, round int) {
	began := time.Now()
	v, err := d.runOne(ctx, m, p)
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.say, "%d %-10s %-20s %-12s %6.1f s", round+1, m.Work, m.Case, p.Name, time.Since(began).Seconds())
	if err != nil {
		fmt.Fprintln(d.say, "  failed:", err)
		d.failed = append(d.failed, Failure{m.Work, m.Case, p.Name, err.Error()})
		return
	}
	fmt.Fprintln(d.say, " ", v.brief(m.Work))
	r := row{m.Work, m.Case, p.Name}
	d.values[r] = append(d.values[r], v)
}

func (d *driver) runOne(ctx context.Context, m Measurement, p *Peer) (Values, error) {
	s, err := newSession(p, d.sizes)
	if err != nil {
		return nil, err
	}
	defer s.server.Stop()
	return m.Run(ctx, s)
}

// line is a row with its figures.
type line struct {
	Work    string            `json:"work"`
	Case    string            `json:"case"`
	System  string            `json:"system"`
	Figures map[string]Figure `json:"figures"`
}

// lines returns what was found, in the order of measurements and systems.
func (d *driver) lines(all []Measurement) []line {
	var out []line
	for _, m := range all {
		for _, p := range d.peers {
			if values := d.values[row{m.Work, m.Case, p.Name}]; len(values) > 0 {
				out = append(out, line{m.Work, m.Case, p.Name, figures(values)})
			}
		}
	}
	return out
}

func figures(repeats []Values) map[string]Figure {
	byMetric := make(map[string][]float64)
	for _, v := range repeats {
		for metric, value := range v {
			if !math.IsNaN(value) && !math.IsInf(value, 0) {
				byMetric[metric] = append(byMetric[metric], value)
			}
		}
	}
	out := make(map[string]Figure, len(byMetric))
	for metric, values := range byMetric {
		out[metric] = summarise(values)
	}
	return out
}
