package main

import (
	"math"
	"slices"
)

// Values are the figures of one measurement by metric.
type Values map[string]float64

// Figure is one metric over the repeats of a measurement.
type Figure struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"repeats"`
}

// summarise returns the figure of values, which it sorts; there is at least one.
func summarise(values []float64) Figure {
	slices.Sort(values)
	n := len(values)
	return Figure{Median: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1], N: n}
}

// quantile returns the value below which a share of sorted values lies.
func quantile(sorted []float64, share float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

// addDrift adds what the drifts of results come to.
func (v Values) addDrift(results []Result) {
	var all []float64
	early := 0
	for _, r := range results {
		for _, us := range r.DriftUs {
			all = append(all, float64(us)/1000)
			if us < 0 {
				early++
			}
		}
	}
	slices.Sort(all)
	v["drift_p50_ms"], v["drift_p99_ms"], v["drift_max_ms"] = quantile(all, 0.5), quantile(all, 0.99), quantile(all, 1)
	v["early"], v["earliest_ms"] = float64(early), min(quantile(all, 0), 0)
}

const per = 100_000 // tasks, for processor time

// addCost adds what n tasks cost the server and the clients.
func (v Values) addCost(n int, u Usage, results ...Result) {
	tasks := float64(n)
	if u.CPU > 0 {
		v["redis_cpu_s"] = u.CPU * per / tasks
		v["commands"] = float64(u.Commands) / tasks
	}
	if u.Micros != nil {
		v.addMicros(tasks, u)
	}
	var cpu, allocs float64
	for _, r := range results {
		cpu, allocs = cpu+r.CPU, allocs+r.Allocs
	}
	v["client_cpu_s"] = cpu * per / tasks
	if allocs > 0 {
		v["allocs"] = allocs / tasks
	}
}

// addMicros adds where the server's time went, in us a task. What scripts spent
// in no command is Lua; what no command spent is connections and the rest.
func (v Values) addMicros(tasks float64, u Usage) {
	commands := 0.0
	for part, us := range u.Micros {
		if part != "scripts" {
			commands += us
			v["us_"+part] = us / tasks
		}
	}
	outer := commands
	if scripts := u.Micros["scripts"]; scripts > 0 {
		v["us_lua"] = max(scripts-commands, 0) / tasks
		outer = max(scripts, commands)
	}
	v["us_outside"] = max(u.CPU*1e6-outer, 0) / tasks
}
