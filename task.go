// Package dueq is a delay queue: a task is scheduled now and handled when it
// comes due, exact to the millisecond, at least once.
//
// The package holds what every part shares: the [Task] and its readable
// member, the [Store] interface with its words, the [Client] that schedules
// and the [Worker] that handles. Stores live in packages of their own
// (redisstore, memstore).
package dueq

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of a member and a queue name, in bytes.
const (
	DefaultMemberMax = 64  // longest member a Client accepts unless told otherwise
	MemberMax        = 512 // longest member any store keeps
	QueueMax         = 128 // longest queue name
)

// Bounds of a due time. A lower score is probably in seconds, a higher one is
// beyond the year 9999; neither is ever run.
const (
	MinDueMilli = 100_000_000_000
	MaxDueMilli = 253_402_300_799_999
)

// Task is one thing to do at one time. ID and Kind name it; the fields from
// Queue on describe a delivery and are ignored when a task is scheduled.
type Task struct {
	ID       string   // what it is about; may contain colons when Kind is set
	Kind     string   // which handler runs it; empty is a kind of its own
	Priority Priority // zero means none; refused on queues without the priority setting
	Trace    string   // trace id of a producer that writes one; normally empty
	Body     []byte   // opaque payload; nil means none, empty is a payload of no bytes

	Queue   string        // the queue it was claimed from
	Due     time.Time     // when it was due, to the millisecond, rounded up
	Attempt int           // 1 for the first delivery of a round, one more after each failure
	Round   int           // how often it was run again by Again
	Age     time.Duration // from due to claimed, by the store's clock
	Lease   Lease         // what the worker settles with
}

// Priority is one of P(0) to P(9), or zero for none. On a queue with the
// priority setting higher ones are claimed first among the first 1,000 due; no
// priority counts as P(0).
type Priority uint8

// P returns priority n. It panics if n is not 0 to 9.
func P(n int) Priority {
	if n < 0 || n > 9 {
		panic(fmt.Sprintf("dueq: priority %d is not 0 to 9", n))
	}
	return Priority(n + 1)
}

// Level returns the number of p, 0 to 9; no priority is 0.
func (p Priority) Level() int {
	return max(int(p)-1, 0)
}

// Member returns the text that stands for the task in its queue:
// <id>[:<kind>][:p<0-9>][#<trace>]. It is only meaningful for a task that
// Validate accepts.
func (t Task) Member() string {
	if t.Priority == 0 && t.Trace == "" {
		if t.Kind == "" {
			return t.ID
		}
		return t.ID + ":" + t.Kind
	}
	return string(t.AppendMember(nil))
}

// AppendMember appends the Member to b and returns the longer b.
func (t Task) AppendMember(b []byte) []byte {
	b = append(b, t.ID...)
	if t.Kind != "" {
		b = append(b, ':')
		b = append(b, t.Kind...)
	}
	if t.Priority != 0 {
		b = append(b, ':', 'p', '0'+byte(t.Priority.Level()))
	}
	if t.Trace != "" {
		b = append(b, '#')
		b = append(b, t.Trace...)
	}
	return b
}

// Validate reports why the task cannot be written as a member of at most limit
// bytes, as a [*FieldError], or nil. A valid task reads back from its member
// unchanged.
func (t Task) Validate(limit int) error {
	if t.Priority > 10 {
		return &FieldError{"priority", "is not 0 to 9"}
	}
	if err := t.validateParts(); err != nil {
		return err
	}
	if n := t.memberLen(); n > limit {
		return &FieldError{"member", fmt.Sprintf("is %d bytes, the limit is %d", n, limit)}
	}
	return nil
}

func (t Task) validateParts() error {
	switch {
	case t.ID == "":
		return &FieldError{"id", "is empty"}
	case t.ID == "." || t.ID == "..":
		return &FieldError{"id", "may not be . or .."}
	case strings.Contains(t.ID, "#"):
		return &FieldError{"id", "contains #, which starts a trace"}
	case t.Kind == "" && strings.Contains(t.ID, ":"):
		return &FieldError{"kind", "is needed when the id contains a colon"}
	case strings.ContainsAny(t.Kind, ":#"):
		return &FieldError{"kind", "contains a colon or #"}
	case isPriority(t.Kind):
		return &FieldError{"kind", "looks like a priority (p0 to p9)"}
	case strings.Contains(t.Trace, "#"):
		return &FieldError{"trace", "contains #"}
	}
	if err := validText("id", t.ID); err != nil {
		return err
	}
	if err := validText("kind", t.Kind); err != nil {
		return err
	}
	return validText("trace", t.Trace)
}

func (t Task) memberLen() int {
	n := len(t.ID)
	if t.Kind != "" {
		n += 1 + len(t.Kind)
	}
	if t.Priority != 0 {
		n += 3
	}
	if t.Trace != "" {
		n += 1 + len(t.Trace)
	}
	return n
}

func isPriority(s string) bool {
	return len(s) == 2 && s[0] == 'p' && s[1] >= '0' && s[1] <= '9'
}

func validText(field, s string) error {
	if isPlain(s) {
		return nil
	}
	if !utf8.ValidString(s) {
		return &FieldError{field, "is not valid UTF-8"}
	}
	for _, r := range s {
		if unicode.IsControl(r) || unicode.IsSpace(r) {
			return &FieldError{field, fmt.Sprintf("contains white space or a control character (%U)", r)}
		}
	}
	return nil
}

// isPlain reports that s is printable ASCII without spaces: the usual case.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// ParseMember reads a member, from the right. It returns a [*FieldError] for a
// member that no task has, or that is longer than MemberMax. For every member
// m it accepts, ParseMember(m).Member() == m.
func ParseMember(member string) (Task, error) {
	var t Task
	if member == "" {
		return Task{}, &FieldError{"member", "is empty"}
	}
	rest, trace, traced := strings.Cut(member, "#")
	if traced && trace == "" {
		return Task{}, &FieldError{"trace", "is empty after #"}
	}
	t.Trace = trace
	if i := strings.LastIndexByte(rest, ':'); i >= 0 && isPriority(rest[i+1:]) {
		t.Priority = P(int(rest[i+2] - '0'))
		rest = rest[:i]
	}
	t.ID = rest
	if i := strings.LastIndexByte(rest, ':'); i >= 0 {
		t.ID, t.Kind = rest[:i], rest[i+1:]
		if t.Kind == "" {
			return Task{}, &FieldError{"kind", "is empty after the last colon"}
		}
	}
	if err := t.Validate(MemberMax); err != nil {
		return Task{}, err
	}
	return t, nil
}

// ValidateQueue reports why name cannot be a queue, as a [*FieldError], or nil:
// letters, digits and _ . : -, first a letter or digit, at most QueueMax bytes,
// not trace and not trace:….
func ValidateQueue(name string) error {
	switch {
	case name == "":
		return &FieldError{"queue", "is empty"}
	case len(name) > QueueMax:
		return &FieldError{"queue", fmt.Sprintf("is %d bytes, the limit is %d", len(name), QueueMax)}
	case name == "trace" || strings.HasPrefix(name, "trace:"):
		return &FieldError{"queue", "trace is a reserved name"}
	}
	for i := range len(name) {
		if !queueByte(name[i], i == 0) {
			return &FieldError{"queue", fmt.Sprintf("%q may have letters, digits and _ . : - only, and starts with a letter or digit", name)}
		}
	}
	return nil
}

func queueByte(c byte, first bool) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return !first && strings.IndexByte("_.:-", c) >= 0
}
