package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dueq/dueq"
)

// ClientOptions configure a Client.
type ClientOptions struct {
	// Token is the secret that the server knows the caller by. Empty is none,
	// unless the URL has one.
	Token string
	// Timeout bounds each call, whatever its context. At least 10 ms; defaults
	// to 3 s, which is more than a server needs to learn that its own store is
	// away.
	Timeout time.Duration
	// HTTP sends the requests. Its time-out is not used and redirects are not
	// followed. Defaults to a client of its own, which speaks HTTP/1.1 and heeds
	// HTTP_PROXY, HTTPS_PROXY and NO_PROXY.
	HTTP *http.Client
}

// Client is a dueq.Store on a server of dueq's HTTP API. It is safe for
// concurrent use.
//
// Every request is sent once; only one that reads may be repeated, and that
// only when a connection that was kept open turns out to be gone. What the
// server answers with ErrUnavailable, and all that is no answer of dueq's, as
// a proxy's 502, 503 or 504, is ErrUnavailable here. The error of a server that
// failed names the request as the server's log does.
type Client struct {
	base    string // the server's address, without a slash at the end
	bearer  string // value of the Authorization header; empty is none
	timeout time.Duration
	http    *http.Client
	owned   bool // the client's connections are ours to close

	suspect  atomic.Bool // it left a claim unanswered
	settings settingsCache

	closing chan struct{}  // closed by Close
	mu      sync.Mutex     // guards closed, and is held to begin a call
	closed  bool           // no call begins any more
	calls   sync.WaitGroup // calls and streams under way
}

var _ dueq.Store = (*Client)(nil)

// Open returns the store on the server at an address of the form
//
//	http[s]://[:TOKEN@]HOST[:PORT][/PATH]
//
// where PATH is what a proxy in front of the server needs. It does not connect:
// what is wrong with server or token is the error of the first call, or of Check.
//
// Errors: a *dueq.FieldError that names store, token or timeout. No error shows
// the token.
func Open(address string, opts ClientOptions) (*Client, error) {
	base, token, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	opts.Token = cmp.Or(token, opts.Token)
	if err := opts.validate(); err != nil {
		return nil, err
	}
	c := &Client{base: base, timeout: cmp.Or(opts.Timeout, defaultTimeout), closing: make(chan struct{})}
	if opts.Token != "" {
		c.bearer = "Bearer " + opts.Token
	}
	c.http = opts.HTTP
	if c.owned = c.http == nil; c.owned {
		c.http = &http.Client{Transport: newTransport()}
	}
	c.http = withoutRedirects(c.http)
	return c, nil
}

const defaultTimeout = 3 * time.Second

func (o ClientOptions) validate() error {
	if o.Timeout != 0 && o.Timeout < 10*time.Millisecond {
		return &dueq.FieldError{Field: "timeout", Reason: fmt.Sprintf("%v is under 10ms", o.Timeout)}
	}
	for i := range len(o.Token) {
		if o.Token[i] <= ' ' || o.Token[i] >= 0x7f {
			return &dueq.FieldError{Field: "token", Reason: "has white space, control or other characters that no token has"}
		}
	}
	return nil
}

// parseAddress takes an address apart. Its errors show nothing of what stands
// where a token might.
func parseAddress(address string) (base, token string, err error) {
	wrong := func(reason string, args ...any) (string, string, error) {
		return "", "", &dueq.FieldError{Field: "store", Reason: fmt.Sprintf(reason, args...)}
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "" {
		return wrong("is not http://HOST:PORT or https://HOST:PORT")
	}
	if u.User.Username() != "" {
		return wrong("has a user, but a token stands alone, after a colon: %s://:TOKEN@HOST", u.Scheme)
	}
	if u.ForceQuery || u.RawQuery != "" {
		name, _, named := strings.Cut(u.RawQuery, "=")
		if !named {
			return wrong("has something after ?, and %s:// takes no parameters", u.Scheme)
		}
		return wrong("has the parameter %.40q, and %s:// takes none", name, u.Scheme)
	}
	if u.Fragment != "" || strings.Contains(address, "#") {
		return wrong("has a fragment, after #, which means nothing here")
	}
	token, _ = u.User.Password()
	u.User = nil
	return strings.TrimRight(u.String(), "/"), token, nil
}

// How connections are kept. A server must keep idle ones for longer than this,
// or a request may be lost on one that it is just closing.
const (
	idlePerHost = 64
	idleFor     = 15 * time.Second
)

// newTransport makes connections that carry one request at a time: one that
// timed out is thrown away with its connection, so a network that swallows
// packets costs no more than the calls under way.
func newTransport() *http.Transport {
	var versions http.Protocols
	versions.SetHTTP1(true)
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		Protocols:           &versions,
		MaxIdleConnsPerHost: idlePerHost,
		IdleConnTimeout:     idleFor,
		DisableCompression:  true,
	}
}

// withoutRedirects is a client that takes a redirect for the answer. To follow
// one would send the token, and what is to be done, to an address that nobody
// named.
func withoutRedirects(client *http.Client) *http.Client {
	own := *client
	own.Timeout = 0
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}

// begin lets a call begin and bounds it; its errors are those of r. end must be
// called when it is over.
func (c *Client) begin(ctx context.Context, r clientRequest) (bounded context.Context, end func(), err error) {
	if err := c.enter(ctx); err != nil {
		return nil, nil, r.failed(err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, c.late())
	return ctx, func() {
		cancel()
		c.calls.Done()
	}, nil
}

// late is why a call ends that takes too long.
func (c *Client) late() error {
	return fmt.Errorf("no answer within %v: %w", c.timeout, context.DeadlineExceeded)
}

// enter counts a call among those under way, unless it cannot begin.
func (c *Client) enter(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return dueq.ErrClosed
	}
	if ctx.Err() != nil {
		return dueq.Unavailable(context.Cause(ctx))
	}
	c.calls.Add(1)
	return nil
}

// Check finds out that the server is there, that it is one of dueq's, and that it
// knows the token.
//
// Errors: ErrUnavailable, or what the server says.
func (c *Client) Check(ctx context.Context) error {
	r := clientRequest{op: "check", method: http.MethodGet, path: "/openapi.json"}
	ctx, end, err := c.begin(ctx, r)
	if err != nil {
		return err
	}
	defer end()
	var got struct{ Info struct{ Title string } }
	if err := c.do(ctx, r, &got); err != nil {
		return err
	}
	if got.Info.Title != apiTitle {
		return r.failed(fmt.Errorf("the server at %s has the API %.40q, not %s", c.base, got.Info.Title, apiTitle))
	}
	return nil
}

// Close waits for the calls under way, which the time-out bounds, and ends the
// hints of Wake.
func (c *Client) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	if !closed {
		close(c.closing)
	}
	c.calls.Wait()
	if c.owned {
		c.http.CloseIdleConnections()
	}
	return nil
}
