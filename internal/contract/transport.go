package contract

import (
	"bytes"
	"io"
	"net/http"
	"testing"
)

// transport holds all that goes through it against a contract.
type transport struct {
	*Contract
	t    testing.TB
	next http.RoundTripper
}

// Transport returns one for an http.Client of t: each answer that breaks the
// contract fails t. Answers are read to their end first, but for streams of
// events, of which nothing is read.
func (c *Contract) Transport(t testing.TB, next http.RoundTripper) http.RoundTripper {
	return &transport{c, t, next}
}

// RoundTrip implements http.RoundTripper.
func (c *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	if err != nil {
		return response, err
	}
	var body []byte
	if response.Header.Get("Content-Type") != "text/event-stream" {
		body, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
		response.Body = io.NopCloser(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
	}
	sent, err := sentBody(request)
	if err != nil {
		return nil, err
	}
	if err := c.Check(request, sent, response, body); err != nil {
		c.t.Errorf("%s %s: %d %s: %v", request.Method, request.URL, response.StatusCode, body, err)
	}
	return response, nil
}

// CloseIdleConnections lets a server that closes not wait for this client.
func (c *transport) CloseIdleConnections() {
	if closer, ok := c.next.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// sentBody is the body of a request that was sent, if it can be read twice.
func sentBody(request *http.Request) ([]byte, error) {
	if request.GetBody == nil {
		return nil, nil
	}
	again, err := request.GetBody()
	if err != nil {
		return nil, err
	}
	defer again.Close()
	return io.ReadAll(again)
}
