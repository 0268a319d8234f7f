package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dueq/dueq"
)

// How many orders there are of each sort; the rest is closed at once.
const (
	demoOrders      = 240
	demoPoisoned    = 1
	demoFailOnce    = 6
	demoFailTwice   = 4
	demoCancelled   = 12
	demoRescheduled = 12
)

// demo plays producer and worker on two queues, and counts what it sees.
type demo struct {
	store             dueq.Store
	client            *dueq.Client
	orders, reminders string         // queues
	fails             map[string]int // runs of an order that fail, by member; fixed before the worker starts
	plan              []plannedOrder // in the order of scheduling
	began             time.Time      // set before the worker starts
	retries           int            // of the queue, so that deaths can be foreseen

	mu       sync.Mutex           // guards what follows
	seen     demoCounts           // what happened so far
	planned  bool                 // nothing more will be scheduled or cancelled
	soonest  map[string]time.Time // when a task may start at the earliest, by this process' monotonic clock
	verdicts map[dueq.Lease]dueq.Verdict
	reminded time.Time // the last time, at first when it was scheduled
}

type plannedOrder struct {
	task  dueq.Task
	delay time.Duration
	sort  orderSort
}

type orderSort uint8

const (
	closed orderSort = iota
	cancelled
	rescheduled
)

// demoCounts is what was observed.
type demoCounts struct {
	Scheduled, Handled, Cancelled, Dead int
	Rescheduled, Retries, Early         int
	Intervals                           []time.Duration // between reminders
	Drifts                              []time.Duration // of all starts
	Elapsed                             time.Duration
	planned                             bool
}

// left is how many tasks have not come to their end; it is not 0 before all
// are scheduled.
func (c demoCounts) left() int {
	left := c.Scheduled - c.Handled - c.Cancelled - c.Dead
	if !c.planned {
		return max(left, 1)
	}
	return left
}

func (c demoCounts) String() string {
	return fmt.Sprintf("%4.1fs  scheduled %d  handled %d  cancelled %d  retries %d  dead %d  reminders %d  drift p99 %s",
		c.Elapsed.Seconds(), c.Scheduled, c.Handled, c.Cancelled, c.Retries, c.Dead, len(c.Intervals), ms(c.drift(0.99).Microseconds()))
}

// drift returns a quantile of the drifts.
func (c demoCounts) drift(q float64) time.Duration {
	if len(c.Drifts) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(c.Drifts))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func newDemo(store dueq.Store, suffix string) *demo {
	d := &demo{
		store: store, client: dueq.NewClient(store, dueq.ClientOptions{}),
		orders: "order:close" + suffix, reminders: "pay:remind" + suffix,
		fails: map[string]int{}, began: time.Now(), retries: 3,
		soonest: map[string]time.Time{}, verdicts: map[dueq.Lease]dueq.Verdict{},
	}
	for i := range demoOrders {
		order := plannedOrder{task: dueq.Task{ID: fmt.Sprintf("order_%d", 100_000+i), Kind: "pay_timeout"}}
		order.delay, order.sort = d.draw(i, order.task.Member())
		d.plan = append(d.plan, order)
	}
	return d
}

// draw decides what becomes of order i. Those that fail are due early enough
// for their retries, those that are changed late enough for the change.
func (d *demo) draw(i int, member string) (time.Duration, orderSort) {
	fails, sort, from, to := 0, closed, time.Duration(0), 5*time.Second
	for _, group := range []struct {
		size, fails int
		sort        orderSort
		from, to    time.Duration
	}{
		{demoPoisoned, d.retries + 1, closed, 500 * time.Millisecond, 501 * time.Millisecond},
		{demoFailOnce, 1, closed, 0, 4 * time.Second},
		{demoFailTwice, 2, closed, 0, 3 * time.Second},
		{demoCancelled, 0, cancelled, 3 * time.Second, 5 * time.Second},
		{demoRescheduled, 0, rescheduled, 3 * time.Second, 5 * time.Second},
	} {
		if i < group.size {
			fails, sort, from, to = group.fails, group.sort, group.from, group.to
			break
		}
		i -= group.size
	}
	d.fails[member] = fails
	return drawDelay(from, to), sort
}

// set makes failures come back soon, on the queue of orders.
func (d *demo) set(ctx context.Context) error {
	_, err := d.store.SetSettings(ctx, d.orders, dueq.SettingsPatch{
		"retries": fmt.Sprint(d.retries), "retry_first": "300ms", "retry_jitter": "0%",
	})
	return err
}

func (d *demo) worker() *dueq.Worker {
	w := dueq.NewWorker(d.store, dueq.WorkerOptions{
		Logger:   slog.New(slog.DiscardHandler), // failures are part of the play
		Observer: dueq.Observer{Started: d.started, Ended: d.ended, Settled: d.settled},
	})
	remind := dueq.Repeat(dueq.Geometric(time.Second, 2, 0, 10*time.Second, 2))
	w.Handle(d.orders, "pay_timeout", dueq.HandlerFunc(d.closeOrder))
	w.Handle(d.reminders, "pay_reminder", remind(dueq.HandlerFunc(d.remind)))
	return w
}

func (d *demo) closeOrder(_ context.Context, t *dueq.Task) error {
	if t.Attempt <= d.fails[t.Member()] {
		return errors.New("the shop did not answer")
	}
	return nil
}

func (d *demo) remind(context.Context, *dueq.Task) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.seen.Intervals = append(d.seen.Intervals, now.Sub(d.reminded))
	d.reminded = now
	return nil
}

// produce schedules everything, then changes its mind about some.
func (d *demo) produce(ctx context.Context) error {
	if err := d.scheduleAll(ctx); err != nil {
		return err
	}
	for _, order := range d.plan {
		var err error
		switch order.sort {
		case cancelled:
			err = d.cancel(ctx, order.task.Member())
		case rescheduled:
			err = d.reschedule(ctx, order)
		}
		if err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.planned = true
	return nil
}

func (d *demo) scheduleAll(ctx context.Context) error {
	reminder := plannedOrder{task: dueq.Task{ID: "user_7", Kind: "pay_reminder"}, delay: 500 * time.Millisecond}
	items := []dueq.Item{{Queue: d.reminders, Task: reminder.task, When: dueq.In(reminder.delay)}}
	for _, order := range d.plan {
		items = append(items, dueq.Item{Queue: d.orders, Task: order.task, When: dueq.In(order.delay)})
	}
	d.mu.Lock()
	d.reminded = time.Now()
	for _, item := range items {
		d.soonest[item.Task.Member()] = d.reminded.Add(item.When.Delay())
	}
	d.mu.Unlock()
	outcomes, err := d.client.ScheduleAll(ctx, items)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, o := range outcomes {
		if o.Status != dueq.StatusScheduled {
			return fmt.Errorf("%s: %v instead of scheduled: %w", items[i].Task.Member(), o.Status, errors.Join(o.Error()))
		}
		d.seen.Scheduled++
	}
	return nil
}

// cancel and reschedule may come too late on a slow machine; then the order is
// closed like the others.
func (d *demo) cancel(ctx context.Context, member string) error {
	err := d.client.Cancel(ctx, d.orders, member)
	if tooLate(err) {
		return nil
	}
	if err == nil {
		d.count(func(c *demoCounts) { c.Cancelled++ })
	}
	return err
}

func (d *demo) reschedule(ctx context.Context, order plannedOrder) error {
	member, delay := order.task.Member(), drawDelay(time.Second, 4*time.Second)
	d.mu.Lock()
	later := time.Now().Add(delay)
	if later.Before(d.soonest[member]) {
		d.soonest[member] = later
	}
	d.mu.Unlock()
	err := d.client.Reschedule(ctx, d.orders, member, dueq.In(delay))
	if tooLate(err) {
		return nil
	}
	if err == nil {
		d.count(func(c *demoCounts) { c.Rescheduled++; d.soonest[member] = later })
	}
	return err
}

func tooLate(err error) bool {
	return errors.Is(err, dueq.ErrNotFound) || errors.Is(err, dueq.ErrRunning)
}

func (d *demo) count(f func(*demoCounts)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.seen)
}

func (d *demo) counts() demoCounts {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.seen
	c.Intervals, c.Drifts = slices.Clone(c.Intervals), slices.Clone(c.Drifts)
	c.Elapsed, c.planned = time.Since(d.began), d.planned
	return c
}

// started counts a start as early by the store's clock, and the first one of a
// task also by the clock of this process: no delay may have been cut short.
func (d *demo) started(t *dueq.Task, drift time.Duration) {
	d.count(func(c *demoCounts) {
		c.Drifts = append(c.Drifts, drift)
		first := t.Attempt == 1 && t.Round == 0
		if drift < 0 || first && time.Now().Before(d.soonest[t.Member()]) {
			c.Early++
		}
	})
}

func (d *demo) ended(t *dueq.Task, v dueq.Verdict, _ time.Duration, _ error) {
	d.count(func(*demoCounts) { d.verdicts[t.Lease] = v })
}

func (d *demo) settled(t *dueq.Task, o dueq.Outcome) {
	d.count(func(c *demoCounts) {
		v := d.verdicts[t.Lease]
		delete(d.verdicts, t.Lease)
		switch {
		case o.Status == dueq.StatusSuperseded:
			c.Handled++ // a cancel came while it ran
		case o.Status != dueq.StatusDone:
		case v == dueq.VerdictAck:
			c.Handled++
		case v == dueq.VerdictDead, v == dueq.VerdictRetry && t.Attempt > d.retries:
			c.Dead++
		case v == dueq.VerdictRetry:
			c.Retries++
		}
	})
}

// check compares what was observed with what the store counted, and reports
// the first thing that is not as it must be.
func (d *demo) check(ctx context.Context, c demoCounts) error {
	all, err := d.store.Stats(ctx, d.orders, d.reminders)
	if err != nil {
		return err
	}
	var sum dueq.QueueStats
	for _, s := range all {
		sum.Scheduled += s.Scheduled
		sum.Active += s.Active
		sum.Dead += s.Dead
		sum.Totals.Scheduled += s.Totals.Scheduled
		sum.Totals.Acked += s.Totals.Acked
		sum.Totals.Superseded += s.Totals.Superseded
		sum.Totals.Cancelled += s.Totals.Cancelled
		sum.Totals.Died += s.Totals.Died
		sum.Totals.Retried += s.Totals.Retried
	}
	for _, pair := range []struct {
		what      string
		got, want int
	}{
		{"tasks left", c.left(), 0},
		{"early starts", c.Early, 0},
		{"still scheduled in the store", int(sum.Scheduled), 0},
		{"still active in the store", int(sum.Active), 0},
		{"dead letters in the store", int(sum.Dead), c.Dead},
		{"scheduled by the store's count", int(sum.Totals.Scheduled), c.Scheduled},
		{"handled by the store's count", int(sum.Totals.Acked + sum.Totals.Superseded), c.Handled},
		{"cancelled by the store's count", int(sum.Totals.Cancelled), c.Cancelled},
		{"died by the store's count", int(sum.Totals.Died), c.Dead},
		{"retried by the store's count", int(sum.Totals.Retried), c.Retries},
	} {
		if pair.got != pair.want {
			return fmt.Errorf("it does not add up: %d %s, want %d", pair.got, pair.what, pair.want)
		}
	}
	return nil
}

// cleanUp empties the queues and takes the settings back, also after an
// interrupt.
func (d *demo) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, queue := range []string{d.orders, d.reminders} {
		for _, state := range []dueq.State{dueq.StateScheduled, dueq.StateDead} {
			_ = d.empty(ctx, queue, state)
		}
	}
	_, _ = d.store.SetSettings(ctx, d.orders, dueq.SettingsPatch{
		"retries": dueq.Default, "retry_first": dueq.Default, "retry_jitter": dueq.Default,
	})
}

func (d *demo) empty(ctx context.Context, queue string, state dueq.State) error {
	for {
		page, err := d.store.List(ctx, dueq.ListQuery{Queue: queue, State: state, Limit: dueq.MaxItems})
		if err != nil || len(page.Tasks) == 0 {
			return err
		}
		targets := make([]dueq.Target, len(page.Tasks))
		for i, t := range page.Tasks {
			targets[i].Member = t.Member
		}
		if _, err := d.store.Change(ctx, queue, dueq.OpDelete, targets); err != nil {
			return err
		}
	}
}

// drawDelay draws a delay of whole milliseconds.
func drawDelay(from, to time.Duration) time.Duration {
	return (from + rand.N(to-from)).Truncate(time.Millisecond)
}
