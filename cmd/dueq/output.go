package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dueq/dueq"
)

// print writes v as JSON or, for people, the rows that table writes.
func (a *app) print(v any, table func(w io.Writer)) error {
	var b bytes.Buffer
	if a.format == "json" {
		text, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		b.Write(append(escapeJSON(text), '\n'))
	} else {
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		table(w)
		w.Flush()
	}
	_, err := a.stdout.Write(b.Bytes())
	return err
}

// say writes a line of talk to stderr.
func (a *app) say(format string, args ...any) {
	fmt.Fprintln(a.stderr, escape(fmt.Sprintf(format, args...)))
}

// row writes one line of a table, each cell escaped.
func row(w io.Writer, cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = escape(fmt.Sprint(cell))
	}
	fmt.Fprintln(w, strings.Join(texts, "\t"))
}

// escape writes what does not print, control bytes above all, as Go does:
// \n, \x1b, \u202e.
func escape(s string) string {
	var b strings.Builder
	for i, n := 0, 0; i < len(s); i += n {
		var r rune
		r, n = utf8.DecodeRuneInString(s[i:])
		if unicode.IsPrint(r) && !(r == utf8.RuneError && n == 1) {
			b.WriteString(s[i : i+n])
			continue
		}
		quoted := strconv.Quote(s[i : i+n])
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// escapeJSON writes what does not print as \u…, which leaves the JSON the same.
func escapeJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// short cuts text for a cell of a table.
func short(s string) string {
	const most = 80
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

const instantFormat = "2006-01-02T15:04:05.000Z07:00"

// instant is a time as all output has it: RFC 3339 in UTC with milliseconds;
// null in JSON, and - in a table, if there is none.
type instant time.Time

func (i instant) String() string {
	if time.Time(i).IsZero() {
		return "-"
	}
	return time.Time(i).UTC().Format(instantFormat)
}

func (i instant) MarshalJSON() ([]byte, error) {
	if time.Time(i).IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(i.String())
}

// payload is a body in JSON: body if it is text, else body_base64, neither if
// there is none.
type payload struct {
	Body       *string `json:"body,omitempty"`
	BodyBase64 []byte  `json:"body_base64,omitempty"`
}

func newPayload(body []byte) payload {
	if body == nil {
		return payload{}
	}
	if text := string(body); isText(text) {
		return payload{Body: &text}
	}
	return payload{BodyBase64: body}
}

func isText(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsPrint(r) && r != '\n' && r != '\r' && r != '\t'
	})
}

// taskView is a task as JSON shows it.
type taskView struct {
	Queue          string  `json:"queue"`
	Member         string  `json:"member"`
	MemberBase64   []byte  `json:"member_base64,omitempty"` // only of one that is not UTF-8
	ID             string  `json:"id"`
	Kind           string  `json:"kind"`
	Priority       *int    `json:"priority"`
	Trace          string  `json:"trace"`
	State          string  `json:"state"`
	DueAt          instant `json:"due_at"`
	ScheduledAgain bool    `json:"scheduled_again"`
	Cancelled      bool    `json:"cancelled"`
	LeaseEndsAt    instant `json:"lease_ends_at"`
	DiedAt         instant `json:"died_at"`
	Failures       int     `json:"failures"`
	Round          int     `json:"round"`
	LastError      string  `json:"last_error"`
	Malformed      string  `json:"malformed"`
	HasBody        bool    `json:"has_body"`
	payload
}

func viewTask(queue string, info dueq.Info) taskView {
	v := taskView{
		Queue: queue, Member: info.Member, ID: info.ID, Kind: info.Kind, Trace: info.Trace,
		Priority: level(info.Priority), State: info.State.String(), DueAt: instant(info.Due),
		ScheduledAgain: info.Again, Cancelled: info.Cancelled,
		LeaseEndsAt: instant(info.LeaseEnds), DiedAt: instant(info.DiedAt),
		Failures: info.Failures, Round: info.Round, LastError: info.LastError,
		HasBody: info.HasBody, payload: newPayload(info.Body),
	}
	if info.Malformed != nil {
		v.Malformed = info.Malformed.Error()
	}
	if !utf8.ValidString(info.Member) {
		v.MemberBase64 = []byte(info.Member)
	}
	return v
}

func level(p dueq.Priority) *int {
	if p == 0 {
		return nil
	}
	n := p.Level()
	return &n
}
