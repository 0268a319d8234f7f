package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

var errProtocol = errors.New("not the Redis protocol")

// value is one value of the protocol, RESP2 or RESP3. A null is empty.
type value struct {
	kind  byte // the byte that stands for its type
	text  string
	items []value // of an aggregate; a map has its keys and values in turn
}

// err returns what the server complains of, or nil.
func (v value) err() error {
	if v.kind == '-' || v.kind == '!' {
		return errors.New(v.text)
	}
	return nil
}

func (v value) strings() []string {
	texts := make([]string, len(v.items))
	for i, item := range v.items {
		texts[i] = item.text
	}
	return texts
}

// respReader reads values and keeps the bytes of the last one.
type respReader struct {
	in  *bufio.Reader
	raw []byte
}

func newRespReader(in io.Reader) *respReader {
	return &respReader{in: bufio.NewReader(in)}
}

func (r *respReader) next() (value, error) {
	r.raw = nil
	return r.value()
}

func (r *respReader) value() (value, error) {
	line, err := r.in.ReadString('\n')
	if err != nil {
		return value{}, err
	}
	r.raw = append(r.raw, line...)
	v := value{kind: line[0], text: strings.TrimRight(line[1:], "\r\n")}
	switch v.kind {
	case '+', '-', ':', ',', '(', '#', '_':
		return v, nil
	case '$', '=', '!':
		v.text, err = r.bulk(v.text)
		return v, err
	case '*', '~', '>':
		return r.aggregate(v, 1)
	case '%':
		return r.aggregate(v, 2)
	case '|': // says something about the value that follows
		if _, err := r.aggregate(v, 2); err != nil {
			return v, err
		}
		return r.value()
	}
	return v, fmt.Errorf("%w: %q", errProtocol, line)
}

func (r *respReader) bulk(length string) (string, error) {
	n, err := parseLength(length)
	if err != nil || n < 0 {
		return "", err
	}
	text := make([]byte, n+len("\r\n"))
	if _, err := io.ReadFull(r.in, text); err != nil {
		return "", err
	}
	r.raw = append(r.raw, text...)
	return string(text[:n]), nil
}

func (r *respReader) aggregate(v value, perEntry int) (value, error) {
	n, err := parseLength(v.text)
	v.text = ""
	for range n * perEntry {
		item, itemErr := r.value()
		if itemErr != nil {
			return v, itemErr
		}
		v.items = append(v.items, item)
	}
	return v, err
}

// parseLength reads a length of at most 512 MiB, Redis' own bound; a null has -1.
func parseLength(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < -1 || n > 512<<20 {
		return 0, fmt.Errorf("%w: length %q", errProtocol, text)
	}
	return n, nil
}

func encode(args []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}
