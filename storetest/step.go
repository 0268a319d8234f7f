package storetest

import (
	"fmt"
	"math"
	"time"

	"github.com/dueq/dueq"
	"pgregory.net/rapid"
)

// step is one random operation of Model. What it does not use is zero.
type step struct {
	op       string
	member   int // index among the members
	held     []int
	in       time.Duration
	absolute bool // in is from now, as an instant
	far      bool // an instant out of bounds
	mode     dueq.IfExists
	body     *string
	twice    bool
	change   dueq.Op
	state    dueq.State
	mustBody bool
	mustDue  bool
	max      int
	d        time.Duration
	verdict  dueq.Verdict
	text     string
	score    float64
	raw      bool // score is not from now
	setting  string
	value    string
}

// ops are the operations, the frequent ones more than once. The first is what
// rapid shrinks to.
var ops = []string{"nothing", "schedule", "claim", "settle", "advance", "change", "schedule", "claim", "settle", "advance",
	"schedule", "change", "claim", "settle", "extend", "add", "remove", "set", "list", "advance"}

var (
	delays    = []time.Duration{0, time.Millisecond, 7 * time.Millisecond, 400 * time.Millisecond, time.Second, 6 * time.Second, time.Hour}
	whens     = append([]time.Duration{-time.Second, -time.Hour}, delays...)
	clocks    = []time.Duration{time.Millisecond, 7 * time.Millisecond, 400 * time.Millisecond, time.Second, 2100 * time.Millisecond, 6 * time.Second, 31 * time.Second, -500 * time.Millisecond, time.Hour, time.Second, time.Second}
	leases    = []time.Duration{0, time.Second, 2 * time.Second, 30 * time.Second, 3 * time.Second, 1500 * time.Millisecond, 999 * time.Millisecond, 25 * time.Hour}
	rawScores = []float64{-1, 0, 1, 1_790_000_000, dueq.MinDueMilli - 1, dueq.MaxDueMilli + 1, 1e15, math.Inf(1), math.Inf(-1)}
	nearby    = []float64{0, -1000, 400, 0.5, -0.25, 1, 5000}
	verdicts  = []dueq.Verdict{dueq.VerdictAck, dueq.VerdictRetry, dueq.VerdictAgain, dueq.VerdictRelease, dueq.VerdictDead, dueq.VerdictRetry, dueq.VerdictAgain, dueq.VerdictDead}
	changes   = []dueq.Op{dueq.OpCancel, dueq.OpStop, dueq.OpReschedule, dueq.OpRequeue, dueq.OpDelete, dueq.OpRequeue, dueq.OpRequeue}
	// indices of members, some more often, so that things happen to them
	someMembers = []int{0, 0, 0, 1, 1, 2, 3, 4, 5}
	modes       = []dueq.IfExists{dueq.Replace, dueq.Keep, dueq.Earlier, dueq.Later}
	states      = []dueq.State{dueq.StateNone, dueq.StateScheduled, dueq.StateDead}
	patches     = [][2]string{{"retries", "0"}, {"retries", "1"}, {"retries", "2"}, {"retries", "3"}, {"delivery", "at_most_once"}, {"delivery", "at_least_once"},
		{"max_late", "5s"}, {"max_late", "off"}, {"paused", "on"}, {"paused", "off"}, {"paused", "off"}, {"dead_keep", "10s"}, {"dead_keep", "7d"}, {"body_max", "1"}, {"body_max", "9"}, {"lease", "2s"}, {"retry_cap", "6s"}, {"retries", "-1"}}
)

func pick[V any](t *rapid.T, from []V) V { return rapid.SampledFrom(from).Draw(t, "") }

// draw draws one step.
func (m *model) draw(t *rapid.T) step {
	s := step{op: pick(t, ops)}
	switch s.op {
	case "nothing":
		return s
	case "advance":
		s.d = pick(t, clocks)
		return s
	case "set":
		p := pick(t, patches)
		s.setting, s.value = p[0], p[1]
		return s
	case "claim":
		s.max, s.d = rapid.IntRange(1, 6).Draw(t, ""), pick(t, leases)
		return s
	case "settle", "extend":
		return drawSettle(t, s)
	case "list":
		s.state = pick(t, []dueq.State{dueq.StateScheduled, dueq.StateActive, dueq.StateDead})
		s.mustDue = rapid.Bool().Draw(t, "")
		return s
	}
	if s.op == "remove" && m.priority {
		s.op = "add" // what a plain ZREM leaves of another spelling is nobody's
	}
	s.member = pick(t, someMembers)
	switch s.op {
	case "schedule":
		return drawSchedule(t, s)
	case "change":
		return drawChange(t, s)
	case "add":
		if s.raw = rapid.IntRange(0, 2).Draw(t, "") == 2; s.raw {
			s.score = pick(t, rawScores)
		} else {
			s.score = pick(t, nearby)
		}
	}
	return s
}

func drawSettle(t *rapid.T, s step) step {
	s.held = rapid.SliceOfN(rapid.IntRange(0, 5), 1, 3).Draw(t, "")
	if s.op == "extend" {
		s.d = pick(t, leases[1:])
		return s
	}
	s.verdict = pick(t, verdicts)
	s.d = pick(t, append(delays, dueq.ByPolicy)) // which is only for retry
	if s.verdict == dueq.VerdictRetry && rapid.Bool().Draw(t, "") {
		s.d = dueq.ByPolicy
	}
	s.text = pick(t, []string{"", "why"})
	return s
}

func drawSchedule(t *rapid.T, s step) step {
	drawWhen(t, &s)
	s.mode = pick(t, modes)
	s.twice = rapid.IntRange(0, 3).Draw(t, "") == 3
	s.body = drawBody(t)
	return s
}

func drawChange(t *rapid.T, s step) step {
	s.change = pick(t, changes)
	drawWhen(t, &s)
	s.twice = rapid.IntRange(0, 3).Draw(t, "") == 3
	switch rapid.IntRange(0, 9).Draw(t, "") {
	case 6, 7:
		s.state = pick(t, states)
	case 8:
		s.mustBody, s.body = true, drawBody(t)
	case 9:
		s.mustDue = true
	}
	return s
}

func drawWhen(t *rapid.T, s *step) {
	s.in = pick(t, whens)
	s.absolute = rapid.Bool().Draw(t, "")
	s.far = rapid.IntRange(0, 30).Draw(t, "") == 30
}

func drawBody(t *rapid.T) *string {
	return pick(t, []*string{nil, ptr("x"), ptr(""), ptr("yy")})
}

func ptr(s string) *string { return &s }

func (s step) when(f Fixture) dueq.When {
	switch {
	case s.far:
		return dueq.At(time.Unix(0, 1))
	case s.absolute:
		return dueq.At(f.Now().Add(s.in))
	}
	return dueq.In(s.in)
}

// kind is what a step counts as.
func (s step) kind() string {
	switch s.op {
	case "change":
		return s.change.String()
	case "settle":
		return s.verdict.String()
	}
	return s.op
}

// String is how a step reads in the log of a failure.
func (s step) String() string {
	body := "none"
	if s.body != nil {
		body = fmt.Sprintf("%q", *s.body)
	}
	switch s.op {
	case "advance":
		return fmt.Sprintf("advance %v", s.d)
	case "set":
		return fmt.Sprintf("set %s=%s", s.setting, s.value)
	case "claim":
		return fmt.Sprintf("claim %d for %v", s.max, s.d)
	case "settle":
		return fmt.Sprintf("settle deliveries %v back: %v in %v %q", s.held, s.verdict, s.d, s.text)
	case "extend":
		return fmt.Sprintf("extend deliveries %v back by %v", s.held, s.d)
	case "list":
		return fmt.Sprintf("list %v overdue %v", s.state, s.mustDue)
	case "schedule":
		return fmt.Sprintf("schedule member %d in %v (instant %v, far %v) %v body %s twice %v", s.member, s.in, s.absolute, s.far, s.mode, body, s.twice)
	case "change":
		return fmt.Sprintf("%v member %d in %v (instant %v, far %v) state %v body %v %s due %v twice %v", s.change, s.member, s.in, s.absolute, s.far,
			s.state, s.mustBody, body, s.mustDue, s.twice)
	case "add":
		return fmt.Sprintf("add member %d at %v (from now %v)", s.member, s.score, !s.raw)
	}
	return fmt.Sprintf("%s member %d", s.op, s.member)
}
