package memstore

import (
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

// The table of docs/design.md, cell by cell: what each transition leaves of a
// task in each place, and its answer. A dash is a cell that cannot be.
const table = `
transition     | none         | S            | A              | A+S              | A+N              | C                | C+S              | D            | D+S
replace        | S scheduled  | S replaced   | A+S running    | A+S running      | A+S running      | A+S running      | A+S running      | S scheduled  | S replaced
keep           | S scheduled  | S kept       | A+S running    | A+S kept         | A+N kept         | A+S running      | C+S kept         | S scheduled  | D+S kept
earlier better | S scheduled  | S replaced   | A+S running    | A+S running      | A+S running      | A+S running      | A+S running      | S scheduled  | S replaced
earlier worse  | S scheduled  | S kept       | A+S running    | A+S kept         | A+N kept         | A+S running      | C+S kept         | S scheduled  | D+S kept
later better   | S scheduled  | S replaced   | A+S running    | A+S running      | A+S running      | A+S running      | A+S running      | S scheduled  | S replaced
later equal    | S scheduled  | S kept       | A+S running    | A+S kept         | A+N kept         | A+S running      | C+S kept         | S scheduled  | D+S kept
cancel         | - not_found  | - done       | C running      | C running        | C running        | C running        | C running        | D dead       | D done
stop           | - not_found  | - done       | - done         | - done           | - done           | - done           | - done           | D dead       | D done
reschedule     | - not_found  | S done       | A running      | A+S done         | A+S done         | C running        | C+S done         | D dead       | D+S done
requeue        | - not_found  | S kept       | A running      | A+S running      | A+N running      | C running        | C+S running      | S done       | S kept
delete         | - not_found  | - done       | A running      | A+S running      | A+N running      | C running        | C+S running      | - done       | - done
delete dead    | - not_found  | S changed    | A changed      | A+S changed      | A+N changed      | C changed        | C+S changed      | - done       | S done
claim          | -            | A            | A              | A+N              | A+N              | C                | C+N              | D            | A
claim late     | -            | D            | A              | A+N              | A+N              | C                | C+N              | D            | D
ack            | - lease_lost | S lease_lost | - done         | S superseded     | S superseded     | - superseded     | S superseded     | D lease_lost | D+S lease_lost
retry          | - lease_lost | S lease_lost | S done         | S superseded     | S superseded     | - superseded     | S superseded     | D lease_lost | D+S lease_lost
retry last     | - lease_lost | S lease_lost | D done         | S superseded     | S superseded     | - superseded     | S superseded     | D lease_lost | D+S lease_lost
again          | - lease_lost | S lease_lost | S done         | S superseded     | S superseded     | - superseded     | S superseded     | D lease_lost | D+S lease_lost
release        | - lease_lost | S lease_lost | S done         | S superseded     | S superseded     | - superseded     | S superseded     | D lease_lost | D+S lease_lost
dead           | - lease_lost | S lease_lost | D done         | S superseded     | S superseded     | - superseded     | S superseded     | D lease_lost | D+S lease_lost
extend         | - lease_lost | S lease_lost | A done         | A+S done         | A+N done         | C done           | C+S done         | D lease_lost | D+S lease_lost
lease ends     | -            | S            | S              | S                | S                | -                | S                | D            | D+S
lease ends last| -            | S            | D              | S                | S                | -                | S                | D            | D+S
zadd           | S            | S            | A+S            | A+S              | A+S+N            | C+S              | C+S              | D+S          | D+S
zrem           | -            | -            | A              | A                | A+N              | C                | C                | D            | D
`

func TestTable(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(table), "\n")
	from := cells(lines[0])
	for _, line := range lines[1:] {
		row := cells(line)
		for i := 1; i < len(row); i++ {
			t.Run(row[0]+"/"+from[i], func(t *testing.T) {
				m := newModel(t)
				m.reach(from[i])
				status := m.do(row[0])
				if got := strings.TrimSpace(m.place() + " " + status); got != row[i] {
					t.Errorf("got %q, want %q", got, row[i])
				}
				m.check()
			})
		}
	}
}

func cells(line string) []string {
	row := strings.Split(line, "|")
	for i := range row {
		row[i] = strings.TrimSpace(row[i])
	}
	return row
}

type model struct {
	t   *testing.T
	s   *Store
	q   *queue
	now time.Time
	run *dueq.Task // the delivery in progress
}

func newModel(t *testing.T) *model {
	m := &model{t: t, now: time.UnixMilli(1_750_000_000_000)}
	m.s = New(Options{Now: func() time.Time { return m.now }})
	m.q = m.s.queue("q")
	m.q.settings.RetryJitter = 0
	m.run = &dueq.Task{Due: m.now, Lease: dueq.Lease{Member: "a", Token: newToken(999, false)}}
	return m
}

// later is when the tasks under test are due; the clock stands before.
func (m *model) later() time.Time { return time.UnixMilli(1_750_000_100_000) }

// reach brings task a to a place.
func (m *model) reach(place string) {
	switch place[0] {
	case 'S':
		m.schedule(m.later(), dueq.Replace)
	case 'A', 'C':
		m.schedule(m.now, dueq.Replace)
		m.run = m.claim()[0]
	case 'D':
		m.reach("A")
		m.settle(dueq.VerdictDead)
	}
	switch place {
	case "A+S":
		m.schedule(m.later(), dueq.Replace)
	case "A+N":
		m.schedule(m.now, dueq.Replace)
		m.claim()
	case "C", "C+S":
		m.change(dueq.OpCancel, dueq.StateNone)
	}
	if place == "C+S" || place == "D+S" {
		m.s.Add("q", "a", float64(m.later().UnixMilli()))
	}
}

// do applies a transition and returns its answer, if it has one.
func (m *model) do(transition string) string {
	existing := m.later()
	if m.place() == "A+N" {
		existing = m.now
	}
	switch transition {
	case "replace":
		return m.schedule(m.later(), dueq.Replace)
	case "keep":
		return m.schedule(m.later(), dueq.Keep)
	case "earlier better":
		return m.schedule(existing.Add(-time.Millisecond), dueq.Earlier)
	case "earlier worse":
		return m.schedule(existing.Add(time.Millisecond), dueq.Earlier)
	case "later better":
		return m.schedule(existing.Add(time.Millisecond), dueq.Later)
	case "later equal":
		return m.schedule(existing, dueq.Later)
	case "cancel":
		return m.change(dueq.OpCancel, dueq.StateNone)
	case "stop":
		return m.change(dueq.OpStop, dueq.StateNone)
	case "reschedule":
		return m.change(dueq.OpReschedule, dueq.StateNone)
	case "requeue":
		return m.change(dueq.OpRequeue, dueq.StateNone)
	case "delete":
		return m.change(dueq.OpDelete, dueq.StateNone)
	case "delete dead":
		return m.change(dueq.OpDelete, dueq.StateDead)
	case "extend":
		got, err := m.s.Extend(m.t.Context(), "q", []dueq.Lease{m.run.Lease}, time.Minute)
		return m.answer(got, err)
	case "ack":
		return m.settle(dueq.VerdictAck)
	case "retry":
		return m.settle(dueq.VerdictRetry)
	case "retry last":
		m.q.settings.Retries = 0
		return m.settle(dueq.VerdictRetry)
	case "again":
		return m.settle(dueq.VerdictAgain)
	case "release":
		return m.settle(dueq.VerdictRelease)
	case "dead":
		return m.settle(dueq.VerdictDead)
	}
	m.pass(transition)
	return ""
}

// pass does what nobody is answered.
func (m *model) pass(transition string) {
	switch transition {
	case "claim late":
		m.q.settings.MaxLate = time.Millisecond
		fallthrough
	case "claim":
		m.q.lastClaim, m.q.grace = m.later().UnixMilli(), m.later().Add(time.Minute).UnixMilli() // leases stay
		m.now = m.later().Add(time.Second)
		m.claim()
	case "lease ends last":
		m.q.settings.Retries = 0
		fallthrough
	case "lease ends":
		m.q.settings.Paused = true
		m.now = m.later()
		m.q.lastClaim, m.q.grace = m.now.UnixMilli(), never
		m.claim()
	case "zadd":
		m.s.Add("q", "a", float64(m.later().UnixMilli()))
	case "zrem":
		m.s.Remove("q", "a")
	}
}

func (m *model) schedule(due time.Time, how dueq.IfExists) string {
	return m.answer(m.s.Schedule(m.t.Context(), []dueq.Item{{
		Queue: "q", Task: dueq.Task{ID: "a", Body: []byte("x")}, When: dueq.At(due), IfExists: how,
	}}))
}

func (m *model) change(op dueq.Op, state dueq.State) string {
	return m.answer(m.s.Change(m.t.Context(), "q", op, []dueq.Target{{
		Member: "a", State: state, When: dueq.At(m.later()),
	}}))
}

func (m *model) settle(v dueq.Verdict) string {
	return m.answer(m.s.Settle(m.t.Context(), "q", []dueq.Result{{Task: m.run, Verdict: v, Err: "broken"}}))
}

func (m *model) claim() []*dueq.Task {
	m.t.Helper()
	c, err := m.s.Claim(m.t.Context(), dueq.ClaimRequest{Queue: "q", Max: 10})
	if err != nil {
		m.t.Fatal(err)
	}
	return c.Tasks
}

func (m *model) answer(got []dueq.Outcome, err error) string {
	m.t.Helper()
	if err != nil || got[0].Err != nil {
		m.t.Fatal(err, got)
	}
	return got[0].Status.String()
}

// place says where task a is, in the words of the table.
func (m *model) place() string {
	e := m.q.entries["a"]
	if e == nil {
		return "-"
	}
	names := [places]string{"S", "N", "A", "D"}
	if e.cancelled {
		names[active] = "C"
	}
	var all []string
	for _, p := range [...]place{active, dead, scheduled, next} {
		if e.in[p] {
			all = append(all, names[p])
		}
	}
	if all == nil {
		return "-"
	}
	return strings.Join(all, "+")
}

// check holds the totals and the sets against what they must be.
func (m *model) check() {
	m.t.Helper()
	n := m.q.totals
	ends := n.Acked + n.Retried + n.Again + n.Released + n.Died + n.Ended + n.Stopped + n.Superseded
	if running := int64(m.q.sets[active].Len()); n.Claimed != ends+running {
		m.t.Errorf("claimed %d, but %d ended and %d run", n.Claimed, ends, running)
	}
	for p, set := range m.q.sets {
		set.Scan(func(it item) bool {
			if m.q.entries[it.entry.member] != it.entry || !it.entry.in[p] {
				m.t.Errorf("place %d holds a stray %q", p, it.entry.member)
			}
			return true
		})
	}
}
