package httpapi

import (
	"bufio"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dueq/dueq"
)

// stream is an open stream of hints.
type stream struct {
	*api
	lines *bufio.Scanner
	close func()
}

func (a *api) listen(path string, headers ...string) *stream {
	a.Helper()
	response, err := a.http.Do(a.request("GET", path, nil, headers...))
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/event-stream" {
		a.Fatalf("got %d %s", response.StatusCode, response.Header)
	}
	s := &stream{a, bufio.NewScanner(response.Body), func() { _ = response.Body.Close() }}
	s.wants(": open")
	return s
}

// next returns the next line that is not empty, and nothing at the end.
func (s *stream) next() string {
	for s.lines.Scan() {
		if s.lines.Text() != "" {
			return s.lines.Text()
		}
	}
	return ""
}

func (s *stream) wants(line string) {
	s.Helper()
	if got := s.next(); got != line {
		s.Fatalf("got %q, want %q", got, line)
	}
}

func (a *api) schedule(queue, id string, delay time.Duration) {
	a.Helper()
	if _, err := a.store.Schedule(a.Context(), []dueq.Item{{Queue: queue, Task: dueq.Task{ID: id}, When: dueq.In(delay)}}); err != nil {
		a.Fatal(err)
	}
}

func TestWake_streams_hints(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	all, some := a.listen("/v1/wake"), a.listen("/v1/wake?queue=b&queue=c")
	a.schedule("a", "t", time.Second)
	a.schedule("b", "t", 2*time.Second)
	for _, line := range []string{
		"event: hint", `data: {"queue":"a","due_at":"2026-12-01T08:00:01.000Z"}`,
		"event: hint", `data: {"queue":"b","due_at":"2026-12-01T08:00:02.000Z"}`,
	} {
		all.wants(line)
	}
	some.wants("event: hint")
	some.wants(`data: {"queue":"b","due_at":"2026-12-01T08:00:02.000Z"}`)
}

func TestWake_shows_a_token_its_queues(t *testing.T) {
	t.Parallel()
	a := newAPITest(t, tokens)
	a.do("GET", "/v1/wake", nil).is(401)
	a.do("GET", "/v1/wake?queue=b", nil, "Authorization: Bearer read").is(403)
	s := a.listen("/v1/wake", "Authorization: Bearer read")
	a.schedule("b", "t", time.Second)
	a.schedule("a", "t", time.Second)
	s.wants("event: hint")
	s.wants(`data: {"queue":"a","due_at":"2026-12-01T08:00:01.000Z"}`)
}

func TestWake_says_that_it_is_alive_and_ends_when_the_server_drains(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	a.server.keepAlive = 10 * time.Millisecond
	s := a.listen("/v1/wake")
	s.wants(": alive")
	s.wants(": alive")
	a.server.Drain()
	for s.next() != "" {
	}
	if err := s.lines.Err(); err != nil {
		t.Errorf("the stream broke off: %v", err)
	}
	if text, err := io.ReadAll(a.mustGet("/v1/wake")); err != nil || string(text) != ": open\n\n" {
		t.Errorf("got %q, %v of a server that drains", text, err)
	}
}

func (a *api) mustGet(path string) io.Reader {
	a.Helper()
	response, err := a.http.Do(a.request("GET", path, nil))
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() { _ = response.Body.Close() })
	return response.Body
}

func TestWake_has_room_for_so_many(t *testing.T) {
	t.Parallel()
	a := newAPITest(t, func(o *Options) { o.StreamsMax = 1 })
	a.do("HEAD", "/v1/wake", nil).is(200)
	first := a.listen("/v1/wake")
	r := a.do("GET", "/v1/wake", nil).is(429)
	if r.header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After in %v", r.header)
	}
	first.close()
	deadline := time.Now().Add(10 * time.Second)
	for {
		response, err := a.http.Do(a.request("GET", "/v1/wake", nil))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode == 200 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("there is no room again: %d", response.StatusCode)
		}
	}
}

// A stream holds no connection to the store: all share one Wake, which ends
// with the last.
func TestHints_share_one_wake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &waker{}
		h := &hints{store: store}
		first, leaveFirst, _ := h.join()
		second, leaveSecond, _ := h.join()
		store.hints <- dueq.Hint{Queue: "q"}
		if (<-first).Queue != "q" || (<-second).Queue != "q" || store.wakes != 1 {
			t.Errorf("woke %d times", store.wakes)
		}
		for range 2 * hintBuffer { // nobody reads them
			store.hints <- dueq.Hint{Queue: "q"}
		}
		leaveFirst()
		leaveSecond()
		h.close()
		third, leaveThird, _ := h.join()
		if store.wakes != 2 {
			t.Errorf("woke %d times", store.wakes)
		}
		close(store.hints) // the store ended it
		if _, open := <-third; open {
			t.Error("the channel is open")
		}
		leaveThird()
		h.close()
	})
}

// waker is a store that can do nothing but wake.
type waker struct {
	dueq.Store
	hints chan dueq.Hint
	wakes int
}

func (w *waker) Wake(ctx context.Context) (<-chan dueq.Hint, error) {
	w.wakes++
	from, to := make(chan dueq.Hint), make(chan dueq.Hint)
	w.hints = from
	go func() {
		defer close(to)
		for {
			select {
			case h, open := <-from:
				if !open {
					return
				}
				to <- h
			case <-ctx.Done():
				return
			}
		}
	}()
	return to, nil
}
