package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/httpapi"
	"github.com/dueq/dueq/memstore"
)

// streams is a server of hints whose streams say what a test wants.
type streams struct {
	url  string
	say  chan string   // to the stream that is open; it was written when the send returned
	end  chan struct{} // ends it
	open chan struct{} // one for each that was opened
}

func serveStreams(t *testing.T) *streams {
	t.Helper()
	s := &streams{say: make(chan string), end: make(chan struct{}), open: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		open := s.open
		for {
			select {
			case open <- struct{}{}:
				open = nil
			case text := <-s.say:
				_, _ = io.WriteString(w, text)
				_ = http.NewResponseController(w).Flush()
			case <-s.end:
				return
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func next(t *testing.T, hints <-chan dueq.Hint) dueq.Hint {
	t.Helper()
	select {
	case h, ok := <-hints:
		if !ok {
			t.Fatal("the hints have ended")
		}
		return h
	case <-time.After(30 * time.Second):
		t.Fatal("no hint came")
	}
	panic("unreachable")
}

func TestWakeReadsEvents(t *testing.T) {
	t.Parallel()
	s := serveStreams(t)
	hints, err := open(t, s.url, httpapi.ClientOptions{}).Wake(t.Context())
	must(t, err)
	<-s.open
	s.say <- ": hello\n\nevent: hint\ndata: not JSON\n\ndata: {\"queue\":\"no queue\",\"due_at\":null}\n\n: half an eve"
	s.say <- "nt\r\n\r\nid: 3\nevent: hint\r\ndata: {\"queue\":\"a:b\",\"due_at\":\"2026-12-01T08:00:00.123Z\"}\n\n"
	s.say <- "event: hint\ndata:{\"queue\":\"c\",\"due_at\":null,\"later\":\"field\"}\n\n"
	if h := next(t, hints); h.Queue != "a:b" || !h.Due.Equal(time.Date(2026, 12, 1, 8, 0, 0, 123e6, time.UTC)) {
		t.Errorf("got %v", h)
	}
	if h := next(t, hints); h.Queue != "c" || h.Due.UnixMilli() != 0 {
		t.Errorf("got %v, want the hint of changed settings, due 0", h)
	}
}

func TestWakeOpensABrokenStreamAgain(t *testing.T) {
	t.Parallel()
	s := serveStreams(t)
	hints, err := open(t, s.url, httpapi.ClientOptions{}).Wake(t.Context())
	must(t, err)
	for i := range 3 {
		<-s.open
		if i == 1 { // a line without an end is no reason to wait for one
			s.say <- "data: " + strings.Repeat("x", 1<<16)
			continue
		}
		s.say <- fmt.Sprintf("data: {\"queue\":\"q%d\",\"due_at\":null}\n\n", i)
		if h := next(t, hints); h.Queue != fmt.Sprint("q", i) {
			t.Errorf("got %v, want q%d", h, i)
		}
		s.end <- struct{}{}
	}
}

func TestWakeEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c *httpapi.Client, cancel func()){
		"with its context":    func(_ *httpapi.Client, cancel func()) { cancel() },
		"when it is closed":   func(c *httpapi.Client, _ func()) { c.Close() },
		"with the one or two": func(c *httpapi.Client, cancel func()) { go cancel(); c.Close() },
	} {
		for _, broken := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, broken %v", name, broken), func(t *testing.T) {
				t.Parallel()
				s := serveStreams(t)
				c := open(t, s.url, httpapi.ClientOptions{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				hints, err := c.Wake(ctx)
				must(t, err)
				<-s.open
				if broken {
					s.end <- struct{}{}
				}
				end(c, cancel)
				select {
				case _, open := <-hints:
					if open {
						t.Error("a hint came")
					}
				case <-time.After(30 * time.Second):
					t.Error("the channel stays open")
				}
			})
		}
	}
}

func TestWakeDropsHintsOfASlowReader(t *testing.T) {
	t.Parallel()
	s := serveStreams(t)
	hints, err := open(t, s.url, httpapi.ClientOptions{}).Wake(t.Context())
	must(t, err)
	<-s.open
	for range 100 {
		s.say <- strings.Repeat("data: {\"queue\":\"q\",\"due_at\":null}\n\n", 10)
	}
	s.end <- struct{}{}
	<-s.open // so the first stream was read to its end
	n := 0
	for {
		select {
		case <-hints:
			n++
			continue
		default:
		}
		break
	}
	if n == 0 || n > 500 {
		t.Errorf("%d hints waited, want some of 1,000", n)
	}
}

func TestWakeFails(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{403: nil, 503: dueq.ErrUnavailable} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"type":"urn:dueq:problem:x","title":"No hints for you","status":%d,"retryable":%v}`, status, status == 503)
		}))
		t.Cleanup(s.Close)
		_, err := open(t, s.URL, httpapi.ClientOptions{}).Wake(t.Context())
		if err == nil || errors.Is(err, dueq.ErrUnavailable) != (want != nil) || !strings.Contains(err.Error(), "No hints for you") {
			t.Errorf("%d: got %v", status, err)
		}
	}
}

// A connection that nobody reset, with a server behind it that is gone.
func TestWakeGivesUpAStreamThatFallsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var streams atomic.Int64
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			alive := time.NewTicker(15 * time.Second)
			defer alive.Stop()
			if streams.Add(1) == 1 {
				alive.Stop() // and never says anything again
			}
			for {
				if _, err := io.WriteString(w, ": alive\n\n"); err != nil || http.NewResponseController(w).Flush() != nil {
					return
				}
				select {
				case <-alive.C:
				case <-r.Context().Done():
					return
				}
			}
		})
		client := &http.Client{Transport: pipeTransport(t, handler)}
		c, err := httpapi.Open("http://server", httpapi.ClientOptions{HTTP: client})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		_, err = c.Wake(ctx)
		must(t, err)
		time.Sleep(30 * time.Second)
		if n := streams.Load(); n != 1 {
			t.Errorf("after 30 s of silence there were %d streams, want 1", n)
		}
		time.Sleep(30 * time.Second)
		if n := streams.Load(); n != 2 {
			t.Errorf("after a minute there were %d streams, want a second one", n)
		}
		time.Sleep(10 * time.Minute)
		if n := streams.Load(); n != 2 {
			t.Errorf("%d streams, want still the second, which shows that it is alive", n)
		}
		cancel()
		must(t, c.Close())
	})
}

// pipeTransport reaches a handler over connections in memory, which live in the
// bubble of a test.
func pipeTransport(t *testing.T, handler http.Handler) *http.Transport {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: handler}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		near, far := net.Pipe()
		select {
		case l.conns <- far:
			return near, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		<-served
	})
	return transport
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	close(l.closed)
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func TestSettingsAreReadOnceASecondAndWhenTheyChanged(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	var reads atomic.Int64
	counted := &counting{RoundTripper: http.DefaultTransport, seen: func(r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/settings") {
			reads.Add(1)
		}
	}}
	address := serve(t, store, httpapi.Options{})
	c := open(t, address, httpapi.ClientOptions{HTTP: &http.Client{Transport: counted}})
	began := time.Now()
	for range 1000 {
		_, err := c.Settings(t.Context(), "q")
		must(t, err)
	}
	if n, most := reads.Load(), 2+int64(time.Since(began)/(900*time.Millisecond)); n == 0 || n > most {
		t.Errorf("%d reads for 1,000 looks, want at most %d", n, most)
	}
	s, err := c.SetSettings(t.Context(), "q", dueq.SettingsPatch{"retries": "9"})
	must(t, err)
	if again, err := c.Settings(t.Context(), "q"); err != nil || again != s || s.Retries != 9 {
		t.Errorf("after setting %+v: got %+v, %v", s, again, err)
	}
	_, err = store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"retries": "7"}) // by another process
	must(t, err)
	eventually(t, "seeing the change of another", func() bool {
		s, err := c.Settings(t.Context(), "q")
		return err == nil && s.Retries == 7
	})
}

// counting tells of every request.
type counting struct {
	http.RoundTripper
	seen func(r *http.Request)
}

func (c *counting) over(next http.RoundTripper) http.RoundTripper {
	c.RoundTripper = next
	return c
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.seen(r)
	return c.RoundTripper.RoundTrip(r)
}
