// Package bulk reads tasks to schedule from CSV and NDJSON, one at a time and
// in bounded memory, so that a file of any size can be read.
package bulk

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/dueq/dueq"
)

// RecordMax is the longest record in bytes: a line, or the lines of a CSV
// record whose quoted fields have line breaks.
const RecordMax = 1 << 20

// Format is how a file writes its tasks.
type Format uint8

// The formats. The zero Format is none.
const (
	_      Format = iota
	CSV           // a header that names the columns, then a task a record
	NDJSON        // a JSON object a line
)

// ParseFormat reads csv or ndjson.
func ParseFormat(s string) (Format, error) {
	switch s {
	case "csv":
		return CSV, nil
	case "ndjson":
		return NDJSON, nil
	}
	return 0, &dueq.FieldError{Field: "format", Reason: fmt.Sprintf("%q is not one of csv, ndjson", s)}
}

// FormatOf guesses the format from the name of a file: .csv, .ndjson, .jsonl.
func FormatOf(name string) (Format, bool) {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".csv":
		return CSV, true
	case ".ndjson", ".jsonl":
		return NDJSON, true
	}
	return 0, false
}

// Options say how to read.
type Options struct {
	Format    Format
	IfExists  dueq.IfExists // of records that do not say
	MemberMax int           // longest member in bytes; zero means dueq.DefaultMemberMax
}

// Record is one task of a file, or what is wrong with it.
type Record struct {
	Line     int // where it begins, from 1
	End      int // the line it ends on
	Task     dueq.Task
	When     dueq.When
	IfExists dueq.IfExists
	Err      error // why it is refused; the file goes on after it
}

// Reader reads the records of one file. It is not safe for concurrent use.
type Reader struct {
	opts   Options
	format interface {
		// next reads one record into rec, whose Err says what is wrong with it.
		// An error ends the file, io.EOF without fault.
		next(rec *Record) error
	}
}

// NewReader returns a reader of a file in opts.Format. It panics if there is
// none.
func NewReader(r io.Reader, opts Options) *Reader {
	if opts.MemberMax == 0 {
		opts.MemberMax = dueq.DefaultMemberMax
	}
	in := newInput(r)
	switch opts.Format {
	case CSV:
		return &Reader{opts: opts, format: &csvReader{in: in}}
	case NDJSON:
		return &Reader{opts: opts, format: &jsonReader{in: in}}
	}
	panic("bulk: no format")
}

// Next returns the next record, good or bad. io.EOF is the end of the file;
// any other error as well: it cannot be read, or its CSV header is not one,
// which is a *dueq.FieldError.
func (r *Reader) Next() (Record, error) {
	rec := Record{IfExists: r.opts.IfExists}
	if err := r.format.next(&rec); err != nil {
		return Record{}, err
	}
	if rec.Err == nil {
		rec.Err = rec.Task.Validate(r.opts.MemberMax)
	}
	if rec.Err == nil {
		rec.Err = rec.When.Validate()
	}
	return rec, nil
}

func tooLong() error {
	return &dueq.FieldError{Field: "line", Reason: fmt.Sprintf("is longer than %d bytes", RecordMax)}
}
