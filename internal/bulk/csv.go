package bulk

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/strictjson"
)

// columns of a CSV file. One of delay and due must be there, and id.
var columns = []string{"id", "kind", "priority", "delay", "due", "body"}

// csvReader reads CSV as RFC 4180 has it: fields may be quoted, quoted fields
// may hold commas, line breaks and doubled quotes. Unlike encoding/csv it
// keeps a quoted CRLF, bounds its memory, and goes on after a bad record.
type csvReader struct {
	in     *input
	line   int // line breaks read so far
	header []string

	buf  []byte // fields of one record, one behind the other
	ends []int  // where each of them ends in buf
	size int    // of the record, in bytes
}

func (c *csvReader) next(rec *Record) error {
	if c.header == nil {
		if err := c.readHeader(); err != nil {
			return err
		}
	}
	fields, err := c.fields(rec)
	if err != nil || rec.Err != nil {
		return err
	}
	if len(fields) != len(c.header) {
		rec.Err = &dueq.FieldError{Field: "line", Reason: fmt.Sprintf("has %d fields, the header has %d", len(fields), len(c.header))}
		return nil
	}
	for i, name := range c.header {
		if rec.Err = setColumn(rec, name, fields[i]); rec.Err != nil {
			return nil
		}
	}
	return nil
}

func (c *csvReader) readHeader() error {
	if err := c.in.begin(); err != nil {
		return err
	}
	var rec Record
	names, err := c.fields(&rec)
	switch {
	case err == io.EOF:
		return badHeader("is missing")
	case err != nil:
		return err
	case rec.Err != nil:
		return badHeader("is not CSV: " + rec.Err.Error())
	}
	if err := checkHeader(names); err != nil {
		return err
	}
	c.header = names
	return nil
}

func checkHeader(names []string) error {
	for i, name := range names {
		switch {
		case !slices.Contains(columns, name):
			return badHeader(fmt.Sprintf("has the column %s, which is not one of %s", strictjson.Quote(name), strings.Join(columns, ", ")))
		case slices.Contains(names[:i], name):
			return badHeader("has the column " + name + " twice")
		}
	}
	delay, due := slices.Contains(names, "delay"), slices.Contains(names, "due")
	switch {
	case !slices.Contains(names, "id"):
		return badHeader("lacks the column id")
	case !delay && !due:
		return badHeader("lacks a column delay or due")
	case delay && due:
		return badHeader("has both columns delay and due")
	}
	return nil
}

func badHeader(reason string) error {
	return &dueq.FieldError{Field: "header", Reason: reason}
}

// setColumn reads one field. An empty one means there is none.
func setColumn(rec *Record, name, text string) (err error) {
	switch name {
	case "id":
		rec.Task.ID = text
	case "kind":
		rec.Task.Kind = text
	case "priority":
		rec.Task.Priority, err = parsePriority(text)
	case "delay":
		d, parseErr := dueq.ParseDuration(text)
		if parseErr != nil {
			return &dueq.FieldError{Field: "delay", Reason: strictjson.Quote(text) + " is not a duration like 30m, 1.5s or 7d"}
		}
		rec.When = dueq.In(d)
	case "due":
		if rec.When, err = dueq.ParseWhen(text); len(text) > 60 && err != nil {
			err = &dueq.FieldError{Field: "due", Reason: strictjson.Quote(text) + " is not a time"}
		}
	case "body":
		if text != "" {
			rec.Task.Body = []byte(text)
		}
	}
	return err
}

func parsePriority(text string) (dueq.Priority, error) {
	switch {
	case text == "":
		return 0, nil
	case len(text) == 1 && text[0] >= '0' && text[0] <= '9':
		return dueq.P(int(text[0] - '0')), nil
	}
	return 0, &dueq.FieldError{Field: "priority", Reason: strictjson.Quote(text) + " is not 0 to 9"}
}

// State of the reader within a record.
type csvState uint8

const (
	atStart  csvState = iota // of a field
	plain                    // in a field without quotes
	quoted                   // within quotes
	closing                  // after a quote within quotes: the end, or half of ""
	closedCR                 // after the end and a CR, which only a line end may follow
	skipping                 // to the end of the line, since it is wrong
)

// fields reads one record that is not an empty line. What is wrong with it is
// left in rec.Err.
func (c *csvReader) fields(rec *Record) ([]string, error) {
	for {
		rec.Line = c.line + 1
		c.buf, c.ends, c.size = c.buf[:0], c.ends[:0], 0
		err := c.scan(rec)
		if err != nil && (err != io.EOF || c.size == 0) {
			return nil, err
		}
		if c.size > 0 {
			return c.split(), nil
		}
	}
}

// split returns the fields, which share one string.
func (c *csvReader) split() []string {
	text, from := string(c.buf), 0
	fields := make([]string, len(c.ends))
	for i, end := range c.ends {
		fields[i], from = text[from:end], end
	}
	return fields
}

// scan reads to the end of a record. c.size is zero after an empty line.
func (c *csvReader) scan(rec *Record) error {
	state := atStart
	for {
		b, err := c.in.r.ReadByte()
		if err != nil {
			rec.End = c.line + 1
			c.endOfFile(rec, state)
			return err
		}
		if b == '\n' {
			c.line++
			rec.End = c.line
			if state != quoted {
				c.endLine(rec, state)
				return nil
			}
		}
		if c.size++; c.size > RecordMax && rec.Err == nil {
			rec.Err = tooLong()
		}
		state = c.step(rec, state, b)
	}
}

// step takes one byte that does not end the record.
func (c *csvReader) step(rec *Record, state csvState, b byte) csvState {
	switch state {
	case atStart, plain:
		switch {
		case b == ',':
			c.endField()
			return atStart
		case b == '"' && state == atStart:
			return quoted
		case b == '"':
			return c.refuse(rec, "has a quote within a field that does not begin with one")
		}
		c.keep(rec, b)
		return plain
	case quoted:
		if b == '"' {
			return closing
		}
		c.keep(rec, b)
		return quoted
	case closing:
		switch b {
		case '"':
			c.keep(rec, b)
			return quoted
		case ',':
			c.endField()
			return atStart
		case '\r':
			return closedCR
		}
	}
	if state == skipping {
		return skipping
	}
	return c.refuse(rec, "has text after a closing quote")
}

func (c *csvReader) refuse(rec *Record, reason string) csvState {
	if rec.Err == nil {
		rec.Err = &dueq.FieldError{Field: "line", Reason: reason}
	}
	return skipping
}

// keep adds a byte to the field, unless the record is refused already.
func (c *csvReader) keep(rec *Record, b byte) {
	if rec.Err == nil {
		c.buf = append(c.buf, b)
	}
}

func (c *csvReader) endField() {
	if len(c.ends) <= len(columns) { // one too many is enough to be refused
		c.ends = append(c.ends, len(c.buf))
	} else {
		c.ends[len(c.ends)-1] = len(c.buf)
	}
}

func (c *csvReader) endLine(rec *Record, state csvState) {
	if state == plain && len(c.buf) > 0 && c.buf[len(c.buf)-1] == '\r' {
		c.buf = c.buf[:len(c.buf)-1]
		c.size--
	}
	if c.size > 0 && rec.Err == nil {
		c.endField()
	}
}

func (c *csvReader) endOfFile(rec *Record, state csvState) {
	if state == quoted {
		c.refuse(rec, fmt.Sprintf("has a quote that is never closed, so that it goes on to line %d, the last", c.line+1))
	}
	c.endLine(rec, state)
}
