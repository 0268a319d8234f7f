package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/strictjson"
)

// call is one request on its way through a route.
type call struct {
	s      *Server
	route  *route
	w      http.ResponseWriter
	r      *http.Request
	caller *caller
	queue  string // of the path; empty without
	member string // of the path; empty without
	query  url.Values
	status int    // of an answer that is no problem
	unsent func() // is called when the answer cannot have arrived; nil is nothing to do
}

// serve lets a request through to its route, if its caller may.
func (s *Server) serve(rt *route, w http.ResponseWriter, r *http.Request, serve func(c *call) error) {
	c := &call{s: s, route: rt, w: w, r: r, status: http.StatusOK}
	err := c.admit()
	if err == nil {
		err = serve(c)
	}
	if err != nil {
		writeProblem(w, r, problemOf(err))
	}
}

func (c *call) admit() error {
	c.queue, c.member = c.r.PathValue("queue"), c.r.PathValue("member")
	if len(c.route.scopes) > 0 {
		var err error
		if c.caller, err = c.s.gate.identify(c.r); err != nil {
			return err
		}
		if err := c.mayAny(c.route.scopes); err != nil {
			return err
		}
	}
	if strings.Contains(c.route.path, "{queue}") {
		if err := dueq.ValidateQueue(c.queue); err != nil {
			return err
		}
	}
	return c.readQuery()
}

// mayAny reports that the caller has one of the scopes for the queue of the
// path. A route that needs more asks c.caller itself.
func (c *call) mayAny(scopes []Scope) (err error) {
	for _, scope := range scopes {
		if err = c.caller.may(scope, c.queue); err == nil {
			return nil
		}
	}
	return err
}

func (c *call) readQuery() (err error) {
	if c.route.anyQuery {
		return nil
	}
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		return refused("query", "is not one: "+err.Error())
	}
	for name, values := range c.query {
		i := slices.IndexFunc(c.route.query, func(p *huma.Param) bool { return p.Name == name })
		if i < 0 {
			return refused(name, "is no parameter of "+c.route.path)
		}
		if len(values) > 1 && c.route.query[i].Schema.Type != huma.TypeArray {
			return refused(name, "is there twice")
		}
	}
	return nil
}

// word returns a parameter that is one of its words, the first unless it is
// there.
func (c *call) word(name string, words []any) (string, error) {
	if !c.query.Has(name) {
		return words[0].(string), nil
	}
	value := c.query.Get(name)
	if !slices.Contains(words, any(value)) {
		return "", refused(name, fmt.Sprintf("%s is not one of %s", strictjson.Quote(value), strings.Trim(fmt.Sprint(words), "[]")))
	}
	return value, nil
}

// number returns a parameter that is a whole number, zero unless it is there.
func (c *call) number(name string, low, high int) (int, error) {
	if !c.query.Has(name) {
		return 0, nil
	}
	n, err := strconv.Atoi(c.query.Get(name))
	if err != nil || n < low || n > high {
		return 0, refused(name, fmt.Sprintf("%s is not a whole number from %d to %d", strictjson.Quote(c.query.Get(name)), low, high))
	}
	return n, nil
}

// decoder is an input that reads itself.
type decoder interface{ decode(data []byte) error }

// read reads the body of the request into v.
func (c *call) read(v any) error {
	if !c.route.hasBody() {
		return nil
	}
	data, err := c.readBody()
	_, optional := v.(*none)
	switch {
	case err != nil:
		return err
	case optional && len(data) == 0:
		return nil
	case len(data) == 0:
		return refused("body", "is missing")
	}
	if err := checkType(c.r.Header); err != nil {
		return err
	}
	if d, ok := v.(decoder); ok {
		return d.decode(data)
	}
	return strictjson.Unmarshal(data, "body", v)
}

// checkType refuses what a browser sends across origins without asking, and
// what is no JSON anyway.
func checkType(h http.Header) error {
	media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset, has := params["charset"]
	switch {
	case err != nil || media != jsonMedia || len(h.Values("Content-Type")) != 1:
		return kindWrongType.problem("Content-Type is not application/json")
	case has && !strings.EqualFold(charset, "utf-8"):
		return kindWrongType.problem("the charset of Content-Type is not utf-8")
	case h.Get("Content-Encoding") != "":
		return kindWrongType.problem("Content-Encoding is not supported")
	}
	return nil
}

// readBody reads the whole body. Of those over smallBody a few are read at once.
func (c *call) readBody() ([]byte, error) {
	limit := max(c.route.limit, smallBody)
	if c.r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	body := http.MaxBytesReader(c.w, c.r.Body, limit)
	var b bytes.Buffer
	_, err := io.CopyN(&b, body, smallBody)
	if err == nil && limit > smallBody {
		if !c.s.large.enter() {
			return nil, kindTooMany.problem("too many large requests at once")
		}
		defer c.s.large.leave()
		_, err = b.ReadFrom(body)
	} else if err == nil {
		_, err = body.Read(make([]byte, 1)) // io.EOF unless there is more
	}
	if over := (*http.MaxBytesError)(nil); errors.As(err, &over) {
		return nil, tooLarge(limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, kindTooSlow.problem(fmt.Sprintf("the body took longer than %v", c.s.bodyTimeout))
	}
	if err != nil && err != io.EOF {
		return nil, refused("body", "ended early")
	}
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{}) // or it would end a claim that waits
	return b.Bytes(), nil
}

func tooLarge(limit int64) error {
	return kindTooLarge.problem(fmt.Sprintf("the body is over %d bytes", limit))
}

// answer writes v as JSON.
func (c *call) answer(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // a body shows as it is
	if err := enc.Encode(v); err != nil {
		return err
	}
	c.write(jsonMedia, b.Bytes())
	return nil
}

func (c *call) write(media string, body []byte) {
	if c.unsent != nil && c.r.Context().Err() != nil {
		c.unsent() // the client has left
		return
	}
	h := c.w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(c.s.answerTimeout))
	c.w.WriteHeader(c.status)
	_, err := c.w.Write(body)
	if c.unsent == nil {
		return // who left needs no answer
	}
	if err == nil {
		err = http.NewResponseController(c.w).Flush()
	}
	if err != nil { // a client that leaves after the last byte has it
		c.unsent()
	}
}

// jsonNames are the names that fields of requests have in errors of a store.
var jsonNames = map[string]string{"lease": "lease_ms", "delay": "delay_ms", "due": "due_at"}

// asJSON gives the refused value of an error of the store its name in JSON.
func asJSON(err error) error { return renamed(err, jsonNames) }

func renamed(err error, names map[string]string) error {
	var field *dueq.FieldError
	if errors.As(err, &field) && names[field.Field] != "" {
		return &dueq.FieldError{Field: names[field.Field], Reason: field.Reason}
	}
	return err
}

// crowd bounds how many do something at once.
type crowd chan struct{}

func newCrowd(most int) crowd { return make(crowd, most) }

// enter reports false when it is full. Who entered has to leave.
func (c crowd) enter() bool {
	select {
	case c <- struct{}{}:
		return true
	default:
		return false
	}
}

func (c crowd) leave() { <-c }

// limitTime bounds how long the body of a request may take, also one that
// nobody reads: before the answer is done the server reads what is left.
func (s *Server) limitTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.bodyTimeout))
		}
		next.ServeHTTP(w, r)
	})
}

func ptr[T any](v T) *T { return &v }
