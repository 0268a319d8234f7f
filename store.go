package dueq

import (
	"context"
	"fmt"
	"time"
)

// Bounds of one call to a store; callers with more loop.
const (
	MaxItems = 1000    // items, targets, results or leases of one queue
	MaxBytes = 1 << 20 // bytes of bodies, unless one body alone is larger
)

// Store keeps queues of tasks. It is everything that clients, workers and
// operators need, so nothing goes around it. All methods may be called
// concurrently.
//
// A task is in one state at a time: scheduled → active → gone (ack) |
// scheduled (retry, again, release, lease ended) | dead → scheduled (requeue)
// | deleted. A running task may be scheduled again meanwhile; it never runs
// beside itself.
//
// What is wrong with one item, and what happened to it, is its Outcome; an
// error is about the call as a whole: ErrInvalid, ErrUnavailable or another
// failure of the store. After an error with CallError.MayHaveHappened some or
// all of the items may have been applied; after any other none was. Outcomes
// that are known are returned beside the error, at their items' places. Every
// call ends by itself within the store's time-out, whatever its context.
type Store interface {
	// Schedule puts tasks into their queues, in order: the same member twice is
	// applied twice. The outcome is Scheduled, Replaced, Kept, or Running when
	// the task runs now and will run once more; or an Err of ErrInvalid or
	// ErrTooLarge.
	//
	// It sets exactly what it was given: a task without a body loses an older
	// one, and failures, rounds and last error start anew unless the task is
	// running. A dead letter of the same member goes away.
	Schedule(ctx context.Context, items []Item) ([]Outcome, error)

	// Change applies one operation to tasks by member. See Op for the outcomes.
	Change(ctx context.Context, queue string, op Op, targets []Target) ([]Outcome, error)

	// Claim leases up to req.Max due tasks of one queue, earliest due first,
	// equal due by member text, and does all else that time made due: tasks
	// whose lease ended go back, bad scores and members go to the dead letters,
	// old dead letters go away.
	//
	// A claimed task stays invisible to others for req.Lease. If nothing is
	// due, Tasks is empty and Wait is the time until there is more; on a paused
	// queue Paused is set as well. On a queue with delivery at_most_once the
	// task is gone from the store when Claim returns.
	//
	// After ErrUnavailable the claim may have happened; those tasks come back
	// when their leases end.
	Claim(ctx context.Context, req ClaimRequest) (Claim, error)

	// Settle ends deliveries. The outcome is Done; Superseded when the task had
	// been scheduled again or cancelled meanwhile, so that the verdict changed
	// nothing but the end of the run; or LeaseLost, and nothing changed.
	// Settling again after an unknown answer is safe.
	Settle(ctx context.Context, queue string, results []Result) ([]Outcome, error)

	// Extend makes leases end d from now (1 s to the queue's lease_max). The
	// outcome is Done, with Due as the new end, or LeaseLost. A lease past its
	// end that nobody took back can still be extended.
	Extend(ctx context.Context, queue string, leases []Lease, d time.Duration) ([]Outcome, error)

	// Get looks tasks up by member. Each member has its Info, with StateNone
	// if there is no such task.
	Get(ctx context.Context, queue string, members []string) ([]Info, error)

	// List pages through the tasks of one queue in one state. A task that does
	// not change while paging is listed exactly once.
	List(ctx context.Context, q ListQuery) (Page, error)

	// Stats counts the tasks of queues; without names, of all queues that the
	// store knows, ordered by name. It is one round trip, however many queues.
	// A queue that cannot be read has Err set and does not keep the others; the
	// call fails only if none could be read.
	Stats(ctx context.Context, queues ...string) ([]QueueStats, error)

	// Settings returns the settings of a queue, at most a second old. With
	// ErrInvalid they are good but for one that somebody wrote and nobody can
	// read, which has its default.
	Settings(ctx context.Context, queue string) (Settings, error)

	// SetSettings changes settings of a queue, for every process within a
	// second, and returns them all. Unknown names and bad values are ErrInvalid
	// and nothing changes.
	SetSettings(ctx context.Context, queue string, patch SettingsPatch) (Settings, error)

	// Wake returns a channel of hints that a queue has a new earliest task,
	// until ctx ends; then it is closed. Hints may be lost or repeated: they
	// only make a sleeper look sooner.
	Wake(ctx context.Context) (<-chan Hint, error)

	// Close releases what the store opened. Calls after it fail with ErrClosed;
	// closing twice is harmless.
	Close() error
}

// Prober is a Store that can find out whether it takes writes.
type Prober interface {
	// Probe writes something that belongs to no queue and that no other method
	// shows. A nil error says that the store took it; in a cluster, that one of
	// its servers did. It ends within the store's time-out.
	//
	// Errors: ErrUnavailable, or what else the store says.
	Probe(ctx context.Context) error
}

// Item is one task to schedule.
type Item struct {
	Queue    string
	Task     Task
	When     When
	IfExists IfExists
}

// IfExists says what happens when the task is scheduled already. A running
// task that is not scheduled again counts as not scheduled.
type IfExists uint8

const (
	Replace IfExists = iota // the last one wins: due time, body and all
	Keep                    // the existing one stays as it is
	Earlier                 // replace only if that makes it due earlier
	Later                   // replace only if that makes it due later
)

var ifExistsNames = [...]string{"replace", "keep", "earlier", "later"}

func (e IfExists) String() string { return nameOf(ifExistsNames[:], e) }

// ParseIfExists reads replace, keep, earlier or later; empty is replace.
func ParseIfExists(s string) (IfExists, error) {
	if s == "" {
		return Replace, nil
	}
	return parseName[IfExists]("if_exists", ifExistsNames[:], s)
}

// Op is an operation of Change.
type Op uint8

const (
	// OpCancel takes a scheduled task away: Done. Of a running task it takes a
	// later schedule and makes the run in progress the last, however it ends:
	// Running. A dead letter stays: Dead. Otherwise NotFound.
	OpCancel Op = iota
	// OpStop is OpCancel that also takes the lease of a running task away:
	// Done. Its worker learns of it at its next Extend or Settle.
	OpStop
	// OpReschedule gives a scheduled task a new due time and keeps the rest:
	// Done. Running when it is active only, Dead, or NotFound.
	OpReschedule
	// OpRequeue schedules a dead letter again with no failures: Done. If the
	// task is scheduled already, the dead letter goes and the schedule stays:
	// Kept, as for a task that is scheduled only. Running when it is active,
	// otherwise NotFound.
	OpRequeue
	// OpDelete takes a task away in any state but active: Done, Running or
	// NotFound. With Target.State it takes only what is in that state.
	OpDelete
)

var opNames = [...]string{"cancel", "stop", "reschedule", "requeue", "delete"}

func (o Op) String() string { return nameOf(opNames[:], o) }

// Target is one task of a Change, and what must hold for it. If it does not
// hold, the outcome is Changed and nothing happens.
type Target struct {
	Member string
	When   When      // new due time, for OpReschedule and OpRequeue
	State  State     // the state it must have; StateNone means any
	Due    time.Time // the due time it must have; zero means any
	Body   []byte    // the body it must have; nil means any
}

// Outcome is what happened to one item of a call.
type Outcome struct {
	Status Status
	Due    time.Time // due time now in force, end of lease after Extend; zero if there is none
	Err    error     // why the item was refused, only with StatusRefused
}

// Error returns the outcome as an error: Err, the sentinel for NotFound,
// Dead, Changed and LeaseLost, and nil for the rest. Whether Running is an
// error depends on the call: it is not when scheduling.
func (o Outcome) Error() error {
	switch o.Status {
	case StatusRefused:
		return o.Err
	case StatusNotFound:
		return ErrNotFound
	case StatusDead:
		return ErrDead
	case StatusChanged:
		return ErrChanged
	case StatusLeaseLost:
		return ErrLeaseLost
	}
	return nil
}

// Status is the one-word answer for an item.
type Status uint8

const (
	StatusUnknown    Status = iota // no answer; see the error of the call
	StatusDone                     // the change or verdict was applied
	StatusScheduled                // a new task
	StatusReplaced                 // an existing schedule was replaced
	StatusKept                     // the existing schedule stays
	StatusRunning                  // the task is active
	StatusNotFound                 // no such task
	StatusDead                     // the task is a dead letter
	StatusChanged                  // not in the state, due time or body that was asked for
	StatusSuperseded               // the run ended, but the task was scheduled again or cancelled
	StatusLeaseLost                // the lease is not the caller's any more
	StatusRefused                  // wrong input, see Err
)

var statusNames = [...]string{"unknown", "done", "scheduled", "replaced", "kept", "running",
	"not_found", "dead", "changed", "superseded", "lease_lost", "refused"}

func (s Status) String() string { return nameOf(statusNames[:], s) }

// State is where a task is.
type State uint8

const (
	StateNone      State = iota // nowhere
	StateScheduled              // waiting for its due time or, overdue, for a worker
	StateActive                 // claimed
	StateDead                   // a dead letter
)

var stateNames = [...]string{"none", "scheduled", "active", "dead"}

func (s State) String() string { return nameOf(stateNames[:], s) }

// ClaimRequest asks for due tasks. Deadlines come from the context.
type ClaimRequest struct {
	Queue string
	Max   int           // 0 to MaxItems; zero takes no task but does all else
	Lease time.Duration // 1 s to the queue's lease_max; zero means the queue's lease
}

// Claim is the answer to a ClaimRequest.
type Claim struct {
	Tasks     []*Task
	LeaseEnds time.Time     // of all tasks, by the store's clock; zero when at most once
	Wait      time.Duration // until a task is due or a lease ends; -1 if there is neither
	Now       time.Time     // the store's clock
	Previous  time.Time     // when anybody claimed before this, by the store's clock; zero if never
	Paused    bool          // the queue hands out nothing

	moved int // tasks that a forwarder moved instead
}

// taken is how many due tasks a claim took.
func (c *Claim) taken() int { return len(c.Tasks) + c.moved }

// Lease is one delivery of a task: what Settle and Extend need to know it by.
type Lease struct {
	Member string
	Token  Token
}

// Token tells the deliveries of one member apart. It is opaque: only the store
// that gave it can read it.
type Token int64

// Verdict is how a delivery ends.
type Verdict uint8

const (
	VerdictAck     Verdict = iota // done: the task is gone
	VerdictRetry                  // failed: once more after a delay, dead when the queue's retries are used up
	VerdictAgain                  // not a failure: once more after a delay, failures start anew, one round more
	VerdictRelease                // not started: back as it was, no attempt charged
	VerdictDead                   // a dead letter at once
)

var verdictNames = [...]string{"ack", "retry", "again", "release", "dead"}

func (v Verdict) String() string { return nameOf(verdictNames[:], v) }

// ParseVerdict reads ack, retry, again, release or dead.
func ParseVerdict(s string) (Verdict, error) {
	return parseName[Verdict]("outcome", verdictNames[:], s)
}

// ByPolicy as the Delay of VerdictRetry leaves it to the queue's retry settings.
const ByPolicy time.Duration = -1

// Result ends one delivery with a verdict.
type Result struct {
	Task    *Task // as it was claimed; HTTP clients and the like need Lease, Due, Round and Body
	Verdict Verdict
	Delay   time.Duration // before the next run: of retry (or ByPolicy), again, and release if not zero
	Err     string        // last error, cut to 1 KiB
}

// Validate reports why the result cannot be stored, as a [*FieldError], or nil.
func (r Result) Validate() error {
	switch {
	case r.Task == nil:
		return &FieldError{"task", "is missing"}
	case r.Verdict > VerdictDead:
		return &FieldError{"outcome", "is not ack, retry, again, release or dead"}
	case r.Delay < 0 && !(r.Verdict == VerdictRetry && r.Delay == ByPolicy):
		return &FieldError{"delay", fmt.Sprintf("%v is negative", r.Delay)}
	}
	return nil
}

// Info is what the store knows of one task.
type Info struct {
	Task             // Due is when it is or was due; zero for an active task that is not scheduled again
	Member    string // as it lies in the store
	State     State  // the first that holds of active, scheduled, dead
	Again     bool   // active, and scheduled once more
	Cancelled bool   // active, and this run is its last
	LeaseEnds time.Time
	DiedAt    time.Time
	Failures  int
	LastError string
	HasBody   bool  // Body itself is filled by Get, not by List
	Malformed error // why the member is not one; its Task is empty then
}

// ListQuery asks for a page.
type ListQuery struct {
	Queue   string
	State   State  // StateScheduled, StateActive or StateDead
	Overdue bool   // of the scheduled ones, only those due by now
	Cursor  string // Page.Cursor of the page before; empty starts
	Limit   int    // 1 to MaxItems; zero means 100
	Error   string // only tasks whose last error contains it; a page may then hold fewer than Limit
}

// Page is part of a list, ordered by due time, end of lease or death.
type Page struct {
	Tasks  []Info
	Cursor string // for the next page; empty at the end
}

// QueueStats counts one queue.
type QueueStats struct {
	Queue     string
	Now       time.Time // the store's clock
	Scheduled int64     // due or not, those waiting behind their own run included
	Overdue   int64     // scheduled and due by now
	Active    int64
	Dead      int64
	NextDue   time.Time // of the earliest scheduled task, those waiting behind their own run not counted; zero without one
	NextLease time.Time // first end of a lease; zero without one
	LastClaim time.Time // zero if never claimed from
	Paused    bool
	Totals    Totals
	Err       error // why this queue could not be read; the rest is zero then
}

// Totals count events since the queue began.
type Totals struct {
	Scheduled  int64 // schedules applied: new, replaced or beside a run
	Claimed    int64 // deliveries
	Forwarded  int64 // tasks moved to a list or stream, which are not deliveries
	Acked      int64
	Retried    int64
	Again      int64
	Released   int64
	Died       int64 // runs that ended in a dead letter
	Ended      int64 // leases that ended without a verdict
	Stopped    int64 // runs whose lease was taken by OpStop
	Superseded int64 // runs settled after their task was scheduled again or cancelled
	Refused    int64 // scores and members set aside as dead by Claim, too late ones included
	Requeued   int64
	Cancelled  int64
	Deleted    int64
	Trimmed    int64 // dead letters past their keeping time
}

// Hint says that a queue has a new earliest task, or after a claim that took
// none because it had no room (Max 0) that a task is due.
type Hint struct {
	Queue string
	Due   time.Time
}

func nameOf[T ~uint8](names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return "invalid"
}

func parseName[T ~uint8](field string, names []string, s string) (T, error) {
	for i, name := range names {
		if name == s {
			return T(i), nil
		}
	}
	return 0, &FieldError{field, quoteNotOne(s, names)}
}
