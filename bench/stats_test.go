package main

import (
	"math"
	"testing"
)

func TestSummaryIsTheMedianWithTheExtremes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   []float64
		want Figure
	}{
		{[]float64{7}, Figure{7, 7, 7, 1}},
		{[]float64{3, 1}, Figure{2, 1, 3, 2}},
		{[]float64{9, 1, 4}, Figure{4, 1, 9, 3}},
		{[]float64{9, 1, 4, 6}, Figure{5, 1, 9, 4}},
	} {
		if got := summarise(c.in); got != c.want {
			t.Errorf("summarise(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}

func TestQuantileTakesTheValueAtThatShare(t *testing.T) {
	t.Parallel()
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i)
	}
	for share, want := range map[float64]float64{0: 0, 0.5: 50, 0.99: 99, 1: 99} {
		if got := quantile(hundred, share); got != want {
			t.Errorf("quantile of %v is %v, want %v", share, got, want)
		}
	}
	if got := quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("quantile of nothing is %v", got)
	}
}

func TestDriftIsOverAllProcessesAndCountsWhatWasEarly(t *testing.T) {
	t.Parallel()
	v := Values{}
	v.addDrift([]Result{{DriftUs: []int64{-250, 1000}}, {DriftUs: []int64{4000}}})
	want := Values{"drift_p50_ms": 1, "drift_p99_ms": 4, "drift_max_ms": 4, "early": 1, "earliest_ms": -0.25}
	for metric, value := range want {
		if v[metric] != value {
			t.Errorf("%s is %v, want %v", metric, v[metric], value)
		}
	}
}

func TestCostIsPerHundredThousandTasksAndPerTask(t *testing.T) {
	t.Parallel()
	v := Values{}
	v.addCost(50_000, Usage{CPU: 0.5, Commands: 100_000}, Result{CPU: 1, Allocs: 50_000}, Result{CPU: 2, Allocs: 100_000})
	want := Values{"redis_cpu_s": 1, "commands": 2, "client_cpu_s": 6, "allocs": 3}
	for metric, value := range want {
		if v[metric] != value {
			t.Errorf("%s is %v, want %v", metric, v[metric], value)
		}
	}
}

func TestTimeOfTheServerIsSplitAmongCommandsLuaAndTheRest(t *testing.T) {
	t.Parallel()
	v := Values{}
	v.addCost(10, Usage{CPU: 0.0001, Micros: map[string]float64{"scripts": 60, "zadd": 20, "others": 10}}, Result{})
	for metric, value := range map[string]float64{"us_zadd": 2, "us_others": 1, "us_lua": 3, "us_outside": 4} {
		if v[metric] != value {
			t.Errorf("%s is %v, want %v", metric, v[metric], value)
		}
	}
	v = Values{}
	v.addCost(10, Usage{CPU: 0.0001, Micros: map[string]float64{"zadd": 40}}, Result{})
	if _, ok := v["us_lua"]; ok || v["us_outside"] != 6 {
		t.Errorf("without scripts: %v", v)
	}
}

func TestEveryTaskMustBeHandledExactlyOnce(t *testing.T) {
	t.Parallel()
	d := due{first: 10, n: 3}
	if err := d.check([]Result{{Tasks: []int{12, 10}}, {Tasks: []int{11}}}); err != nil {
		t.Errorf("three tasks handled once each: %v", err)
	}
	for name, results := range map[string][]Result{
		"one is missing":     {{Tasks: []int{10, 11}}},
		"one came twice":     {{Tasks: []int{10, 11, 12}}, {Tasks: []int{10}}},
		"one is not due":     {{Tasks: []int{9, 11, 12}}},
		"something is left":  {{Tasks: []int{10, 11, 12}, Left: 1}},
		"one replaced other": {{Tasks: []int{10, 11, 11}}},
	} {
		if d.check(results) == nil {
			t.Errorf("%s, and nobody says so", name)
		}
	}
	if err := (due{first: 10, n: 1, behind: 10}).check([]Result{{Tasks: []int{10}, Left: 10}}); err != nil {
		t.Errorf("ten tasks stay behind as they should: %v", err)
	}
}

func TestCommandsOfConnectionsDoNotCount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key, value string
		want       int64
	}{
		{"cmdstat_zadd", "calls=12,usec=3", 12},
		{"cmdstat_info", "calls=12,usec=3", 0},
		{"cmdstat_client|setinfo", "calls=2,usec=3", 0},
		{"used_cpu_sys", "3.5", 0},
	} {
		if got := calls(c.key, c.value); got != c.want {
			t.Errorf("%s:%s counts %d, want %d", c.key, c.value, got, c.want)
		}
	}
}

func TestCommandsOfAPipelineAreOneRoundTripAndThoseOfScriptsAreNone(t *testing.T) {
	t.Parallel()
	m := monitor{last: map[string]float64{}}
	for _, line := range []string{
		"+OK",
		`+1700000000.000000 [0 127.0.0.1:1] "evalsha" "x"`,
		`+1700000000.000010 [0 lua] "zrange" "x"`,
		`+1700000000.000900 [0 127.0.0.1:1] "evalsha" "x"`,
		`+1700000000.001000 [0 127.0.0.1:2] "get" "[a]"`,
		`+1700000001.000000 [0 127.0.0.1:1] "evalsha" "x"`,
	} {
		m.take(line)
	}
	if want := (Traffic{Commands: 4, Trips: 3}); m.Traffic != want {
		t.Errorf("got %+v, want %+v", m.Traffic, want)
	}
}
