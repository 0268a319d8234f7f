package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// The driver starts itself as its clients; here that is the test.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "client" {
		if err := runClient(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// tiny is enough to see that the work is done.
var tiny = Sizes{Rounds: 1, Schedule: 300, Drain: 300, Memory: []int{500}, Claim: []int{500}, ClaimRounds: 3, Growth: []int{500}}

func TestEverySystemOfOursDoesItsWorks(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"dueq", "dueq SQLite", "raw SQLite", "raw Redis", "textbook"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := findPeer(name)
			if err != nil {
				t.Fatal(err)
			}
			doesItsWorks(t, p)
		})
	}
}

func doesItsWorks(t *testing.T, p *Peer) {
	all := slices.Concat(scheduleWorks(tiny), batchWorks(tiny), drainWorks(tiny), memoryWorks(tiny), claimWorks(tiny), growthWorks(tiny)[:1])
	all = slices.DeleteFunc(all, func(m Measurement) bool { return !p.does(m.Work) })
	var log strings.Builder
	d := &driver{sizes: tiny, peers: []*Peer{p}, say: &log, values: map[row][]Values{}}
	d.measure(t.Context(), all)
	lines := d.lines(all)
	if len(d.failed) > 0 || len(lines) != len(all) {
		t.Fatalf("%d of %d measurements succeeded\n%s", len(lines), len(all), log.String())
	}
	for _, l := range lines {
		for metric, f := range l.Figures {
			if strings.HasSuffix(metric, "per_s") && f.Median <= 0 {
				t.Errorf("%s %s: %s is %v", l.Work, l.Case, metric, f.Median)
			}
		}
	}
}

// fixed is a measurement that notes who was measured.
func fixed(order *[]string, rounds func(*Peer) int) Measurement {
	return Measurement{Work: "schedule", Rounds: rounds, Run: func(_ context.Context, s *session) (Values, error) {
		*order = append(*order, s.peer.Name)
		return Values{"tasks_per_s": float64(len(*order))}, nil
	}}
}

func stub(name string) *Peer {
	return &Peer{Name: name, start: startFile, works: []string{"schedule"}}
}

func TestRepeatsAreInterleavedAndTimeEndsThem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		until  time.Time
		rounds func(*Peer) int
		want   string
	}{
		{time.Now().Add(time.Hour), nil, "A B A B A B"},
		{time.Now().Add(time.Hour), once, "A B"},
		{time.Now().Add(-time.Hour), nil, "A B"},
	} {
		var order []string
		d := &driver{sizes: Sizes{Rounds: 3}, peers: []*Peer{stub("A"), stub("B")}, until: c.until, say: &strings.Builder{}, values: map[row][]Values{}}
		d.measure(t.Context(), []Measurement{fixed(&order, c.rounds)})
		if got := strings.Join(order, " "); got != c.want {
			t.Errorf("measured %s, want %s", got, c.want)
		}
	}
}

func TestFailedMeasurementIsNamedAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	m := Measurement{Work: "schedule", Case: "128", Run: func(_ context.Context, s *session) (Values, error) {
		if s.peer.Name == "A" {
			return nil, fmt.Errorf("one is missing")
		}
		return Values{"tasks_per_s": 1}, nil
	}}
	d := &driver{sizes: Sizes{Rounds: 1}, peers: []*Peer{stub("A"), stub("B")}, say: &strings.Builder{}, values: map[row][]Values{}}
	d.measure(t.Context(), []Measurement{m})
	if want := (Failure{"schedule", "128", "A", "one is missing"}); len(d.failed) != 1 || d.failed[0] != want {
		t.Errorf("failed: %+v, want %+v", d.failed, want)
	}
	if lines := d.lines([]Measurement{m}); len(lines) != 1 || lines[0].System != "B" {
		t.Errorf("found %+v", lines)
	}
}
