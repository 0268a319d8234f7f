package dueq_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

// logBuffer is a log that a worker writes while a test reads.
type logBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSuffix(l.b.String(), "\n"), "\n")
}

const forged = "x\nlevel=ERROR msg=forged\r\x1b[2J"

// misbehave ends each run in another of the ways that reach the log.
func misbehave(_ context.Context, t *dueq.Task) error {
	switch t.ID {
	case "panics":
		panic(forged)
	case "dead":
		return dueq.Dead(errors.New(forged))
	}
	return errors.New(forged)
}

func TestWorkerLogsOneLineForEachEventWhateverTasksSay(t *testing.T) {
	options := &slog.HandlerOptions{Level: slog.LevelDebug}
	for name, handler := range map[string]func(*logBuffer) slog.Handler{
		"text": func(l *logBuffer) slog.Handler { return slog.NewTextHandler(l, options) },
		"JSON": func(l *logBuffer) slog.Handler { return slog.NewJSONHandler(l, options) },
	} {
		bubble(t, "as "+name, func(t *testing.T) {
			store, _ := newTap()
			log := &logBuffer{}
			poisoned := false
			store.before = func(op, _ string) error {
				if poisoned && op == "claim" {
					return errors.New(forged)
				}
				return nil
			}
			r := on(t, store, dueq.WorkerOptions{Logger: slog.New(handler(log))}, misbehave)
			for _, id := range []string{"panics", "dead", "fails"} {
				schedule(t, store, "q", id, dueq.In(0))
			}
			pass(time.Minute)
			poisoned = true
			schedule(t, store, "q", "late", dueq.In(0))
			pass(time.Minute)
			poisoned = false
			if err := r.wait(t); err != nil {
				t.Error(err)
			}
			lines, told := log.lines(), 0
			for _, line := range lines {
				if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' }) || strings.HasPrefix(line, "level=ERROR") {
					t.Errorf("a line that can be taken for another: %q", line)
				}
				if name == "JSON" && !json.Valid([]byte(line)) {
					t.Errorf("not JSON: %q", line)
				}
				if strings.Contains(line, "forged") {
					told++
				}
			}
			if told < 2 {
				t.Errorf("only %d lines tell the errors, too few to mean anything:\n%s", told, strings.Join(lines, "\n"))
			}
		})
	}
}

func TestWorkerTakesNamesAsTheyAreWritten(t *testing.T) {
	bubble(t, "letters of another case are another kind and another queue", func(t *testing.T) {
		store, _ := newTap()
		var mu sync.Mutex
		ran := map[string]string{}
		note := func(where string) dueq.HandlerFunc {
			return func(_ context.Context, t *dueq.Task) error {
				mu.Lock()
				defer mu.Unlock()
				ran[t.Queue+"/"+t.ID] = where
				return nil
			}
		}
		start(t, store, dueq.WorkerOptions{}, func(w *dueq.Worker) {
			for _, queue := range []string{"CamelCase", "camelcase"} {
				for _, kind := range []string{"Close", "close", "CLOSE"} {
					w.Handle(queue, kind, note(queue+"/"+kind))
				}
			}
		})
		client := dueq.NewClient(store, dueq.ClientOptions{})
		want := map[string]string{}
		for _, queue := range []string{"CamelCase", "camelcase"} {
			for _, kind := range []string{"Close", "close", "CLOSE"} {
				if _, err := client.Schedule(t.Context(), queue, dueq.Task{ID: "Id" + kind, Kind: kind}, dueq.In(0)); err != nil {
					t.Fatal(err)
				}
				want[queue+"/Id"+kind] = queue + "/" + kind
			}
		}
		pass(time.Second)
		mu.Lock()
		defer mu.Unlock()
		if len(ran) != len(want) {
			t.Errorf("%d ran, want %d: %v", len(ran), len(want), ran)
		}
		for id, handler := range want {
			if ran[id] != handler {
				t.Errorf("%s was handled by %q, want %q", id, ran[id], handler)
			}
		}
	})
	bubble(t, "and none for no name", func(t *testing.T) {
		store, _ := newTap()
		client := dueq.NewClient(store, dueq.ClientOptions{})
		for field, call := range map[string]func() error{
			"queue": func() error {
				_, err := client.Schedule(t.Context(), "", dueq.Task{ID: "a"}, dueq.In(0))
				return err
			},
			"id": func() error { _, err := client.Schedule(t.Context(), "q", dueq.Task{}, dueq.In(0)); return err },
			"id contains white space": func() error {
				_, err := client.Schedule(t.Context(), "q", dueq.Task{ID: " "}, dueq.In(0))
				return err
			},
		} {
			if err := call(); !errors.Is(err, dueq.ErrInvalid) || !strings.Contains(err.Error(), field) {
				t.Errorf("%s: got %v, want ErrInvalid naming it", field, err)
			}
		}
	})
}
