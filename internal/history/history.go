// Package history records what the clients of a store asked and were told and
// what its workers did, over several processes, and judges all of it
// afterwards.
//
// A [Recorder] collects events: [Client] those of producers, [Watch] those of
// workers. [Check] finds, task by task, what no store may do: lose, run early,
// run twice for no reason, run what was cancelled.
//
// Deliveries are told apart by what the schedule they come from put into the
// body, so no two schedules of one task may have the same body; one of them may
// have none. Queues with delivery at_most_once, priorities or retries that can
// be used up within a history are not understood.
package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dueq/dueq"
)

// Instant is a reading of the machine's monotonic clock: the same clock in all
// processes, which nobody can set. Zero stands for never.
type Instant time.Duration

// Now reads the clock.
func Now() Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // no such clock on this machine
	}
	return Instant(ts.Nano())
}

func (i Instant) add(d time.Duration) Instant { return i + Instant(d) }

func (i Instant) String() string {
	if i == 0 {
		return "never"
	}
	return fmt.Sprintf("%.6f", time.Duration(i).Seconds())
}

// Key names a task: its queue and its member.
type Key struct{ Queue, Task string }

func (k Key) String() string { return k.Queue + " " + k.Task }

// Do is what a call asks for.
type Do string

// What producers and workers ask for.
const (
	Schedule   Do = "schedule"
	Cancel     Do = "cancel"
	Stop       Do = "stop"
	Reschedule Do = "reschedule"
	Requeue    Do = "requeue"
	Delete     Do = "delete"
	Settle     Do = "settle"
	Extend     Do = "extend"
)

// Answer is what a caller knows afterwards.
type Answer string

// Without an answer, and with Unknown, the call may have taken effect.
const (
	Acknowledged Answer = "acknowledged" // see the Status
	Refused      Answer = "refused"      // nothing happened
	Unknown      Answer = "unknown"      // it may have happened, or happen yet
)

// Call is one thing asked for one task.
type Call struct {
	ID      string // of the process and a number
	Process string
	Do      Do
	Key
	Mark     string        // the body, of a schedule
	IfExists dueq.IfExists // of a schedule
	Delay    time.Duration // of what changes the due time; ignored if At is set
	At       time.Time     // the due time, if it was given so
	Safe     bool          // once acknowledged, no fault may lose it
	Token    dueq.Token    // of settle and extend
	Verdict  dueq.Verdict  // of settle
	Asked    Instant

	Answered Instant // zero if the caller died first
	Answer   Answer
	Status   dueq.Status
	Due      time.Time // the due time, or end of the lease, that the answer names
	Err      string    // an error that is none of those that callers can tell apart
}

// protected: no fault may lose what the call found or did. Of one that wrote
// nothing no replica knows.
func (c *Call) protected() bool { return c.Safe && c.Status != dueq.StatusNotFound }

// known: the caller knows what came of the call.
func (c *Call) known() bool { return c.Answered != 0 && c.Answer != Unknown }

// done: the answer is one of those statuses.
func (c *Call) done(statuses ...dueq.Status) bool {
	return c.Answered != 0 && c.Answer == Acknowledged && slices.Contains(statuses, c.Status)
}

// perhaps: the answer is one of those statuses or nobody knows it.
func (c *Call) perhaps(statuses ...dueq.Status) bool { return !c.known() || c.done(statuses...) }

// applied: a schedule that is known to be in force.
func (c *Call) applied() bool {
	return c.done(dueq.StatusScheduled, dueq.StatusReplaced, dueq.StatusRunning)
}

// Delivery is one task handed to a worker, and its run.
type Delivery struct {
	Process string
	Key
	Mark      string
	Token     dueq.Token
	Attempt   int
	Due       time.Time
	Now       time.Time // of the store, when it was claimed
	LeaseEnds time.Time
	Asked     Instant // when the claim began
	Answered  Instant

	Started Instant      // of the handler; zero if it never did
	Ended   Instant      // zero if it never did
	Verdict dueq.Verdict // what the handler decided
	settles []*Call
	extends []*Call
}

// Fault is something bad that was done on purpose.
type Fault struct {
	Kind    string
	Process string // whom it hit; empty for the store, which is everybody
	From    Instant
	Until   Instant
	Step    time.Duration // by which the store's clock moved at From, and perhaps back at Until
	Loses   time.Duration // writes acknowledged this long before From, and until Until, may be gone; zero means none
	Spares  bool          // leases of the living: it explains no second run
	Deposes bool          // a store that goes on, for itself, until Until: its claims know nothing of what others wrote since From
}

// Final is what is left when all has been drained.
type Final struct {
	Tasks  map[Key]Place // of every task of the history; those in no place may be missing
	Queues []dueq.QueueStats
}

// Place is where a task is.
type Place struct {
	State dueq.State
	Mark  string
}

// History is all that happened.
type History struct {
	Calls      []*Call
	Deliveries []*Delivery
	Faults     []Fault
	Final      Final
}

// Tell returns the story of one task, a line per event, for people.
func (h *History) Tell(k Key) string {
	type line struct {
		at   Instant
		text string
	}
	var lines []line
	for _, c := range h.Calls {
		if c.Key == k {
			lines = append(lines, line{c.Asked, fmt.Sprintf("to %v %s: %s %q %s delay %v token %d verdict %s: %s %s due %s %s",
				c.Answered, c.Process, c.Do, c.Mark, c.IfExists, c.Delay, c.Token, c.Verdict, c.Answer, c.Status, milli(c.Due), c.Err)})
		}
	}
	for _, d := range h.Deliveries {
		if d.Key == k {
			lines = append(lines, line{d.Asked, fmt.Sprintf("to %v %s: claimed %q attempt %d token %d due %s now %s lease to %s, ran %v to %v: %s",
				d.Answered, d.Process, d.Mark, d.Attempt, d.Token, milli(d.Due), milli(d.Now), milli(d.LeaseEnds), d.Started, d.Ended, d.Verdict)})
		}
	}
	for _, f := range h.Faults {
		if f.Process == "" && slices.ContainsFunc(lines, func(l line) bool { return f.From.add(-Patience) <= l.at && l.at <= f.Until.add(Patience) }) {
			lines = append(lines, line{f.From, fmt.Sprintf("to %v fault: %s", f.Until, f.Kind)})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "  %v %s\n", l.at, l.text)
	}
	fmt.Fprintf(&b, "  at the end: %+v\n", h.Final.Tasks[k])
	return b.String()
}

func milli(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("15:04:05.000000")
}
