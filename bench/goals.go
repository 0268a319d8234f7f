package main

import "fmt"

// ref points at one median.
type ref struct{ work, kase, system, metric string }

// goal bounds a figure, or its ratio to another.
type goal struct {
	what  string
	of    ref
	over  ref     // the zero ref: the figure itself
	least bool    // bound is a least value, otherwise a most
	bound float64 // both included
}

// Reached is a goal beside what was measured.
type Reached struct {
	What  string  `json:"what"`
	Goal  string  `json:"goal"`
	Value float64 `json:"reached"`
	Known bool    `json:"measured"` // otherwise Value means nothing
	Met   bool    `json:"met"`
}

// goals are the ratios to reach, in the same run on the same machine.
func goals() []goal {
	all := []goal{
		atLeast(5, "schedule, 128 callers: × asynq", speed("schedule", "128"), "asynq"),
		atLeast(3.5, "schedule, 128 callers: × textbook", speed("schedule", "128"), "textbook"),
		atLeast(6, "schedule, 128 callers: × BullMQ", speed("schedule", "128"), "BullMQ"),
		atLeast(0.75, "batch, absolute due: × raw variadic ZADD", speed("batch", "absolute"), "raw Redis"),
		{what: "batch, relative due: × raw variadic ZADD, absolute", of: speed("batch", "relative"),
			over: ref{"batch", "absolute", "raw Redis", "tasks_per_s"}, least: true, bound: 0.65},
	}
	for _, slots := range []string{"16", "100"} {
		what := "drain, concurrency " + slots
		cpu := ref{"drain", slots, "dueq", "redis_cpu_s"}
		all = append(all,
			atLeast(25, what+": × asynq", speed("drain", slots), "asynq"),
			atLeast(12, what+": × BullMQ", speed("drain", slots), "BullMQ"),
			atLeast(7, what+": × beanstalkd", speed("drain", slots), "beanstalkd"),
			atLeast(0.65, what+": × raw claims only", speed("drain", slots), "raw Redis"),
			goal{what: what + ": Redis CPU a task, × asynq", of: cpu, over: cpu.by("asynq"), bound: 1.0 / 15},
			atMost(8, what+": allocations a task", ref{"drain", slots, "dueq", "allocs"}))
	}
	all = append(all,
		atMost(4, "schedule, 128 callers: allocations a task", ref{"schedule", "128", "dueq", "allocs"}),
		atMost(0.7, "drift at 1,000/s, p50, ms", ref{"precision", "1,000/s", "dueq", "drift_p50_ms"}),
		atMost(1.5, "drift at 1,000/s, p99, ms", ref{"precision", "1,000/s", "dueq", "drift_p99_ms"}),
		atMost(0, "handled early", ref{"precision", "1,000/s", "dueq", "early"}),
		atMost(2, "20 worker processes, drift p99, ms", ref{"processes", "20", "dueq", "drift_p99_ms"}),
		atMost(1.7, "20 worker processes, claims a task", ref{"processes", "20", "dueq", "claims"}),
		atMost(3, "idle, 1 queue, commands/s", ref{"idle", "1", "dueq", "commands_per_s"}),
		atMost(2, "idle, 100 queues, bursts of commands/s", ref{"idle", "100", "dueq", "trips_per_s"}),
		atMost(210, "idle, 100 queues, commands/s", ref{"idle", "100", "dueq", "commands_per_s"}))
	for _, body := range []int{0, 120} {
		bytes := ref{"memory", memoryCase(100_000, body), "dueq", "bytes"}
		all = append(all, goal{what: "memory, " + bytes.kase + ": × zset, hash with bodies", of: bytes, over: bytes.by("raw Redis"), bound: 1.02})
	}
	million := ref{"claim", grouped(1_000_000), "dueq", "claim_p99_ms"}
	return append(all,
		atMost(0.5, "claim of 100 at 1 M, p99, ms", million),
		goal{what: "claim of 100, p99 at 10 M: × at 1 M", of: ref{"claim", grouped(10_000_000), "dueq", "claim_p99_ms"}, over: million, bound: 1.5},
		goal{what: "SQLite, schedule, 128 callers, tasks/s", of: speed("schedule", "128").by("dueq SQLite"), least: true, bound: 100_000},
		goal{what: "SQLite, drain, concurrency 16, tasks/s", of: speed("drain", "16").by("dueq SQLite"), least: true, bound: 150_000})
}

func speed(work, kase string) ref { return ref{work, kase, "dueq", "tasks_per_s"} }

func (r ref) by(system string) ref {
	r.system = system
	return r
}

func atLeast(bound float64, what string, of ref, other string) goal {
	return goal{what: what, of: of, over: of.by(other), least: true, bound: bound}
}

func atMost(bound float64, what string, of ref) goal { return goal{what: what, of: of, bound: bound} }

// reach holds the goals against the medians.
func reach(all []goal, lines []line) []Reached {
	medians := make(map[ref]float64)
	for _, l := range lines {
		for metric, f := range l.Figures {
			medians[ref{l.Work, l.Case, l.System, metric}] = f.Median
		}
	}
	out := make([]Reached, len(all))
	for i, g := range all {
		out[i] = g.against(medians)
	}
	return out
}

func (g goal) against(medians map[ref]float64) Reached {
	sign := "≤"
	if g.least {
		sign = "≥"
	}
	r := Reached{What: g.what, Goal: fmt.Sprintf("%s %s", sign, short(g.bound))}
	r.Value, r.Known = medians[g.of]
	if over, ok := medians[g.over]; g.over != (ref{}) {
		if r.Known = r.Known && ok && over > 0; !r.Known {
			r.Value = 0
			return r
		}
		r.Value /= over
	}
	r.Met = r.Known && (g.least && r.Value >= g.bound || !g.least && r.Value <= g.bound)
	return r
}
