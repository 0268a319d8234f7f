package bulk

import (
	"bufio"
	"bytes"
	"io"

	"github.com/dueq/dueq"
)

// input is a file with the byte order mark taken off its front.
type input struct {
	r       *bufio.Reader
	started bool
}

func newInput(r io.Reader) *input {
	return &input{r: bufio.NewReaderSize(r, 64<<10)}
}

// begin skips a byte order mark, and refuses those of UTF-16.
func (in *input) begin() error {
	if in.started {
		return nil
	}
	in.started = true
	mark, err := in.r.Peek(3)
	switch {
	case bytes.Equal(mark, []byte("\xef\xbb\xbf")):
		_, _ = in.r.Discard(3)
	case bytes.HasPrefix(mark, []byte("\xff\xfe")), bytes.HasPrefix(mark, []byte("\xfe\xff")):
		return &dueq.FieldError{Field: "file", Reason: "is UTF-16; save it as UTF-8"}
	case err != nil && err != io.EOF:
		return err
	}
	return nil
}
