package view

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// Payload is a body over HTTP: JSON as body, other bytes as body_base64, and
// both when the body is JSON with white space, which body loses. Neither means
// that there is no body.
type Payload struct {
	Body       json.RawMessage `json:"body,omitempty" doc:"The body, if it is JSON other than null."`
	BodyBase64 []byte          `json:"body_base64,omitzero" doc:"The bytes of the body, unless they are those of body."`
}

// NewPayload shows a body; nil is none.
func NewPayload(body []byte) Payload {
	if body == nil {
		return Payload{}
	}
	var compact bytes.Buffer
	compact.Grow(len(body))
	if !utf8.Valid(body) || json.Compact(&compact, body) != nil || !isHarmless(compact.Bytes()) {
		return Payload{BodyBase64: body}
	}
	if compact.Len() < len(body) {
		return Payload{compact.Bytes(), body}
	}
	return Payload{Body: body}
}

// Bytes returns the body that NewPayload showed.
func (p Payload) Bytes() []byte {
	if p.BodyBase64 != nil {
		return p.BodyBase64
	}
	return p.Body
}

// Bounds of what every language reads.
const (
	deepest     = 100 // arrays and objects in each other
	longestSafe = 300 // digits of a number without exponent, which fits a float64
)

// isHarmless reports that no reader of JSON stumbles over body, or one task
// would keep a client from reading all the others of an answer: it is not null,
// not deep, its numbers are finite and its escapes are characters. Body is valid
// and compact.
func isHarmless(body []byte) bool {
	depth := 0
	for i := 0; i < len(body); i++ {
		n, ok := 1, true
		switch c := body[i]; {
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == '"':
			n, ok = text(body[i:])
		case c == '-' || c >= '0' && c <= '9':
			n, ok = number(body[i:])
		}
		if !ok || depth > deepest {
			return false
		}
		i += n - 1
	}
	return string(body) != "null"
}

// number returns how long the number is that b begins with.
func number(b []byte) (n int, ok bool) {
	exponent := false
	for n < len(b) && bytes.IndexByte([]byte("+-.0123456789eE"), b[n]) >= 0 {
		exponent = exponent || b[n]|0x20 == 'e'
		n++
	}
	if !exponent && n < longestSafe {
		return n, true
	}
	_, err := strconv.ParseFloat(string(b[:n]), 64)
	return n, err == nil
}

// text returns how long the string is that b begins with. It has no half of a
// surrogate pair.
func text(b []byte) (n int, ok bool) {
	for n = 1; b[n] != '"'; n++ {
		if b[n] != '\\' {
			continue
		}
		if n++; b[n] != 'u' {
			continue
		}
		switch high := unit(b[n+1:]); {
		case high >= 0xdc00 && high < 0xe000:
			return 0, false
		case high >= 0xd800 && high < 0xdc00:
			if n += 6; b[n-1] != '\\' || b[n] != 'u' {
				return 0, false
			}
			if low := unit(b[n+1:]); low < 0xdc00 || low > 0xdfff {
				return 0, false
			}
		}
		n += 4
	}
	return n + 1, true
}

// unit reads the four hex digits of an escape.
func unit(b []byte) uint64 {
	n, _ := strconv.ParseUint(string(b[:4]), 16, 16)
	return n
}
