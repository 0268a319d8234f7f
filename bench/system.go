package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// System is a delay queue as its users write it: through its own public
// interface, with its own defaults. Methods are called from many goroutines.
type System interface {
	// Schedule puts one task into its queue, and returns when it is stored.
	Schedule(ctx context.Context, t *Task) error
	// Work handles the due tasks of so many queues until ctx ends, up to slots at
	// once, and acknowledges each whose handle returned.
	Work(ctx context.Context, queues, slots int, handle func(member string)) error
	// Left counts the tasks that are still there, in whatever state.
	Left(ctx context.Context) (int64, error)
	Close() error
}

// Batcher is a System with a batch form.
type Batcher interface {
	ScheduleAll(ctx context.Context, tasks []*Task) error
}

// Claimer is a System that can take many due tasks at once.
type Claimer interface {
	// Claim takes up to max due tasks of queue 0, without acknowledging.
	Claim(ctx context.Context, max int) (Claimed, error)
}

// Claimed is what a Claim took. Ack acknowledges it.
type Claimed struct {
	Members []string
	Ack     func(ctx context.Context) error
}

// Counter is a System that knows how often it asked for work.
type Counter interface{ Claims() int64 }

// Task is one task as every system gets it.
type Task struct {
	Queue  int    // always 0 but for dueq
	ID     string // its member up to the colon
	Member string // 28 bytes
	Due    time.Time
	After  time.Duration // if not zero, due is so long after the call instead
	Body   []byte        // nil is none
}

// kind names the handler; with it a member is 28 bytes.
const kind = "pay_timeout"

func memberOf(i int) string { return fmt.Sprintf("order_%010d:%s", i, kind) }

// indexOf reads what memberOf wrote.
func indexOf(member string) (int, error) {
	if len(member) < 16 {
		return 0, fmt.Errorf("member %q is not one of ours", member)
	}
	return strconv.Atoi(member[6:16])
}

func queueName(i int) string { return "order:close" + strconv.Itoa(i) }

// delay is how long until t is due, for systems that take only that.
func (t *Task) delay() time.Duration {
	if t.After > 0 {
		return t.After
	}
	return time.Until(t.Due)
}

// milli is when t is due, for systems that take only that.
func (t *Task) milli() int64 {
	if t.After > 0 {
		return time.Now().Add(t.After).UnixMilli() + 1
	}
	return t.Due.UnixMilli()
}
