package push

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/dueq/dueq"
)

// Bounds of one delivery.
const (
	connectTimeout = 10 * time.Second
	textMax        = 1 << 10         // bytes of an answer that are kept
	drainMax       = 64 << 10        // … that are read further so that the connection can be used again
	bodyPatience   = time.Second     // for the body of an answer, whose status is known by then
	headersMax     = 64 << 10        // bytes of an answer's headers
	idlePerHost    = 100             // connections kept for the next delivery
	idleAll        = 1000            // … to all hosts
	idleTimeout    = 4 * time.Second // below the 5 s of many servers, so that they are seldom closed under a request
)

// newClient returns a client that connects to allowed addresses only, and
// follows no redirect.
func newClient(o Options) *http.Client {
	dialer := &net.Dialer{Timeout: connectTimeout, Control: o.control, Resolver: o.resolver}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  o.Proxy,
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{RootCAs: o.RootCAs},
			TLSHandshakeTimeout:    connectTimeout,
			ForceAttemptHTTP2:      true,
			HTTP2:                  &http.HTTP2Config{SendPingTimeout: connectTimeout, PingTimeout: connectTimeout},
			DisableCompression:     true, // a small answer must not become a large one here
			MaxResponseHeaderBytes: headersMax,
			MaxIdleConns:           idleAll,
			MaxIdleConnsPerHost:    idlePerHost,
			IdleConnTimeout:        idleTimeout,
		},
	}
}

// deliver is the handler: it posts a task and returns the verdict that the
// answer means.
func (p *pusher) deliver(ctx context.Context, t *dueq.Task) error {
	known, _ := p.queues.Load(t.Queue)
	settings := known.(dueq.Settings)
	first := p.firstDue(ctx, t)
	a, err := p.post(ctx, t, settings.Push, first)
	if err != nil {
		return withFirst(first, errors.New(printable(err.Error())))
	}
	return a.verdict(settings, first)
}

// post makes one request. The answer's status decides even if the rest of it
// does not come.
func (p *pusher) post(ctx context.Context, t *dueq.Task, address string, first time.Time) (answer, error) {
	began := time.Now()
	ctx, cancel := p.within(ctx)
	defer cancel()
	req, err := p.request(ctx, t, address, first)
	if err != nil {
		return answer{}, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return answer{}, reason(ctx, err, began)
	}
	defer resp.Body.Close()
	defer time.AfterFunc(bodyPatience, cancel).Stop()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, textMax))
	_, _ = io.CopyN(io.Discard, resp.Body, drainMax)
	return answer{resp.StatusCode, printable(string(text)), retryAfter(resp.Header, time.Now())}, nil
}

// within bounds a delivery, which the queue's timeout bounds already.
func (p *pusher) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.opts.Timeout > 0 {
		return context.WithTimeout(ctx, p.opts.Timeout)
	}
	return context.WithCancel(ctx)
}

func (p *pusher) request(ctx context.Context, t *dueq.Task, address string, first time.Time) (*http.Request, error) {
	signers, err := p.signers(t.Queue)
	if err != nil {
		return nil, fmt.Errorf("queue %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(t.Body))
	if err != nil {
		return nil, err
	}
	contentType := "application/octet-stream"
	if json.Valid(t.Body) {
		contentType = "application/json"
	}
	h := req.Header
	h.Set("Content-Type", contentType)
	h.Set("User-Agent", "dueq/"+escape(p.opts.Version, isVisible))
	h.Set("Dueq-Queue", t.Queue)
	h.Set("Dueq-Id", escape(t.ID, isVisible))
	h.Set("Dueq-Kind", escape(t.Kind, isVisible))
	h.Set("Dueq-Attempt", strconv.Itoa(t.Attempt))
	h.Set("Dueq-Round", strconv.Itoa(t.Round))
	h.Set("Dueq-Due", t.Due.UTC().Format(dueLayout))
	return req, sign(h, messageID(t, first), time.Now(), t.Body, signers)
}

const dueLayout = "2006-01-02T15:04:05.000Z07:00"

// messageID names what is delivered: the same for each attempt, another when
// the task is scheduled again. Its parts are escaped so that neither a slash
// nor the dot, which separates what is signed, can come from the task.
func messageID(t *dueq.Task, first time.Time) string {
	return fmt.Sprintf("%s/%s/%d/%d", escape(t.Queue, isPlain), escape(t.Lease.Member, isPlain), t.Round, first.UnixMilli())
}

// A task's due time is that of its retry after a failure. When it was first due
// is noted in the error that the store keeps, and read from there.
const firstDuePrefix = "first due "

func withFirst(first time.Time, err error) error {
	return fmt.Errorf("%s%s: %w", firstDuePrefix, first.UTC().Format(dueLayout), err)
}

// firstDue returns when the task was due at its first attempt. Where that is
// not known, because a lease ended or the store is away, it is the due time of
// this one.
func (p *pusher) firstDue(ctx context.Context, t *dueq.Task) time.Time {
	if t.Attempt <= 1 {
		return t.Due
	}
	infos, err := p.store.Get(ctx, t.Queue, []string{t.Lease.Member})
	if err != nil {
		return t.Due
	}
	noted, ok := strings.CutPrefix(infos[0].LastError, firstDuePrefix)
	noted, _, _ = strings.Cut(noted, ": ")
	if first, err := time.Parse(dueLayout, noted); ok && err == nil {
		return first
	}
	return t.Due
}

// escape percent-encodes the bytes that are not plain.
func escape(s string, plain func(byte) bool) string {
	var b strings.Builder
	for i := range len(s) {
		if plain(s[i]) {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}

func isVisible(c byte) bool { return c > ' ' && c < 0x7f && c != '%' }

func isPlain(c byte) bool { return isVisible(c) && c != '/' && c != '.' }

// printable escapes what is not printable, so that a log and a terminal show
// it as it is.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

// reason says why there is no answer. It leaves the address out, which may have
// a secret in it.
func reason(ctx context.Context, err error, began time.Time) error {
	if limit, ok := ctx.Deadline(); ok && errors.Is(err, context.DeadlineExceeded) {
		took := min(time.Since(began), limit.Sub(began)) // connecting has a limit of its own
		return fmt.Errorf("no answer within %v", took.Round(10*time.Millisecond))
	}
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
