package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/history"
)

// queues are so named that a cluster of three shards has one in each.
var queues = []string{"chaos:a", "chaos:c", "chaos:d"}

const (
	kind     = "k"
	lanes    = 3                     // calls in flight per producer
	pace     = 10 * time.Millisecond // of each
	hot      = 20                    // tasks that all producers fight for
	hotFor   = 200                   // calls of a lane, then others are hot
	maxDelay = 2 * time.Second
)

// produce asks for random things until ctx ends, the same for the same seed
// and name.
func produce(ctx context.Context, client *history.Client, name string, seed uint64) {
	var group sync.WaitGroup
	for i := range lanes {
		l := &lane{client: client, name: fmt.Sprintf("%s-%d", name, i), random: seeded(seed, fmt.Sprint(name, i))}
		group.Go(func() { l.run(ctx) })
	}
	group.Wait()
}

// lane is a producer that makes one call at a time.
type lane struct {
	client *history.Client
	name   string
	random *rand.Rand
	calls  int
	made   []string // ids of its own
}

func (l *lane) run(ctx context.Context) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for ctx.Err() == nil {
		l.call(context.WithoutCancel(ctx))
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// call makes one call. Now and then its caller is in a hurry, and never learns
// what came of it.
func (l *lane) call(ctx context.Context) {
	l.calls++
	what, hurry := l.random.IntN(100), l.random.IntN(50) == 0
	if hurry {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(l.random.IntN(3000))*time.Microsecond)
		defer cancel()
	}
	if what < 60 {
		l.schedule(ctx, l.newID(), l.random.IntN(5) > 0, dueq.Replace)
		return
	}
	id := l.someID()
	if what < 80 {
		l.schedule(ctx, id, true, dueq.IfExists(l.random.IntN(4)))
		return
	}
	l.change(ctx, what, queueOf(id), id+":"+kind)
}

func (l *lane) change(ctx context.Context, what int, queue, member string) {
	switch {
	case what < 88:
		_ = l.client.Cancel(ctx, queue, member)
	case what < 95:
		_ = l.client.Reschedule(ctx, queue, member, dueq.In(l.delay()))
	case what < 97:
		_ = l.client.Stop(ctx, queue, member)
	case what < 98:
		_ = l.client.Delete(ctx, queue, member)
	default:
		_ = l.client.Requeue(ctx, queue, member, dueq.In(l.delay()))
	}
}

// queueOf gives each id a queue.
func queueOf(id string) string { return queues[seeded(0, id).IntN(len(queues))] }

// schedule schedules a task. Its body tells the schedule from all others; a
// task that is new may have none.
func (l *lane) schedule(ctx context.Context, id string, body bool, ifExists dueq.IfExists) {
	task := dueq.Task{ID: id, Kind: kind}
	if body {
		task.Body = fmt.Appendf(nil, "%s-%d", l.name, l.calls)
	}
	_, _ = l.client.Schedule(ctx, queueOf(id), task, dueq.In(l.delay()), ifExists)
}

func (l *lane) delay() time.Duration {
	if l.random.IntN(4) == 0 {
		return 0
	}
	return time.Duration(l.random.Int64N(int64(maxDelay)))
}

func (l *lane) newID() string {
	id := fmt.Sprintf("%s-%d", l.name, l.calls)
	l.made = append(l.made, id)
	return id
}

// someID is that of a task of its own, not long ago, or one of the hot ones.
func (l *lane) someID() string {
	if len(l.made) == 0 || l.random.IntN(2) == 0 {
		return fmt.Sprintf("hot-%d-%d", l.calls/hotFor, l.random.IntN(hot))
	}
	recent := l.made[max(0, len(l.made)-100):]
	return recent[l.random.IntN(len(recent))]
}
