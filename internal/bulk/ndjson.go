package bulk

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/item"
)

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

func readItem(rec *Record, line []byte) error {
	it, err := item.Parse(line, "line")
	if err != nil {
		return err
	}
	if it.IfExists != "" {
		if rec.IfExists, err = dueq.ParseIfExists(it.IfExists); err != nil {
			return err
		}
	}
	if rec.Task, err = it.Task(); err != nil {
		return err
	}
	rec.When, err = it.When.Parse()
	return err
}
