package dueq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dueq/dueq"
)

// mover is a store whose destination is a slice: what it forwards it claims at
// most once.
type mover struct {
	*tap
	mu   sync.Mutex // guards what follows
	sent []moved
	to   string // where the last call was to move
}

type moved struct {
	id string
	at time.Time
}

func newMover(t *testing.T) *mover {
	t.Helper()
	store, _ := newTap()
	set(t, store, "q", dueq.SettingsPatch{"delivery": "at_most_once", "forward": "list:set"})
	return &mover{tap: store}
}

func (m *mover) Forward(ctx context.Context, req dueq.ForwardRequest) (dueq.Forwarded, error) {
	c, err := tapped(m.tap, "forward", req.Queue, func() (dueq.Claim, error) {
		return m.Store.Claim(ctx, dueq.ClaimRequest{Queue: req.Queue, Max: req.Max})
	}, func(c dueq.Claim) int { return len(c.Tasks) })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.to = req.Destination
	for _, task := range c.Tasks {
		m.sent = append(m.sent, moved{task.ID, time.Now()})
	}
	return dueq.Forwarded{Count: len(c.Tasks), Wait: c.Wait, Now: c.Now, Previous: c.Previous, Paused: c.Paused}, err
}

func (m *mover) all() []moved {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]moved(nil), m.sent...)
}

func (m *mover) last() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.to
}

// came expects so many tasks, each once.
func (m *mover) came(t *testing.T, n int) {
	t.Helper()
	ids := map[string]bool{}
	for _, one := range m.all() {
		ids[one.id] = true
	}
	if len(ids) != n || len(m.all()) != n {
		t.Errorf("%d tasks came %d times, want %d once", len(ids), len(m.all()), n)
	}
}

// forward starts a forwarder, which stops when the test ends, if not before.
func forward(t *testing.T, store dueq.Store, opts dueq.ForwardOptions) *running {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &running{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = dueq.Forward(ctx, store, "q", opts)
	}()
	t.Cleanup(func() {
		if err := r.wait(t); err != nil {
			t.Errorf("Forward: %v", err)
		}
	})
	synctest.Wait()
	return r
}

func TestForwardSleepsUntilSomethingIsDue(t *testing.T) {
	bubble(t, "and moves it at that moment", func(t *testing.T) {
		m := newMover(t)
		forward(t, m, dueq.ForwardOptions{To: "list"})
		began := time.Now()
		due := map[string]time.Duration{"a": 0, "b": time.Millisecond, "c": 10 * time.Second, "d": 10*time.Second + time.Millisecond}
		for id, d := range due {
			schedule(t, m, "q", id, dueq.In(d))
		}
		pass(time.Minute)
		m.came(t, len(due))
		for _, one := range m.all() {
			if late := one.at.Sub(began) - due[one.id]; late < 0 || late > time.Millisecond {
				t.Errorf("%s came %v after it was due", one.id, late)
			}
		}
		if n := m.count("forward", "stats"); n > 80 {
			t.Errorf("%d calls in a minute, want about one a second", n)
		}
	})
	bubble(t, "and finds within a second what nobody announces", func(t *testing.T) {
		m := newMover(t)
		m.deaf = true
		forward(t, m, dueq.ForwardOptions{To: "list"})
		pass(time.Minute)
		added := time.Now()
		schedule(t, m, "q", "a", dueq.In(0))
		pass(2 * time.Second)
		m.came(t, 1)
		if late := m.all()[0].at.Sub(added); late > time.Second+50*time.Millisecond {
			t.Errorf("came after %v", late)
		}
		// Among others it is sooner.
		schedule(t, m, "q", "b", dueq.In(0))
		added = time.Now()
		pass(2 * time.Second)
		if late := m.all()[1].at.Sub(added); late > time.Second {
			t.Errorf("came after %v", late)
		}
	})
	bubble(t, "and works off a backlog in batches without a pause", func(t *testing.T) {
		m := newMover(t)
		m.tap.before = func(string, string) error { time.Sleep(time.Millisecond); return nil }
		set(t, m, "q", dueq.SettingsPatch{"batch": "700"})
		scheduleMany(t, m, "q", 7000, dueq.In(0))
		var sum atomic.Int64
		began := time.Now()
		forward(t, m, dueq.ForwardOptions{To: "list", Observer: dueq.Observer{Call: func(op, queue string, n int, _ time.Duration, err error) {
			if op == "forward" && queue == "q" && err == nil {
				sum.Add(int64(n))
			}
		}}})
		pass(time.Minute)
		m.came(t, 7000)
		if took := m.all()[6999].at.Sub(began); took > 200*time.Millisecond {
			t.Errorf("took %v", took)
		}
		if got := len(m.log(func(c tapCall) bool { return c.op == "forward" && c.n == 700 })); got != 10 {
			t.Errorf("%d calls moved 700 tasks, want 10", got)
		}
		if sum.Load() != 7000 {
			t.Errorf("the observer was told of %d tasks", sum.Load())
		}
	})
	bubble(t, "and several share the work without racing for each task", func(t *testing.T) {
		m := newMover(t)
		for range 8 {
			forward(t, m, dueq.ForwardOptions{To: "list"})
		}
		began := time.Now()
		const n = 200
		for i := range n {
			schedule(t, m, "q", fmt.Sprint(i), dueq.In(time.Duration(i+1)*100*time.Millisecond))
		}
		pass(30 * time.Second)
		m.came(t, n)
		for i, one := range m.all() {
			if late := one.at.Sub(began) - time.Duration(i+1)*100*time.Millisecond; late > 20*time.Millisecond {
				t.Errorf("task %s came %v late", one.id, late)
			}
		}
		if calls := m.count("forward"); calls > 3*n {
			t.Errorf("%d calls by eight forwarders for %d tasks", calls, n)
		}
	})
}

func TestForwardFollowsTheSetting(t *testing.T) {
	bubble(t, "within a second, and stops while it is off", func(t *testing.T) {
		m := newMover(t)
		forward(t, m, dueq.ForwardOptions{})
		if m.last() != "list:set" {
			t.Errorf("moves to %q, want what is set", m.last())
		}
		set(t, m, "q", dueq.SettingsPatch{"forward": "stream:other"})
		pass(time.Second)
		schedule(t, m, "q", "a", dueq.In(0))
		pass(time.Second)
		if m.last() != "stream:other" {
			t.Errorf("moves to %q, want what is set now", m.last())
		}
		set(t, m, "q", dueq.SettingsPatch{"forward": "off"})
		pass(2 * time.Second)
		schedule(t, m, "q", "b", dueq.In(0))
		pass(time.Minute)
		m.came(t, 1)
		set(t, m, "q", dueq.SettingsPatch{"forward": "list"})
		pass(2 * time.Second)
		m.came(t, 2)
	})
	bubble(t, "unless it is told where to", func(t *testing.T) {
		m := newMover(t)
		forward(t, m, dueq.ForwardOptions{To: "stream:mine"})
		if m.last() != "stream:mine" {
			t.Errorf("moves to %q", m.last())
		}
	})
}

func TestForwardBeginsOnlyWhereItCan(t *testing.T) {
	refused := &dueq.CallError{Op: "forward", Err: &dueq.FieldError{Field: "destination", Reason: "is a zset"}}
	denied := errors.New("NOPERM")
	for name, want := range map[string]error{"not where something else lies": refused, "not without rights": denied} {
		bubble(t, name, func(t *testing.T) {
			m := newMover(t)
			m.tap.before = func(string, string) error { return want }
			if err := dueq.Forward(t.Context(), m, "q", dueq.ForwardOptions{To: "list"}); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
	bubble(t, "not where the setting is off", func(t *testing.T) {
		m := newMover(t)
		set(t, m, "q", dueq.SettingsPatch{"forward": "off"})
		if err := dueq.Forward(t.Context(), m, "q", dueq.ForwardOptions{}); !errors.Is(err, dueq.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
	})
	bubble(t, "but waits for a store that is away", func(t *testing.T) {
		m := newMover(t)
		schedule(t, m, "q", "a", dueq.In(0))
		began := time.Now()
		m.tap.before = func(op, _ string) error {
			if time.Since(began) < time.Minute {
				return unavailable(op, false)
			}
			return nil
		}
		log := &logCounter{}
		forward(t, m, dueq.ForwardOptions{Logger: slog.New(log)})
		pass(time.Minute)
		if calls := m.count("forward", "settings", "stats"); calls > 150 {
			t.Errorf("%d calls in a minute", calls)
		}
		if lines := log.of("WARN"); lines == 0 || lines > 8 {
			t.Errorf("%d warnings in a minute, want one per ten seconds", lines)
		}
		pass(3 * time.Second)
		m.came(t, 1)
	})
}

func TestForwardOutlivesADestinationThatCeasesToDo(t *testing.T) {
	bubble(t, "says so now and then, and goes on", func(t *testing.T) {
		m := newMover(t)
		var wrong atomic.Bool
		m.tap.before = func(op, _ string) error {
			if op == "forward" && wrong.Load() {
				return &dueq.CallError{Op: op, Err: &dueq.FieldError{Field: "destination", Reason: "is a zset"}}
			}
			return nil
		}
		log := &logCounter{}
		forward(t, m, dueq.ForwardOptions{To: "list", Logger: slog.New(log)})
		wrong.Store(true)
		schedule(t, m, "q", "a", dueq.In(0))
		pass(time.Minute)
		m.came(t, 0)
		if lines := log.of("WARN"); lines < 5 || lines > 8 {
			t.Errorf("%d warnings in a minute, want one per ten seconds", lines)
		}
		if calls := m.count("forward"); calls > 150 {
			t.Errorf("%d calls in a minute", calls)
		}
		wrong.Store(false)
		pass(2 * time.Second)
		m.came(t, 1)
	})
}

func TestForwardStopsAfterTheCallInFlight(t *testing.T) {
	bubble(t, "and nothing is moved after it", func(t *testing.T) {
		m := newMover(t)
		m.tap.after = func(op, _ string) error {
			if op == "forward" {
				time.Sleep(300 * time.Millisecond)
			}
			return nil
		}
		r := forward(t, m, dueq.ForwardOptions{To: "list"})
		pass(time.Second)
		schedule(t, m, "q", "a", dueq.In(0))
		pass(100 * time.Millisecond)
		began := time.Now()
		if err := r.wait(t); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 200*time.Millisecond {
			t.Errorf("stopped after %v, want the 200 ms that the call took", took)
		}
		schedule(t, m, "q", "b", dueq.In(0))
		pass(time.Minute)
		m.came(t, 1)
	})
}
