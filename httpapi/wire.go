// Package httpapi serves a store over HTTP, and has a Client that is a store
// over HTTP.
package httpapi

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/item"
	"github.com/dueq/dueq/internal/view"
)

// What goes over the wire, in both directions. Instants are RFC 3339 in UTC
// with milliseconds, readings of a clock with microseconds, null if there is
// none; durations are whole milliseconds, rounded up, but for ages, which are
// rounded down. What is omitempty may be left out of a request, all else must
// be there.

// Bounds of one request. Its lists have at most dueq.MaxItems.
const (
	maxWait   = 20 * time.Second // of a claim
	maxQueues = 200              // named in one GET /v1/queues
)

// POST /v1/queues/{q}/tasks takes an item.Item and answers 201 with a Location,
// or 200, and a view.Outcome: scheduled | replaced, kept, running.
//
// POST /v1/queues/{q}/tasks/batch takes many and answers results, each at its
// item's place: scheduled, replaced, kept, running or refused.
type batchRequest struct {
	Items []item.Item `json:"items" nullable:"false" maxItems:"1000"`
}

type results struct {
	Results []result `json:"results" nullable:"false"`
}

// A call that broke off is a Problem whose Results say what is known of the
// items, if anything is; the rest are unknown.

// result is the outcome of one of many.
type result struct {
	Member       string       `json:"member" doc:"Empty if the item names none."`
	MemberBase64 []byte       `json:"member_base64,omitempty" doc:"The member, if it is not UTF-8."`
	Status       string       `json:"status" enum:"unknown,done,scheduled,replaced,kept,running,not_found,dead,changed,superseded,lease_lost,refused"`
	DueAt        view.Instant `json:"due_at" doc:"Due time now in force; null if there is none."`
	LeaseEndsAt  view.Instant `json:"lease_ends_at,omitzero" doc:"New end of an extended lease."`
	Problem      *Problem     `json:"problem,omitempty" doc:"Why it was refused."`
}

// GET /v1/queues/{q}/tasks/{member} answers a foundTask, or 404. POST
// …/tasks/get answers one for each member, in the state none if there is no
// such task; where bodies are long, only for the first members, at least one.
//
// PATCH /v1/queues/{q}/tasks/{member} takes an item.When and answers a
// view.Outcome: done; else it is 404 or 409. DELETE takes nothing and answers
// alike; it is OpStop with ?running=true, OpCancel without.
type foundTask struct {
	view.Task
	view.Payload
}

type getRequest struct {
	Members       []string `json:"members" nullable:"false" maxItems:"1000"`
	MembersBase64 [][]byte `json:"members_base64,omitempty" maxItems:"1000" doc:"More members, that are not UTF-8; their tasks come last."`
}

type foundTasks struct {
	Queue string      `json:"queue"`
	Tasks []foundTask `json:"tasks" nullable:"false"`
}

// GET /v1/queues/{q}/tasks?state=&cursor=&limit=&error= with state scheduled,
// overdue, active or dead. GET …/dead?cursor=&limit=&error= is that of dead.
type taskList struct {
	Queue  string      `json:"queue"`
	State  string      `json:"state" enum:"scheduled,overdue,active,dead"`
	Tasks  []view.Task `json:"tasks" nullable:"false"`
	Cursor string      `json:"cursor" doc:"For the next page; empty at the end."`
}

// POST /v1/queues/{q}/tasks/change answers results: done, running, kept,
// not_found, dead, changed or refused.
type changeRequest struct {
	Op      string   `json:"op" enum:"cancel,stop,reschedule,requeue,delete"`
	Targets []target `json:"targets" nullable:"false" maxItems:"1000"`
}

// target is one task, and what must hold for it. It is due as item.When says:
// needed for reschedule, now if left out for requeue, else meaningless.
type target struct {
	Member       string `json:"member,omitempty"`
	MemberBase64 []byte `json:"member_base64,omitempty" doc:"In place of member, if that is not UTF-8."`
	item.When
	IfState      string          `json:"if_state,omitempty" enum:"scheduled,active,dead" doc:"The state it must have."`
	IfDueAt      string          `json:"if_due_at,omitempty" format:"date-time" doc:"The due time it must have; of a bad score, what a list shows."`
	IfBody       json.RawMessage `json:"if_body,omitempty" doc:"The body it must have, to the byte."`
	IfBodyBase64 []byte          `json:"if_body_base64,omitzero" doc:"The body it must have."`
}

// POST /v1/queues/{q}/dead/requeue and …/dead/delete answer results: done, kept,
// running, not_found | done, changed, not_found.
type requeueRequest struct {
	Members []string `json:"members" nullable:"false" maxItems:"1000"`
	item.When
}

type deleteRequest struct {
	Members []string `json:"members" nullable:"false" maxItems:"1000"`
}

// POST /v1/queues/{q}/claim.
type claimRequest struct {
	Max     *int  `json:"max,omitempty" minimum:"0" maximum:"1000" doc:"Most tasks to claim; 1 if left out. With 0 it takes none but does all else that time made due."`
	WaitMs  int64 `json:"wait_ms,omitempty" minimum:"0" maximum:"20000" doc:"How long to wait for a task if none is due."`
	LeaseMs int64 `json:"lease_ms,omitempty" minimum:"0" maximum:"2592000000" doc:"How long the tasks stay invisible to others; the queue's lease if left out or 0."`
}

type claimAnswer struct {
	Tasks      []deliveredTask `json:"tasks" nullable:"false"`
	Now        view.Instant    `json:"now" doc:"The store's clock."`
	NextInMs   *int64          `json:"next_in_ms" doc:"Until a task is due or a lease ends; null if there is neither."`
	PreviousAt view.Instant    `json:"previous_at" doc:"When anybody claimed before this; null if never."`
	Paused     bool            `json:"paused" doc:"The queue hands out nothing."`
}

type deliveredTask struct {
	view.Delivery
	Lease       string       `json:"lease" doc:"Opaque; settle and extend need it."`
	LeaseEndsAt view.Instant `json:"lease_ends_at" doc:"Null on a queue with delivery at_most_once."`
	view.Payload
}

// POST /v1/queues/{q}/settle answers results: done, superseded, lease_lost or
// refused.
type settleRequest struct {
	Results []verdict `json:"results" nullable:"false" maxItems:"1000"`
}

type verdict struct {
	Member       string `json:"member"`
	Lease        string `json:"lease"`
	Outcome      string `json:"outcome" enum:"ack,retry,again,release,dead"`
	DelayMs      *int64 `json:"delay_ms,omitempty" minimum:"0" maximum:"9223372036854" doc:"Before the next run, of retry, again and release. If left out retry goes by the queue's settings, again is at once, release keeps the due time."`
	Error        string `json:"error,omitempty" doc:"The last error of a task, cut to 1 KiB."`
	view.Payload        // for again and release on a queue with delivery at_most_once, which keeps no body
}

// POST /v1/queues/{q}/extend answers results: done, lease_lost or refused.
type extendRequest struct {
	Leases  []heldLease `json:"leases" nullable:"false" maxItems:"1000"`
	LeaseMs int64       `json:"lease_ms" minimum:"1000" maximum:"2592000000" doc:"How long from now the leases end."`
}

type heldLease struct {
	Member string `json:"member"`
	Lease  string `json:"lease"`
}

// GET /v1/queues?queue=…&queue=… answers the named queues, without any all that
// the caller may see. GET /v1/queues/{q}/stats answers one view.Stats.
type queueList struct {
	Queues []queueStats `json:"queues" nullable:"false"`
}

// queueStats of a queue that could not be read have a problem, and its title as
// error.
type queueStats struct {
	view.Stats
	Problem *Problem `json:"problem,omitempty" doc:"Why it could not be read; the rest is zero then."`
}

// GET /v1/queues/{q}/settings answers settingsAnswer, PATCH takes some of
// view.Settings, null for the default, and answers all. POST …/pause and
// …/resume take nothing and answer a pauseAnswer.
type settingsAnswer struct {
	view.QueueSettings
	Problem *Problem `json:"problem,omitempty" doc:"A setting that cannot be read, as somebody wrote it; it has its default."`
}

type pauseAnswer struct {
	Queue  string `json:"queue"`
	Paused bool   `json:"paused"`
}

// GET /v1/wake?queue=… is a stream of events (SSE) named hint, with such data;
// without a queue of all that the caller may see.
type hint struct {
	Queue string       `json:"queue"`
	DueAt view.Instant `json:"due_at" doc:"Null when only settings changed."`
}

// GET /livez answers a health; GET /readyz too, or 503.
type health struct {
	Status string `json:"status"`
}

// formatLease writes what settle and extend need to know of a delivery.
func formatLease(t *dueq.Task) string {
	parts := []int64{int64(t.Lease.Token), t.Due.UnixMilli(), int64(t.Round)}
	texts := make([]string, len(parts))
	for i, n := range parts {
		texts[i] = strconv.FormatInt(n, 36)
	}
	return strings.Join(texts, ".")
}

// parseLease returns the delivery of a member, as Settle and Extend need it, or
// a *dueq.FieldError.
func parseLease(queue, member, lease string) (*dueq.Task, error) {
	t, err := dueq.ParseMember(member)
	if err != nil {
		return nil, err
	}
	texts := strings.Split(lease, ".")
	parts := make([]int64, 3)
	if len(texts) != len(parts) {
		return nil, errLease
	}
	for i := range parts {
		if parts[i], err = strconv.ParseInt(texts[i], 36, 64); err != nil {
			return nil, errLease
		}
	}
	t.Queue, t.Lease = queue, dueq.Lease{Member: member, Token: dueq.Token(parts[0])}
	t.Due, t.Round = time.UnixMilli(parts[1]), int(parts[2])
	return &t, nil
}

var errLease = &dueq.FieldError{Field: "lease", Reason: "is not one that a claim gave"}
