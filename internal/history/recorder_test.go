package history

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
)

// What a client, a worker and its handlers do comes out of a stream as one
// history.
func TestRecorder_of_another_process(t *testing.T) {
	t.Parallel()
	var stream bytes.Buffer
	out := NewStream("w1", &stream)
	store := memstore.New(memstore.Options{})
	client := NewClient(out, store, false)
	_, err := client.Schedule(t.Context(), q, dueq.Task{ID: "a", Kind: "k", Body: []byte("1")}, dueq.In(0), dueq.Replace)
	must(t, err)
	runOnce(t, out, store)
	if err := client.Cancel(t.Context(), q, name); !errors.Is(err, dueq.ErrNotFound) {
		t.Fatalf("cancel: got %v, want not found", err)
	}
	must(t, out.Err())

	in := NewRecorder("test")
	for line := range bytes.Lines(stream.Bytes()) {
		must(t, in.Add(line))
	}
	h := in.History(Final{})
	schedule, cancel := h.Calls[0], h.Calls[len(h.Calls)-1]
	if !schedule.applied() || schedule.Key != taskA || schedule.Mark != "1" || schedule.Process != "w1" {
		t.Errorf("schedule: got %+v", schedule)
	}
	if cancel.Do != Cancel || !cancel.done(dueq.StatusNotFound) {
		t.Errorf("cancel: got %+v, want it answered not found", cancel)
	}
	d := h.Deliveries[0]
	settled := d.settled()
	if !d.final() || settled == nil || d.Mark != "1" {
		t.Fatalf("delivery: got %+v, want it to have ended and been settled", d)
	}
	order := []Instant{schedule.Asked, schedule.Answered, d.Answered, d.Started, d.Ended, settled.Asked, settled.Answered, cancel.Asked}
	for i := 1; i < len(order); i++ {
		if order[i] < order[i-1] {
			t.Errorf("instants: got %v, want them in order", order)
		}
	}
	if r := Check(h); len(r.Findings) > 0 {
		t.Errorf("got %v", r.Findings)
	}
}

// runOnce runs a worker until the queue is empty.
func runOnce(t *testing.T, rec *Recorder, store dueq.Store) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	w := dueq.NewWorker(Watch(rec, store), dueq.WorkerOptions{
		Logger:   slog.New(slog.NewTextHandler(io.Discard, nil)),
		Observer: dueq.Observer{Settled: func(*dueq.Task, dueq.Outcome) { stop() }},
	})
	w.Use(rec.Handler)
	w.Handle(q, "k", dueq.HandlerFunc(func(context.Context, *dueq.Task) error { return nil }))
	must(t, w.Run(ctx))
}

func TestRecorder_a_call_without_an_answer_may_have_happened(t *testing.T) {
	t.Parallel()
	rec := NewRecorder("test")
	other := rec.As("producer")
	other.asked(Call{Do: Schedule, Key: taskA, Mark: "1"})
	if err := rec.Add([]byte(`{"Answered":{"ID":"producer/1","Ans`)); err == nil {
		t.Error("half a line was taken")
	}
	h := rec.History(Final{})
	if c := h.Calls[0]; c.known() || c.Process != "producer" || c.ID != "producer/1" {
		t.Errorf("got %+v, want a call nobody knows the end of", c)
	}
	if r := Check(h); r.Unknown != 1 || len(r.Findings) > 0 {
		t.Errorf("got %+v, want one unknown", r)
	}
}

func TestRecorder_tells_of_a_stream_that_broke(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	must(t, r.CloseWithError(io.ErrClosedPipe))
	rec := NewStream("w1", w)
	rec.Fault(Fault{Kind: "x"})
	if err := rec.Err(); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v, want the error of the pipe", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
