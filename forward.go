package dueq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Forwarder is a Store that can move due tasks to where consumers in any
// language take them: a list for BLPOP or a stream for XREADGROUP.
type Forwarder interface {
	// Forward moves up to req.Max due tasks of one queue, earliest due first, to
	// the end of a list or stream, and does all else that a claim does. What was
	// moved is gone from the queue with its body, failures and rounds: no lease,
	// no retry and no dead letter follow. A task that is active, claimed by a
	// worker, waits for the end of its run.
	//
	// An element of a list is the member and, if there is a body, a newline and
	// the body. An entry of a stream has the fields member, due_ms (Unix ms) and,
	// if there is one, body.
	//
	// Errors: ErrInvalid naming the destination if it holds something else, if
	// it is a key of the store's own, or if it cannot be written in one step with
	// the queue; nothing has changed then. After ErrUnavailable that may have
	// happened the tasks may be at their destination and gone from the queue;
	// they are in exactly one of the two, so nothing need be repeated.
	Forward(ctx context.Context, req ForwardRequest) (Forwarded, error)
}

// ForwardRequest asks for due tasks to be moved.
type ForwardRequest struct {
	Queue       string
	Max         int    // 0 to MaxItems; zero moves no task but does all else
	Destination string // list:KEY or stream:KEY; without :KEY the queue's own key
}

// Forwarded is the answer to a ForwardRequest.
type Forwarded struct {
	Count    int           // tasks moved
	Wait     time.Duration // until a task is due or a lease ends; -1 if there is neither
	Now      time.Time     // the store's clock
	Previous time.Time     // when anybody claimed or forwarded before, by the store's clock; zero if never
	Paused   bool          // the queue hands out nothing
}

// ForwardOptions configure Forward.
type ForwardOptions struct {
	// To is list:KEY or stream:KEY; without :KEY it is the queue's own key. Empty
	// means the queue's setting forward, as it is at any moment.
	To     string
	ID     string       // names the forwarder in logs; defaults to host-pid-random
	Logger *slog.Logger // defaults to slog.Default()
	// Observer is told of calls to the store; of those with op forward n is how
	// many tasks were moved. Its other functions are not called.
	Observer Observer
}

// Forward moves tasks of one queue to a list or stream as they come due, until
// ctx ends; then it returns nil. Several forwarders of one queue share the work,
// and workers may take tasks beside them. A call moves at most the queue's
// batch.
//
// It returns ErrInvalid if the store has no lists and streams, or if the
// destination does not do when it begins, and what the store says about missing
// rights. A store that is away is no reason to return, nor is a destination
// that ceases to do: that is logged, tasks stay in the queue, and Forward tries
// again.
func Forward(ctx context.Context, store Store, queue string, opts ForwardOptions) error {
	forwarder, ok := store.(Forwarder)
	if !ok {
		return &FieldError{"store", fmt.Sprintf("is a %T, which has no lists and streams to forward to", store)}
	}
	f := &forwarding{store, forwarder, opts.To}
	if _, err := f.Claim(ctx, ClaimRequest{Queue: queue}); err != nil && !errors.Is(err, ErrUnavailable) {
		return err
	}
	w := NewWorker(f, WorkerOptions{
		ID: opts.ID, Logger: opts.Logger, Observer: Observer{Call: opts.Observer.Call},
		Concurrency: MaxItems, // the batch is the bound
	})
	w.op, w.base = "forward", context.WithoutCancel(ctx)
	w.lanes[queue] = newLane(w, queue)
	w.log.Info("forwarder started", "queue", queue, "to", opts.To)
	w.work(ctx)
	w.log.Info("forwarder stopped", "queue", queue)
	return nil
}

// forwarding is a store whose claims move tasks and return none, so that a
// Worker plans them.
type forwarding struct {
	Store
	forwarder Forwarder
	to        string
}

func (f *forwarding) Claim(ctx context.Context, req ClaimRequest) (Claim, error) {
	to := f.to
	if to == "" {
		settings, err := f.Settings(ctx, req.Queue)
		if err != nil && !errors.Is(err, ErrInvalid) {
			return Claim{}, err
		}
		if to = settings.Forward; to == "" {
			return Claim{}, &CallError{Op: "forward", Queue: req.Queue, Err: &FieldError{"destination", "is missing: the queue's setting forward is off"}}
		}
	}
	got, err := f.forwarder.Forward(ctx, ForwardRequest{Queue: req.Queue, Max: req.Max, Destination: to})
	return Claim{Wait: got.Wait, Now: got.Now, Previous: got.Previous, Paused: got.Paused, moved: got.Count}, err
}
