package bulk

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dueq/dueq"
)

// fields of an item, as the HTTP API spells them.
var fields = []string{"id", "kind", "priority", "body", "body_base64", "delay_ms", "due_at", "if_exists"}

// jsonReader reads one JSON object a line, the item of the HTTP API.
type jsonReader struct {
	in   *input
	line int
	buf  []byte
}

func (j *jsonReader) next(rec *Record) error {
	if err := j.in.begin(); err != nil {
		return err
	}
	for {
		line, err := j.readLine(rec)
		blank := len(bytes.TrimSpace(line)) == 0 && rec.Err == nil
		switch {
		case err != nil && (err != io.EOF || blank):
			return err
		case blank:
			continue
		case rec.Err == nil:
			rec.Err = readItem(rec, line)
		}
		return nil
	}
}

// readLine returns the next line, with its end. Of one that is too long it
// returns the front, and reads past the rest.
func (j *jsonReader) readLine(rec *Record) ([]byte, error) {
	j.line++
	rec.Line, rec.End = j.line, j.line
	j.buf = j.buf[:0]
	for {
		part, err := j.in.r.ReadSlice('\n')
		if len(j.buf)+len(bytes.TrimRight(part, "\r\n")) > RecordMax {
			rec.Err = tooLong()
		} else {
			j.buf = append(j.buf, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return j.buf, err
		}
	}
}

// readItem reads an object field by field, for duplicate fields and the exact
// spelling, of which encoding/json is careless.
func readItem(rec *Record, line []byte) error {
	if !utf8.Valid(line) {
		return &dueq.FieldError{Field: "line", Reason: "is not valid UTF-8"}
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber() // however long it is
	if first, err := dec.Token(); err != nil {
		return notJSON(err)
	} else if first != json.Delim('{') {
		return &dueq.FieldError{Field: "line", Reason: "is not a JSON object"}
	}
	seen := make([]string, 0, len(fields))
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return notJSON(err)
		}
		name := key.(string) // of an object that is all the decoder lets through
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return notJSON(err)
		}
		if slices.Contains(seen, name) {
			return &dueq.FieldError{Field: name, Reason: "is there twice"}
		}
		if err := setField(rec, name, raw); err != nil {
			return err
		}
		seen = append(seen, name)
	}
	if _, err := dec.Token(); err != nil {
		return notJSON(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return &dueq.FieldError{Field: "line", Reason: "has more after the object"}
	}
	return checkFields(seen)
}

func checkFields(seen []string) error {
	has := func(name string) bool { return slices.Contains(seen, name) }
	switch {
	case !has("id"):
		return &dueq.FieldError{Field: "id", Reason: "is missing"}
	case !has("delay_ms") && !has("due_at"):
		return &dueq.FieldError{Field: "delay_ms", Reason: "or due_at is missing"}
	case has("delay_ms") && has("due_at"):
		return &dueq.FieldError{Field: "delay_ms", Reason: "and due_at are both there"}
	case has("body") && has("body_base64"):
		return &dueq.FieldError{Field: "body", Reason: "and body_base64 are both there"}
	}
	return nil
}

func notJSON(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &dueq.FieldError{Field: "line", Reason: "ends within the JSON object"}
	}
	return &dueq.FieldError{Field: "line", Reason: "is not JSON: " + err.Error()}
}

// setField reads the value of one field.
func setField(rec *Record, name string, raw json.RawMessage) (err error) {
	switch {
	case !slices.Contains(fields, name):
		return &dueq.FieldError{Field: "field", Reason: fmt.Sprintf("%s is not one of %s", quote(name), strings.Join(fields, ", "))}
	case string(raw) == "null":
		return &dueq.FieldError{Field: name, Reason: "is null; leave it out"}
	}
	var text string
	switch name {
	case "id":
		rec.Task.ID, err = readString(name, raw)
	case "kind":
		rec.Task.Kind, err = readString(name, raw)
	case "priority":
		rec.Task.Priority, err = readPriority(raw)
	case "body":
		rec.Task.Body = bytes.Clone(raw)
	case "body_base64":
		rec.Task.Body, err = readBase64(name, raw)
	case "delay_ms":
		rec.When, err = readDelay(name, raw)
	case "due_at":
		if text, err = readString(name, raw); err == nil {
			rec.When, err = readDue(name, text)
		}
	case "if_exists":
		if text, err = readString(name, raw); err == nil {
			rec.IfExists, err = readIfExists(name, text)
		}
	}
	return err
}

func readString(name string, raw json.RawMessage) (string, error) {
	var text string
	if raw[0] != '"' {
		return "", &dueq.FieldError{Field: name, Reason: quote(string(raw)) + " is not a string"}
	}
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", notJSON(err)
	}
	// encoding/json puts U+FFFD where an escape is half of a surrogate pair.
	if strings.ContainsRune(text, utf8.RuneError) && bytes.Contains(bytes.ToLower(raw), []byte(`\ud`)) {
		return "", &dueq.FieldError{Field: name, Reason: "has an escape that is no character"}
	}
	return text, nil
}

func readPriority(raw json.RawMessage) (dueq.Priority, error) {
	if raw[0] == '"' {
		return 0, &dueq.FieldError{Field: "priority", Reason: quote(string(raw)) + " is a string, not a number"}
	}
	return parsePriority(string(raw))
}

func readBase64(name string, raw json.RawMessage) ([]byte, error) {
	text, err := readString(name, raw)
	if err != nil {
		return nil, err
	}
	body, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, &dueq.FieldError{Field: name, Reason: "is not base64: " + err.Error()}
	}
	return append([]byte{}, body...), nil // never nil: no bytes are a body too
}

// readDelay takes whole numbers only: 1e3, 1.0 and "5" are refused.
func readDelay(name string, raw json.RawMessage) (dueq.When, error) {
	const most = math.MaxInt64 / int64(time.Millisecond)
	ms, err := strconv.ParseInt(string(raw), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && ms > most:
		return dueq.When{}, &dueq.FieldError{Field: name, Reason: fmt.Sprintf("%s is not 0 to %d", quote(string(raw)), most)}
	case err != nil:
		return dueq.When{}, &dueq.FieldError{Field: name, Reason: quote(string(raw)) + " is not a whole number of milliseconds"}
	case ms < 0:
		return dueq.When{}, &dueq.FieldError{Field: name, Reason: string(raw) + " is negative"}
	}
	return dueq.In(time.Duration(ms) * time.Millisecond), nil
}

func readDue(name, text string) (dueq.When, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return dueq.When{}, &dueq.FieldError{Field: name, Reason: quote(text) + " is not RFC 3339 with an offset, such as 2026-12-01T08:00:00Z"}
	}
	return dueq.At(at), nil
}

func readIfExists(name, text string) (dueq.IfExists, error) {
	if text == "" {
		return 0, &dueq.FieldError{Field: name, Reason: "is empty"}
	}
	if len(text) > 20 {
		text = text[:20]
	}
	return dueq.ParseIfExists(text)
}
