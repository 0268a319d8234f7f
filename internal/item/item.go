// Package item is a task to schedule as JSON writes it: a line of NDJSON, the
// body of a request.
package item

import (
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/strictjson"
	"github.com/dueq/dueq/internal/view"
)

// Item is a task to schedule. One of DelayMs and DueAt must be there, and at
// most one of Body and BodyBase64.
type Item struct {
	ID       string `json:"id" doc:"What it is about; may contain colons when there is a kind."`
	Kind     string `json:"kind,omitempty" doc:"Which handler runs it."`
	Priority *int   `json:"priority,omitempty" minimum:"0" maximum:"9" doc:"Only on queues with the setting priority."`
	Trace    string `json:"trace,omitempty" doc:"Trace id of a producer that writes one."`
	view.Payload
	When
	IfExists string `json:"if_exists,omitempty" enum:"replace,keep,earlier,later" doc:"What to do when it is scheduled already; replace unless told otherwise."`
}

// When says when a task is due. The zero value says nothing.
type When struct {
	DelayMs *int64 `json:"delay_ms,omitempty" minimum:"0" maximum:"9223372036854" doc:"Due after this long by the store's clock."`
	DueAt   string `json:"due_at,omitempty" format:"date-time" doc:"Due at this time."`
}

// NewWhen writes w; fractions of a millisecond are rounded up.
func NewWhen(w dueq.When) When {
	if due, ok := w.Absolute(); ok {
		return When{DueAt: view.Instant(time.UnixMilli(due)).String()}
	}
	ms := w.Delay().Milliseconds()
	if w.Delay()%time.Millisecond > 0 {
		ms++
	}
	return When{DelayMs: &ms}
}

// IsZero reports that w says nothing.
func (w When) IsZero() bool { return w.DelayMs == nil && w.DueAt == "" }

// New writes an item. Its encoder must not escape < > & in the body.
func New(task dueq.Task, when dueq.When, ifExists dueq.IfExists) Item {
	it := Item{
		ID: task.ID, Kind: task.Kind, Priority: view.Level(task.Priority), Trace: task.Trace,
		Payload: view.NewPayload(task.Body), When: NewWhen(when),
	}
	if it.BodyBase64 != nil {
		it.Body = nil
	}
	if ifExists != dueq.Replace {
		it.IfExists = ifExists.String()
	}
	return it
}

// Parse reads an item. Errors: a *dueq.FieldError; what is not JSON at all is
// the field whole.
func Parse(data []byte, whole string) (Item, error) {
	var it Item
	err := strictjson.Unmarshal(data, whole, &it)
	return it, err
}

// Task returns the task. Errors: a *dueq.FieldError.
func (it Item) Task() (dueq.Task, error) {
	if it.Body != nil && it.BodyBase64 != nil {
		return dueq.Task{}, &dueq.FieldError{Field: "body", Reason: "and body_base64 are both there"}
	}
	t := dueq.Task{ID: it.ID, Kind: it.Kind, Trace: it.Trace, Body: it.Bytes()}
	if it.Priority != nil {
		t.Priority = dueq.P(*it.Priority)
	}
	return t, nil
}

// Parse returns when it is due. Errors: a *dueq.FieldError.
func (w When) Parse() (dueq.When, error) {
	switch {
	case w.IsZero():
		return dueq.When{}, &dueq.FieldError{Field: "delay_ms", Reason: "or due_at is missing"}
	case w.DelayMs != nil && w.DueAt != "":
		return dueq.When{}, &dueq.FieldError{Field: "delay_ms", Reason: "and due_at are both there"}
	case w.DelayMs != nil:
		return dueq.In(time.Duration(*w.DelayMs) * time.Millisecond), nil
	}
	at, err := parseInstant("due_at", w.DueAt)
	return dueq.At(at), err
}

// parseInstant reads the time in a field, of the years 1973 to 9999. Errors: a
// *dueq.FieldError.
func parseInstant(field, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, &dueq.FieldError{Field: field, Reason: strictjson.Quote(text) + " is not RFC 3339 with an offset, such as 2026-12-01T08:00:00Z"}
	}
	due, _ := dueq.At(t).Absolute()
	if err := dueq.ValidDue(due); err != nil {
		return t, &dueq.FieldError{Field: field, Reason: err.(*dueq.FieldError).Reason}
	}
	return t, nil
}
