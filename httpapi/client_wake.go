package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/dueq/dueq"
)

const (
	wakeBuffer  = 256              // hints waiting for a slow reader; more are dropped
	wakeSilence = 40 * time.Second // after which a stream is given up; servers send something more often
	wakeRetry   = time.Second      // between attempts to have a stream again, on average
	wakeDenied  = time.Minute      // … when the server refuses
	wakeLine    = 4 << 10          // longest line of a stream, in bytes
)

// Wake implements dueq.Store. When it returns, the server is listening. A stream
// that breaks is opened again until ctx ends; what was announced meanwhile is
// lost.
func (c *Client) Wake(ctx context.Context) (<-chan dueq.Hint, error) {
	if err := c.enter(ctx); err != nil {
		return nil, wakeRequest.failed(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.openStream(ctx)
	if err != nil {
		cancel()
		c.calls.Done()
		return nil, err
	}
	c.calls.Add(1)
	go func() {
		defer c.calls.Done()
		defer cancel()
		select {
		case <-c.closing:
		case <-ctx.Done():
		}
	}()
	hints := make(chan dueq.Hint, wakeBuffer)
	go func() {
		defer c.calls.Done()
		defer close(hints)
		c.follow(ctx, stream, hints)
	}()
	return hints, nil
}

var wakeRequest = clientRequest{op: "wake", method: http.MethodGet, path: "/v1/wake"}

// follow passes hints on until ctx ends, from as many streams as it takes.
func (c *Client) follow(ctx context.Context, s *hintStream, hints chan<- dueq.Hint) {
	for wait := wakeRetry; ; {
		if s != nil {
			s.each(func(h dueq.Hint) { c.pass(h, hints) })
			s.close()
		}
		timer := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		var err error
		s, err = c.openStream(ctx)
		if wait = wakeRetry; err != nil && !errors.Is(err, dueq.ErrUnavailable) {
			wait = wakeDenied
		}
	}
}

// pass hands a hint to whoever reads. One with due 0 says that settings changed.
func (c *Client) pass(h dueq.Hint, hints chan<- dueq.Hint) {
	if h.Due.UnixMilli() == 0 {
		c.settings.forget(h.Queue)
	}
	select {
	case hints <- h:
	default:
	}
}

// hintStream is an answer of the server that goes on: server-sent events.
type hintStream struct {
	body     io.ReadCloser
	patience *time.Timer // ends the request when nothing comes
	cancel   context.CancelCauseFunc
}

// openStream asks for hints. The answer must begin within the time-out.
func (c *Client) openStream(ctx context.Context) (*hintStream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &hintStream{cancel: cancel}
	s.patience = time.AfterFunc(c.timeout, func() { cancel(c.late()) })
	err := s.open(ctx, c)
	if err == nil {
		s.patience.Reset(wakeSilence)
		return s, nil
	}
	s.patience.Stop()
	cancel(nil)
	return nil, err
}

func (s *hintStream) open(ctx context.Context, c *Client) error {
	req, err := c.newRequest(ctx, wakeRequest.method, wakeRequest.path, nil)
	if err != nil {
		return wakeRequest.failed(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := c.http.Do(req)
	if err != nil {
		return wakeRequest.unanswered(plainCause(ctx, err), false)
	}
	if res.StatusCode == http.StatusOK && mediaType(res.Header) == "text/event-stream" {
		s.body = res.Body
		return nil
	}
	a, err := readAnswer(res)
	if err != nil {
		return wakeRequest.unanswered(plainCause(ctx, err), false)
	}
	if err := wakeRequest.read(a, &struct{}{}); err != nil {
		return err
	}
	return wakeRequest.foreign(a)
}

func (s *hintStream) close() {
	s.patience.Stop()
	s.cancel(nil)
	_ = s.body.Close()
}

// each reads events until the stream ends. Whatever comes shows that the server
// is there.
func (s *hintStream) each(tell func(dueq.Hint)) {
	lines := bufio.NewScanner(s.body)
	lines.Buffer(nil, wakeLine)
	for lines.Scan() {
		s.patience.Reset(wakeSilence)
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue
		}
		var h hint
		if json.Unmarshal(data, &h) == nil && dueq.ValidateQueue(h.Queue) == nil {
			tell(dueq.Hint{Queue: h.Queue, Due: hintDue(h)})
		}
	}
}

func hintDue(h hint) time.Time {
	if due := instantOf(h.DueAt); !due.IsZero() {
		return due
	}
	return time.UnixMilli(0)
}
