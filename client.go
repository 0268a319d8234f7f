package dueq

import (
	"context"
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
)

// ClientOptions configure a Client.
type ClientOptions struct {
	MemberMax int // longest member in bytes, 1 to MemberMax; defaults to DefaultMemberMax
}

// Client schedules tasks and changes them. It is safe for concurrent use:
// Schedule calls from many goroutines share round trips.
type Client struct {
	store     Store
	memberMax int
	calls     sync.Pool // of *call; per client, since synctest forbids sharing channels between bubbles
	seed      maphash.Seed

	mu      sync.Mutex // guards what follows
	pending [2][]*call // those of one id all in the same half, so that they stay in order
	sending [2]bool    // a goroutine is in send for this half
}

// call is one Schedule waiting for its share of a round trip. done receives
// once, from whoever took the call out of pending.
type call struct {
	item    Item
	outcome Outcome
	err     error
	done    chan struct{}
}

// NewClient returns a Client of store, which stays the caller's to close. It
// panics if an option is out of bounds.
func NewClient(store Store, opts ClientOptions) *Client {
	limit := opts.MemberMax
	if limit == 0 {
		limit = DefaultMemberMax
	}
	if limit < 1 || limit > MemberMax {
		panic(fmt.Sprintf("dueq: ClientOptions.MemberMax %d is not 1 to %d", limit, MemberMax))
	}
	c := &Client{store: store, memberMax: limit, seed: maphash.MakeSeed()}
	c.calls.New = func() any { return &call{done: make(chan struct{}, 1)} }
	return c
}

// Schedule puts one task into a queue. If it is scheduled already it is
// replaced, unless an IfExists says otherwise. The outcome's Status is
// StatusScheduled, StatusReplaced, StatusKept, or StatusRunning if the task
// runs now and will run once more.
//
// Errors: ErrInvalid, ErrTooLarge, ErrUnavailable. When ctx ends first, the
// error is ErrUnavailable; if it has CallError.MayHaveHappened the task may
// be stored, otherwise it is not.
func (c *Client) Schedule(ctx context.Context, queue string, t Task, when When, ifExists ...IfExists) (Outcome, error) {
	item := Item{Queue: queue, Task: t, When: when}
	if len(ifExists) > 0 {
		item.IfExists = ifExists[0]
	}
	if err := c.validate(item); err != nil {
		return Outcome{Status: StatusRefused, Err: err}, err
	}
	if ctx.Err() != nil {
		return Outcome{}, &CallError{Op: "schedule", Queue: queue, Err: Unavailable(context.Cause(ctx))}
	}
	w := c.enqueue(item)
	select {
	case <-w.done:
		return c.result(w)
	case <-ctx.Done():
		return c.leave(ctx, w)
	}
}

// ScheduleAll schedules many tasks, of any queues, in order, and returns one
// outcome each. What is wrong with one item is in its outcome and does not
// keep the others. After an error the outcomes known so far are returned, the
// rest have StatusUnknown.
func (c *Client) ScheduleAll(ctx context.Context, items []Item) ([]Outcome, error) {
	outcomes := make([]Outcome, len(items))
	good := make([]Item, 0, len(items))
	place := make([]int, 0, len(items)) // of each good item among items
	for i, item := range items {
		if err := c.validate(item); err != nil {
			outcomes[i] = Outcome{Status: StatusRefused, Err: err}
			continue
		}
		good, place = append(good, item), append(place, i)
	}
	for start := 0; start < len(good); start += MaxItems {
		end := min(start+MaxItems, len(good))
		got, err := c.store.Schedule(ctx, good[start:end])
		for i, o := range got {
			outcomes[place[start+i]] = o
		}
		if err != nil {
			return outcomes, err
		}
	}
	return outcomes, nil
}

// Cancel takes a scheduled task away. ErrRunning says that it is running: a
// later schedule is taken away and this run is its last, however it ends.
// ErrDead and ErrNotFound say that there was nothing to cancel.
func (c *Client) Cancel(ctx context.Context, queue, member string) error {
	return c.change(ctx, queue, OpCancel, Target{Member: member})
}

// Stop is Cancel that ends a running task too: its handler's context ends when
// its worker next renews the lease, and nothing of the task is left.
func (c *Client) Stop(ctx context.Context, queue, member string) error {
	return c.change(ctx, queue, OpStop, Target{Member: member})
}

// Reschedule gives a scheduled task a new due time, counted from now.
// ErrRunning, ErrDead and ErrNotFound say that it is not scheduled.
func (c *Client) Reschedule(ctx context.Context, queue, member string, when When) error {
	return c.change(ctx, queue, OpReschedule, Target{Member: member, When: when})
}

// Requeue schedules a dead letter again with no failures. If the task is
// scheduled already, the schedule stays and the dead letter goes.
func (c *Client) Requeue(ctx context.Context, queue, member string, when When) error {
	return c.change(ctx, queue, OpRequeue, Target{Member: member, When: when})
}

// Delete takes a task away in any state but active.
func (c *Client) Delete(ctx context.Context, queue, member string) error {
	return c.change(ctx, queue, OpDelete, Target{Member: member})
}

// Get looks a task up. Errors: ErrNotFound, ErrInvalid, ErrUnavailable.
func (c *Client) Get(ctx context.Context, queue, member string) (Info, error) {
	infos, err := c.store.Get(ctx, queue, []string{member})
	if err != nil {
		return Info{}, err
	}
	if infos[0].State == StateNone {
		return infos[0], &CallError{Op: "get", Queue: queue, Err: ErrNotFound}
	}
	return infos[0], nil
}

func (c *Client) change(ctx context.Context, queue string, op Op, target Target) error {
	outcomes, err := c.store.Change(ctx, queue, op, []Target{target})
	if err != nil {
		return err
	}
	err = outcomes[0].Error()
	if outcomes[0].Status == StatusRunning {
		err = ErrRunning
	}
	if err == nil {
		return nil
	}
	return &CallError{Op: op.String(), Queue: queue, Err: err}
}

func (c *Client) validate(item Item) error {
	if err := ValidateQueue(item.Queue); err != nil {
		return err
	}
	if err := item.Task.Validate(c.memberMax); err != nil {
		return err
	}
	return item.When.Validate()
}

// enqueue adds an item to the next round trip and sees that somebody sends it.
func (c *Client) enqueue(item Item) *call {
	w := c.calls.Get().(*call)
	w.item = item
	half := c.half(item)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending[half] = append(c.pending[half], w)
	c.start(half)
	return w
}

func (c *Client) half(item Item) int { return int(maphash.String(c.seed, item.Task.ID) & 1) }

// worthTrip is how many calls begin a round trip beside another. Sharing one
// spares both sides work, but with many callers the store need not wait while
// a batch is put together or handed out.
const worthTrip = 16

// start has a half sent, unless it is, or will be with the other. Called with
// mu held.
func (c *Client) start(half int) {
	if c.sending[half] || c.sending[1-half] && len(c.pending[half]) < worthTrip {
		return
	}
	c.sending[half] = true
	go c.send(half)
}

// take returns the calls of the next round trip: of both halves if they are
// few, otherwise of the fuller one, none if they had better go with those of
// the other half that is sent now. Called with mu held.
func (c *Client) take(half int, batch []*call) (halves []int, calls []*call) {
	switch other := 1 - half; {
	case c.sending[other] && len(c.pending[half]) < worthTrip:
		return nil, nil
	case !c.sending[other] && len(c.pending[half])+len(c.pending[other]) < 2*worthTrip:
		halves = []int{half, other}
	case !c.sending[other] && len(c.pending[other]) > len(c.pending[half]):
		halves = []int{other}
	default:
		halves = []int{half}
	}
	for _, h := range halves {
		batch = append(batch, c.pending[h]...)
		clear(c.pending[h])
		c.pending[h] = c.pending[h][:0]
	}
	for _, h := range halves {
		c.sending[h] = len(batch) > 0
	}
	return halves, batch
}

// send makes round trips until nothing is pending or the other half is sent
// too. The calls share them, so their contexts do not govern it: the store's
// time-out does.
func (c *Client) send(half int) {
	var batch []*call
	var items []Item
	halves := []int{half}
	for {
		runtime.Gosched() // callers that were just answered join in
		c.mu.Lock()
		for _, h := range halves {
			c.sending[h] = false
		}
		halves, batch = c.take(half, batch[:0])
		if len(batch) > 0 && len(halves) == 1 {
			half = halves[0]
			c.start(1 - half)
		}
		c.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		items = items[:0]
		for _, w := range batch {
			items = append(items, w.item)
		}
		for start := 0; start < len(batch); start += MaxItems {
			end := min(start+MaxItems, len(batch))
			outcomes, err := c.store.Schedule(context.Background(), items[start:end])
			deliver(batch[start:end], outcomes, err)
		}
		clear(batch)
		clear(items)
	}
}

func deliver(batch []*call, outcomes []Outcome, err error) {
	for i, w := range batch {
		w.outcome, w.err = Outcome{}, err
		if i < len(outcomes) && outcomes[i].Status != StatusUnknown {
			w.outcome, w.err = outcomes[i], outcomes[i].Error()
		}
		w.done <- struct{}{}
	}
}

func (c *Client) result(w *call) (Outcome, error) {
	outcome, err := w.outcome, w.err
	w.item, w.outcome, w.err = Item{}, Outcome{}, nil
	c.calls.Put(w)
	return outcome, err
}

// leave gives up waiting: a call not sent yet is taken back, so that it is
// certain not to happen.
func (c *Client) leave(ctx context.Context, w *call) (Outcome, error) {
	queue := w.item.Queue
	if c.takeBack(w) {
		return Outcome{}, &CallError{Op: "schedule", Queue: queue, Err: Unavailable(context.Cause(ctx))}
	}
	select {
	case <-w.done: // the answer came just now
		return c.result(w)
	default:
		return Outcome{}, mayHaveHappened("schedule", queue, ctx)
	}
}

func (c *Client) takeBack(w *call) bool {
	half := c.half(w.item)
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.pending[half], w)
	if i < 0 {
		return false
	}
	c.pending[half] = slices.Delete(c.pending[half], i, i+1)
	return true
}
