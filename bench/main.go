// Command bench measures dueq beside other delay queues, each through its own
// public interface, doing the same work on servers of its own. It needs Linux,
// redis-server and, for the peers, node and beanstalkd; make bench-peers
// installs them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	quick, full   bool
	growth        bool
	rounds        int
	budget        time.Duration
	works, system string
	dir, docs     string
}

func run() error {
	if len(os.Args) == 2 && os.Args[1] == "client" {
		return runClient(os.Stdin, os.Stdout)
	}
	var o options
	flag.BoolVar(&o.quick, "quick", false, "small counts, to see that all works")
	flag.BoolVar(&o.full, "full", false, "also 10,000,000 scheduled tasks (needs 2 GB)")
	flag.BoolVar(&o.growth, "growth", false, "measure growth instead of peers")
	flag.IntVar(&o.rounds, "rounds", 0, "repeats; 0 is 3, or 1 with -quick")
	flag.DurationVar(&o.budget, "budget", 13*time.Minute, "begin no repeat after this; the first is always whole")
	flag.StringVar(&o.works, "works", "", "only these, by name, with commas")
	flag.StringVar(&o.system, "systems", "", "only these, by name, with commas")
	flag.StringVar(&o.dir, "results", "results", "directory of the results")
	flag.StringVar(&o.docs, "docs", "", "document to put the results into")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return o.measure(ctx)
}

// measure does all that was asked for and writes it down.
func (o *options) measure(ctx context.Context) error {
	began := time.Now()
	d := &driver{sizes: o.sizes(), until: began.Add(o.budget), say: os.Stderr, values: map[row][]Values{}}
	r := Report{Machine: describeMachine(), Sizes: d.sizes}
	o.findPeers(d, r.Machine.Systems)
	all := o.measurements(d.sizes)
	d.measure(ctx, all)
	r.Lines, r.Failed, r.Took = d.lines(all), d.failed, time.Since(began).Seconds()
	if !o.growth {
		r.Goals = reach(goals(), r.Lines)
	}
	r.Markdown(os.Stdout)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return o.write(&r)
}

// write stores a report. One that is quick or partial gets a name of its own
// and does not reach the document.
func (o *options) write(r *Report) error {
	name := "peers"
	if o.growth {
		name = "growth"
	}
	whole := !o.quick && o.works == "" && o.system == ""
	file := name
	if !whole {
		file = "partial-" + name
	}
	if err := r.write(o.dir, file); err != nil {
		return err
	}
	if o.growth {
		if err := writePicture(filepath.Join(o.dir, file+".svg"), r.Lines); err != nil {
			return err
		}
	}
	if o.docs == "" || !whole {
		return nil
	}
	return updateDocs(o.docs, name, r)
}

func (o *options) sizes() Sizes {
	s := Sizes{
		Rounds: 3, Schedule: 50_000, Drain: 50_000, PrecisionSeconds: 5, IdleSeconds: 10,
		Memory: []int{100_000, 1_000_000}, Claim: []int{2_000, 1_000_000}, ClaimRounds: 300,
		Growth: []int{10_000, 100_000, 1_000_000, 10_000_000},
	}
	if o.quick {
		s = Sizes{
			Rounds: 1, Schedule: 2_000, Drain: 2_000, PrecisionSeconds: 2, IdleSeconds: 3,
			Memory: []int{5_000}, Claim: []int{2_000}, ClaimRounds: 30, Growth: []int{1_000, 5_000},
		}
	}
	if o.full {
		s.Claim = append(s.Claim, 10_000_000)
	}
	if o.rounds > 0 {
		s.Rounds = o.rounds
	}
	return s
}

// findPeers keeps those that were asked for and can be had.
func (o *options) findPeers(d *driver, versions map[string]string) {
	for _, p := range peers {
		if o.system != "" && !listed(o.system, p.Name) {
			continue
		}
		version, err := p.find()
		if err != nil {
			d.failed = append(d.failed, Failure{System: p.Name, Reason: err.Error()})
			continue
		}
		versions[p.Name] = version
		d.peers = append(d.peers, p)
	}
}

func (o *options) measurements(sizes Sizes) []Measurement {
	all := slices.Concat(scheduleWorks(sizes), batchWorks(sizes), drainWorks(sizes), precisionWorks(sizes),
		processWorks(sizes), idleWorks(sizes), memoryWorks(sizes), claimWorks(sizes))
	if o.growth {
		all = growthWorks(sizes)
	}
	return slices.DeleteFunc(all, func(m Measurement) bool { return o.works != "" && !listed(o.works, m.Work) })
}

func listed(names, name string) bool {
	return slices.ContainsFunc(strings.Split(names, ","), func(n string) bool { return strings.TrimSpace(n) == name })
}
