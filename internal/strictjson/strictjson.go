// Package strictjson reads JSON into structs as it is meant, not as
// encoding/json lets it pass.
package strictjson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dueq/dueq"
)

// Unmarshal reads one JSON object into the struct that v points to. Each of its
// fields must be in the struct, spelled just so, be there once and not be null;
// a field of the struct must be there unless it is omitempty or omitzero.
// Numbers are held to the tags minimum and maximum, strings to enum, lists to
// maxItems. A json.RawMessage takes any value, in a list also null.
//
// Fields may be strings, bools, int, int64, float64, []byte (base64), structs,
// pointers to and slices of those; Unmarshal panics at others.
//
// Errors: a *dueq.FieldError with the path of the field, as targets[3].member;
// what is not JSON at all is the field whole.
func Unmarshal(data []byte, whole string, v any) error {
	return read(data, whole, func(r reader, dec *json.Decoder) error {
		return r.object(dec, "", reflect.ValueOf(v).Elem())
	})
}

// Object reads one JSON object whose fields set is given one by one; the value
// is null or as it is written. None is there twice.
//
// Errors: those of set, and a *dueq.FieldError as of Unmarshal.
func Object(data []byte, whole string, set func(name string, value json.RawMessage) error) error {
	return read(data, whole, func(r reader, dec *json.Decoder) error {
		_, err := r.fields(dec, "", set)
		return err
	})
}

func read(data []byte, whole string, object func(r reader, dec *json.Decoder) error) error {
	if !utf8.Valid(data) {
		return refuse(whole, "is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := object(reader{whole}, dec); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return refuse(whole, "has more after the object")
	}
	return nil
}

type reader struct{ whole string }

func (r reader) object(dec *json.Decoder, path string, v reflect.Value) error {
	known := fieldsOf(v.Type())
	seen, err := r.fields(dec, path, func(name string, raw json.RawMessage) error {
		i := slices.IndexFunc(known, func(f field) bool { return f.name == name })
		if i < 0 {
			return r.unknown(known, path, name)
		}
		return r.value(raw, join(path, name), known[i], v.FieldByIndex(known[i].index))
	})
	if err != nil {
		return err
	}
	for _, f := range known {
		if f.required && !slices.Contains(seen, f.name) {
			return refuse(join(path, f.name), "is missing")
		}
	}
	return nil
}

// fields gives the fields of an object to set and returns their names.
func (r reader) fields(dec *json.Decoder, path string, set func(name string, raw json.RawMessage) error) (seen []string, err error) {
	first, err := dec.Token()
	switch {
	case err == nil && first != json.Delim('{') || errors.As(err, new(*json.UnmarshalTypeError)):
		return nil, refuse(r.at(path), "is not a JSON object")
	case err != nil:
		return nil, r.notJSON(err)
	}
	for dec.More() {
		name, raw, err := r.member(dec)
		if err != nil {
			return nil, err
		}
		if slices.Contains(seen, name) {
			return nil, refuse(join(path, name), "is there twice")
		}
		if err := set(name, raw); err != nil {
			return nil, err
		}
		seen = append(seen, name)
	}
	if _, err := dec.Token(); err != nil {
		return nil, r.notJSON(err)
	}
	return seen, nil
}

// member reads the next name of an object, and its value as it is written.
func (r reader) member(dec *json.Decoder) (name string, raw json.RawMessage, err error) {
	key, err := dec.Token()
	if err != nil {
		return "", nil, r.notJSON(err)
	}
	if err := dec.Decode(&raw); err != nil {
		return "", nil, r.notJSON(err)
	}
	return key.(string), raw, nil // of an object that is all the decoder lets through
}

func (r reader) unknown(known []field, path, name string) error {
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = f.name
	}
	return refuse(r.at(path), fmt.Sprintf("has the field %s, which is not one of %s", Quote(name), strings.Join(names, ", ")))
}

// at is the name of an object in errors.
func (r reader) at(path string) string {
	if path == "" {
		return r.whole
	}
	return path
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func (r reader) value(raw json.RawMessage, path string, f field, v reflect.Value) (err error) {
	if string(raw) == "null" {
		return refuse(path, "is null; leave it out")
	}
	switch to := v.Addr().Interface().(type) {
	case *json.RawMessage:
		*to = raw
	case *[]byte:
		*to, err = readBase64(raw, path)
	case *string:
		*to, err = readString(raw, path, f)
	case *bool:
		*to, err = readBool(raw, path)
	case *int:
		var n int64
		n, err = readInt(raw, path, f)
		*to = int(n)
	case *int64:
		*to, err = readInt(raw, path, f)
	case *float64:
		*to, err = readFloat(raw, path, f)
	default:
		return r.composite(raw, path, f, v)
	}
	return err
}

func (r reader) composite(raw json.RawMessage, path string, f field, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return r.value(raw, path, f, v.Elem())
	case reflect.Struct:
		return r.object(json.NewDecoder(bytes.NewReader(raw)), path, v)
	case reflect.Slice:
		return r.list(raw, path, f, v)
	}
	panic("strictjson: cannot read a " + v.Type().String())
}

func (r reader) list(raw json.RawMessage, path string, f field, v reflect.Value) error {
	if raw[0] != '[' {
		return refuse(path, Quote(string(raw))+" is not a list")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	_, _ = dec.Token() // of what was decoded once nothing fails
	v.Set(reflect.MakeSlice(v.Type(), 0, 8))
	for i := 0; dec.More(); i++ {
		if i == f.maxItems && i > 0 {
			return refuse(path, fmt.Sprintf("has more than %d entries", f.maxItems))
		}
		var one json.RawMessage
		_ = dec.Decode(&one)
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		if to, ok := v.Index(i).Addr().Interface().(*json.RawMessage); ok {
			*to = one
			continue
		}
		if err := r.value(one, fmt.Sprintf("%s[%d]", path, i), f, v.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

func readString(raw json.RawMessage, path string, f field) (string, error) {
	var text string
	if raw[0] != '"' {
		return "", refuse(path, Quote(string(raw))+" is not a string")
	}
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", refuse(path, "is not JSON: "+err.Error())
	}
	// encoding/json puts U+FFFD where an escape is half of a surrogate pair.
	if strings.ContainsRune(text, utf8.RuneError) && bytes.Contains(bytes.ToLower(raw), []byte(`\ud`)) {
		return "", refuse(path, "has an escape that is no character")
	}
	if f.enum != nil && !slices.Contains(f.enum, text) {
		return "", refuse(path, Quote(text)+" is not one of "+strings.Join(f.enum, ", "))
	}
	return text, nil
}

func readBase64(raw json.RawMessage, path string) ([]byte, error) {
	text, err := readString(raw, path, field{})
	if err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, refuse(path, "is not base64: "+err.Error())
	}
	return append([]byte{}, b...), nil // never nil: no bytes are a value too
}

func readBool(raw json.RawMessage, path string) (bool, error) {
	text := string(raw)
	if text != "true" && text != "false" {
		return false, refuse(path, Quote(text)+" is neither true nor false")
	}
	return text == "true", nil
}

// readInt takes digits only: 1e3, 1.0 and "5" are refused.
func readInt(raw json.RawMessage, path string, f field) (int64, error) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, refuse(path, Quote(string(raw))+" is not a whole number")
	}
	if err != nil || float64(n) < f.minimum || float64(n) > f.maximum {
		return 0, f.outOfBounds(raw, path)
	}
	return n, nil
}

func readFloat(raw json.RawMessage, path string, f field) (float64, error) {
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, refuse(path, Quote(string(raw))+" is not a number")
	}
	if err != nil || n < f.minimum || n > f.maximum {
		return 0, f.outOfBounds(raw, path)
	}
	return n, nil
}

func (f field) outOfBounds(raw json.RawMessage, path string) error {
	return refuse(path, fmt.Sprintf("%s is not %s to %s", Quote(string(raw)), number(f.minimum), number(f.maximum)))
}

func number(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

func (r reader) notJSON(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return refuse(r.whole, "ends within the JSON object")
	}
	return refuse(r.whole, "is not JSON: "+err.Error())
}

func refuse(field, reason string) error { return &dueq.FieldError{Field: field, Reason: reason} }

// Quote shows a value in an error, cut to what fits a line.
func Quote(s string) string {
	const most = 40
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most-1]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
