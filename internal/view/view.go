// Package view is how tasks, queues and settings look as JSON, the same on the
// command line and over HTTP.
package view

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/dueq/dueq"
)

// Instant is a time as all output has it: RFC 3339 in UTC with milliseconds, or
// microseconds if it is a reading of a clock and has any; null in JSON, and - as
// text, if there is none.
type Instant time.Time

const (
	instantFormat = "2006-01-02T15:04:05.000Z07:00"
	readingFormat = "2006-01-02T15:04:05.000000Z07:00"
)

func (i Instant) String() string {
	t := time.Time(i)
	switch {
	case t.IsZero():
		return "-"
	case t.Nanosecond()%int(time.Millisecond) >= int(time.Microsecond):
		return t.UTC().Format(readingFormat)
	}
	return t.UTC().Format(instantFormat)
}

// MarshalJSON implements json.Marshaler.
func (i Instant) MarshalJSON() ([]byte, error) {
	if time.Time(i).IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(i.String())
}

// UnmarshalJSON reads what MarshalJSON writes.
func (i *Instant) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*i = Instant{}
		return nil
	}
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return fmt.Errorf("%.40q is not RFC 3339", s)
	}
	*i = Instant(t)
	return nil
}

// Task is what a store knows of a task, without its body.
type Task struct {
	Queue          string  `json:"queue"`
	Member         string  `json:"member" doc:"As it lies in the store."`
	MemberBase64   []byte  `json:"member_base64,omitempty" doc:"The member, if it is not UTF-8."`
	ID             string  `json:"id"`
	Kind           string  `json:"kind"`
	Priority       *int    `json:"priority" doc:"Null if there is none."`
	Trace          string  `json:"trace"`
	State          string  `json:"state" enum:"none,scheduled,active,dead"`
	DueAt          Instant `json:"due_at" doc:"When it is or was due; null for an active task that is not scheduled again."`
	ScheduledAgain bool    `json:"scheduled_again" doc:"Active, and scheduled once more."`
	Cancelled      bool    `json:"cancelled" doc:"Active, and this run is its last."`
	LeaseEndsAt    Instant `json:"lease_ends_at"`
	DiedAt         Instant `json:"died_at"`
	Failures       int     `json:"failures"`
	Round          int     `json:"round" doc:"How often it was run again without having failed."`
	LastError      string  `json:"last_error"`
	Malformed      string  `json:"malformed" doc:"Why the member is not one; empty if it is."`
	HasBody        bool    `json:"has_body"`
}

// NewTask shows what a store knows of a task of a queue.
func NewTask(queue string, info dueq.Info) Task {
	v := Task{
		Queue: queue, Member: info.Member, ID: info.ID, Kind: info.Kind, Trace: info.Trace,
		Priority: Level(info.Priority), State: info.State.String(), DueAt: Instant(info.Due),
		ScheduledAgain: info.Again, Cancelled: info.Cancelled,
		LeaseEndsAt: Instant(info.LeaseEnds), DiedAt: Instant(info.DiedAt),
		Failures: info.Failures, Round: info.Round, LastError: info.LastError,
		HasBody: info.HasBody,
	}
	if info.Malformed != nil {
		v.Malformed = info.Malformed.Error()
	}
	if !utf8.ValidString(info.Member) {
		v.MemberBase64 = []byte(info.Member)
	}
	return v
}

// Level is the number of a priority, nil if there is none.
func Level(p dueq.Priority) *int {
	if p == 0 {
		return nil
	}
	n := p.Level()
	return &n
}

// Delivery is a task as it was claimed, without its body.
type Delivery struct {
	Queue    string  `json:"queue"`
	Member   string  `json:"member"`
	ID       string  `json:"id"`
	Kind     string  `json:"kind"`
	Priority *int    `json:"priority" doc:"Null if there is none."`
	Trace    string  `json:"trace"`
	Attempt  int     `json:"attempt" doc:"1 for the first delivery of a round, one more after each failure."`
	Round    int     `json:"round" doc:"How often it was run again without having failed."`
	DueAt    Instant `json:"due_at"`
	AgeMs    int64   `json:"age_ms" doc:"From due to claimed, by the store's clock."`
}

// NewDelivery shows a claimed task.
func NewDelivery(t *dueq.Task) Delivery {
	return Delivery{
		Queue: t.Queue, Member: t.Member(), ID: t.ID, Kind: t.Kind, Priority: Level(t.Priority), Trace: t.Trace,
		Attempt: t.Attempt, Round: t.Round, DueAt: Instant(t.Due), AgeMs: t.Age.Milliseconds(),
	}
}

// Outcome is what happened to one task.
type Outcome struct {
	Queue  string  `json:"queue"`
	Member string  `json:"member"`
	Status string  `json:"status"`
	DueAt  Instant `json:"due_at" doc:"Due time now in force; null if there is none."`
}

// NewOutcome shows what happened to a member of a queue.
func NewOutcome(queue, member string, o dueq.Outcome) Outcome {
	return Outcome{queue, member, o.Status.String(), Instant(o.Due)}
}
