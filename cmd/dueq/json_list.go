package main

import (
	"bytes"
	"encoding/json"
	"io"
)

// jsonList writes an object with one list of any length, piece by piece, byte
// for byte as print writes it whole: the fields of head, the list, and the
// fields that end is given. Nothing is written before the first flush or end.
type jsonList struct {
	out  io.Writer
	head any    // a struct with at least one field
	name string // of the list

	begun bool
	items int
	b     bytes.Buffer // what is not written yet
}

// add appends v to the list.
func (l *jsonList) add(v any) error {
	if err := l.begin(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(v, "    ", "  ")
	if err != nil {
		return err
	}
	if l.items++; l.items > 1 {
		l.b.WriteByte(',')
	}
	l.b.WriteString("\n    ")
	l.b.Write(escapeJSON(text))
	return nil
}

func (l *jsonList) begin() error {
	if l.begun {
		return nil
	}
	l.begun = true
	text, err := json.MarshalIndent(l.head, "", "  ")
	if err != nil {
		return err
	}
	l.b.Write(escapeJSON(bytes.TrimSuffix(text, []byte("\n}"))))
	l.b.WriteString(",\n  \"" + l.name + "\": [")
	return nil
}

// flush writes what was added.
func (l *jsonList) flush() error {
	_, err := l.b.WriteTo(l.out)
	return err
}

// end writes the rest of the object: the end of the list, and the fields of
// tail, a struct with at least one.
func (l *jsonList) end(tail any) error {
	if err := l.begin(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(tail, "", "  ")
	if err != nil {
		return err
	}
	if l.items > 0 {
		l.b.WriteString("\n  ")
	}
	l.b.WriteString("],")
	l.b.Write(escapeJSON(bytes.TrimPrefix(text, []byte("{"))))
	l.b.WriteByte('\n')
	return l.flush()
}
