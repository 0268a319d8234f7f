package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
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

// payload is a body in JSON for people: body if it is text, else body_base64, neither if
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
	view.Task
	payload
}

func viewTask(queue string, info dueq.Info) taskView {
	return taskView{view.NewTask(queue, info), newPayload(info.Body)}
}
