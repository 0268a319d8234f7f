package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/dueq/dueq"
)

// answerMax bounds what is read of an answer: one body of the longest that a
// queue may have, in base64, and as much again.
const answerMax = 48 << 20

// clientRequest is what a call asks of the server.
type clientRequest struct {
	op     string // the store's method
	queue  string // empty when it is not about one queue
	method string
	path   string // after the server's address, with its query
	in     any    // sent as JSON; nil is nothing
	writes bool   // without an answer it may have happened
}

// do makes a request and reads the answer into out. ctx is one of begin.
func (c *Client) do(ctx context.Context, r clientRequest, out any) error {
	var body []byte
	if r.in != nil {
		var err error
		if body, err = json.Marshal(r.in); err != nil {
			return r.failed(err)
		}
	}
	if ctx.Err() != nil {
		return r.failed(dueq.Unavailable(context.Cause(ctx)))
	}
	answer, sent, err := c.send(ctx, r, body)
	if err != nil {
		return r.unanswered(err, sent)
	}
	return r.read(answer, out)
}

func (r clientRequest) failed(err error) error {
	return &dueq.CallError{Op: r.op, Queue: r.queue, Err: err}
}

// unanswered is the error of a request without an answer that means anything.
func (r clientRequest) unanswered(cause error, sent bool) error {
	return &dueq.CallError{Op: r.op, Queue: r.queue, MayHaveHappened: sent && r.writes, Err: dueq.Unavailable(cause)}
}

// clientAnswer is what a server said.
type clientAnswer struct {
	status int
	kind   string // media type
	body   []byte
}

// send makes one request. When it fails, sent says whether the server may have
// got any of it.
func (c *Client) send(ctx context.Context, r clientRequest, body []byte) (_ clientAnswer, sent bool, err error) {
	var conn connection
	req, err := c.newRequest(httptrace.WithClientTrace(ctx, conn.trace()), r.method, r.path, body)
	if err != nil {
		return clientAnswer{}, false, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return clientAnswer{}, conn.mayHaveSent(), plainCause(ctx, err)
	}
	a, err := readAnswer(res)
	if err != nil {
		return clientAnswer{}, true, plainCause(ctx, err)
	}
	return a, true, nil
}

// readAnswer reads an answer to its end, so that the connection can be used
// again.
func readAnswer(res *http.Response) (clientAnswer, error) {
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, answerMax+1))
	switch {
	case err != nil:
		return clientAnswer{}, err
	case len(text) > answerMax:
		return clientAnswer{}, fmt.Errorf("the answer is over %d bytes", answerMax)
	}
	return clientAnswer{res.StatusCode, mediaType(res.Header), text}, nil
}

func (c *Client) newRequest(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "dueq")
	if c.bearer != "" {
		req.Header.Set("Authorization", c.bearer)
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// connection watches whether a request got as far as having one. A transport
// that does not tell may have sent it.
type connection struct{ asked, given atomic.Bool }

func (c *connection) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { c.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { c.given.Store(true) },
	}
}

func (c *connection) mayHaveSent() bool { return c.given.Load() || !c.asked.Load() }

// plainCause is why a request failed, without the address and method that
// net/http puts before it.
func plainCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

func mediaType(h http.Header) string {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind
}

// read reads an answer into out, or returns the error that it is.
func (r clientRequest) read(a clientAnswer, out any) error {
	switch {
	case a.kind == problemJSON:
		return r.problem(a)
	case a.status/100 == 2 && a.kind == "application/json":
		if err := json.Unmarshal(a.body, out); err != nil {
			return r.unanswered(fmt.Errorf("the answer cannot be read: %w", err), true)
		}
		return nil
	}
	return r.foreign(a)
}

// problem is the error that a server of dueq's answered with.
func (r clientRequest) problem(a clientAnswer) error {
	p := &Problem{}
	if err := json.Unmarshal(a.body, p); err != nil || !strings.HasPrefix(p.Type, typePrefix) {
		return r.foreign(a)
	}
	var cause error = p
	if p.Status >= 500 && p.RequestID != "" { // the server's log has the rest
		cause = fmt.Errorf("%w (request %s)", p, p.RequestID)
	}
	return &dueq.CallError{Op: r.op, Queue: r.queue, MayHaveHappened: p.MayHaveHappened && r.writes, Err: cause}
}

// foreign is the error of an answer that no server of dueq's gives, as a proxy's
// when it does not reach one.
func (r clientRequest) foreign(a clientAnswer) error {
	cause := fmt.Errorf("the answer is %d %s and none of dueq's (%s)", a.status, http.StatusText(a.status), orNothing(a.kind))
	switch {
	case a.status == http.StatusTooManyRequests:
		return r.unanswered(cause, false)
	case a.status/100 == 3:
		return r.failed(fmt.Errorf("%w: redirects are not followed", cause))
	case a.status/100 == 4 && a.status != http.StatusRequestTimeout:
		return r.failed(cause)
	}
	return r.unanswered(cause, true)
}

func orNothing(kind string) string {
	if strings.TrimSpace(kind) == "" {
		return "of no media type"
	}
	return kind
}
