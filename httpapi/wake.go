package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
)

func (s *Server) wakeRoute() {
	s.define(route{
		group: "Queues", id: "wake", method: http.MethodGet, path: "/v1/wake",
		summary: "Hints that a queue has a new earliest task, as server-sent events",
		note: `Events are named hint; their data is {"queue":"order:close","due_at":"2026-12-01T08:00:00.000Z"}, with due_at null when only settings changed.
Hints may be lost or repeated: they only make a sleeper look sooner.`,
		scopes: []Scope{ScopeRead}, query: []*huma.Param{queueParam}, crowded: true, media: []string{"text/event-stream"},
	}, reflect.TypeFor[none](), reflect.TypeFor[none](), s.wake)
}

func (s *Server) wake(c *call) error {
	names, err := c.namedQueues()
	if err != nil {
		return err
	}
	if !s.streams.enter() {
		return kindTooMany.problem("too many streams are open already")
	}
	defer s.streams.leave()
	hints, leave, err := s.hints.join()
	if err != nil {
		return err
	}
	defer leave()
	wanted := func(queue string) bool {
		return c.caller.sees(queue) && (len(names) == 0 || slices.Contains(names, queue))
	}
	c.stream(hints, wanted)
	return nil
}

// stream writes hints until the client leaves or the server drains.
func (c *call) stream(hints <-chan dueq.Hint, wanted func(queue string) bool) {
	c.w.Header().Set("Content-Type", "text/event-stream")
	c.w.WriteHeader(c.status)
	alive := time.NewTicker(c.s.keepAlive)
	defer alive.Stop()
	text := ": open\n\n"
	for {
		if c.r.Method == http.MethodHead || c.send(text) != nil {
			return
		}
		text = ""
		for text == "" {
			select {
			case <-c.r.Context().Done():
				return
			case <-c.s.draining:
				return
			case <-alive.C:
				text = ": alive\n\n"
			case h, open := <-hints:
				if !open {
					return // the store ended it; the client comes back
				}
				if wanted(h.Queue) {
					text = event(h)
				}
			}
		}
	}
}

func event(h dueq.Hint) string {
	due := view.Instant(h.Due)
	if h.Due.UnixMilli() == 0 {
		due = view.Instant{}
	}
	data, err := json.Marshal(hint{h.Queue, due})
	if err != nil {
		panic(err) // of texts
	}
	return fmt.Sprintf("event: hint\ndata: %s\n\n", data)
}

// send writes a part of an answer that goes on.
func (c *call) send(text string) error {
	control := http.NewResponseController(c.w)
	_ = control.SetWriteDeadline(time.Now().Add(c.s.answerTimeout))
	if _, err := c.w.Write([]byte(text)); err != nil {
		return err
	}
	return control.Flush()
}
