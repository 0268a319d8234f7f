package dueq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dueq/dueq"
)

// slowly makes every call of op take d, whatever its context.
func slowly(store *tap, op string, d time.Duration) {
	store.before = func(called, _ string) error {
		if called == op {
			time.Sleep(d)
		}
		return nil
	}
}

func TestClientSchedules(t *testing.T) {
	bubble(t, "for many goroutines by few calls, each with its own outcome", func(t *testing.T) {
		store, _ := newTap()
		slowly(store, "schedule", 10*time.Millisecond)
		c := dueq.NewClient(store, dueq.ClientOptions{})
		var group sync.WaitGroup
		for i := range 2500 {
			group.Go(func() {
				due := time.UnixMilli(2_000_000_000_000 + int64(i))
				got, err := c.Schedule(t.Context(), "q", dueq.Task{ID: fmt.Sprint(i)}, dueq.At(due))
				if err != nil || got.Status != dueq.StatusScheduled || !got.Due.Equal(due) {
					t.Errorf("task %d: %+v, %v; want due %v", i, got, err, due)
				}
			})
		}
		group.Wait()
		calls := store.log(func(c tapCall) bool { return c.op == "schedule" })
		if len(calls) > 10 {
			t.Errorf("%d calls", len(calls))
		}
		for _, call := range calls {
			if call.n > dueq.MaxItems {
				t.Errorf("a call of %d items", call.n)
			}
		}
	})
	bubble(t, "by two calls at a time, by one if there are few or all of one id", func(t *testing.T) {
		for _, row := range []struct{ callers, ids, want int32 }{{1, 1, 1}, {16, 16, 1}, {128, 1, 1}, {128, 128, 2}} {
			store, _ := newTap()
			var now, most atomic.Int32
			store.before = func(string, string) error {
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(10 * time.Millisecond)
				now.Add(-1)
				return nil
			}
			c := dueq.NewClient(store, dueq.ClientOptions{})
			var group sync.WaitGroup
			for i := range row.callers {
				group.Go(func() {
					if _, err := c.Schedule(t.Context(), "q", dueq.Task{ID: fmt.Sprint(i % row.ids)}, dueq.In(0)); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			group.Wait()
			if most.Load() != row.want {
				t.Errorf("%d callers, %d ids: %d calls at once, want %d", row.callers, row.ids, most.Load(), row.want)
			}
			if n := store.count("schedule"); row.callers == 16 && n != 2 {
				t.Errorf("%d callers: %d calls, want the first one's and one for all others", row.callers, n)
			}
		}
	})
	bubble(t, "those that all came for one id while another's was sent", func(t *testing.T) {
		for range 20 { // each client divides the ids anew
			store, _ := newTap()
			slowly(store, "schedule", 10*time.Millisecond)
			c := dueq.NewClient(store, dueq.ClientOptions{})
			var group sync.WaitGroup
			for i := range 41 {
				group.Go(func() {
					id := []string{"first", "others"}[min(i, 1)]
					if _, err := c.Schedule(t.Context(), "q", dueq.Task{ID: id}, dueq.In(0)); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			group.Wait()
		}
	})
	bubble(t, "the same task in the order of the calls, however long each takes", func(t *testing.T) {
		const ids, each = 20, 50
		store, _ := newTap()
		var calls atomic.Int64
		store.before = func(string, string) error {
			time.Sleep(time.Second - time.Duration(calls.Add(1))*time.Millisecond)
			return nil
		}
		c := dueq.NewClient(store, dueq.ClientOptions{})
		var group sync.WaitGroup
		for i := range ids * each {
			group.Go(func() {
				_, err := c.Schedule(t.Context(), "q", dueq.Task{ID: fmt.Sprint(i % ids), Body: fmt.Append(nil, i)}, dueq.In(time.Hour))
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			time.Sleep(5 * time.Millisecond)
		}
		group.Wait()
		for i := range ids {
			if got, want := string(get(t, store, "q", fmt.Sprint(i)).Body), fmt.Sprint(ids*(each-1)+i); got != want {
				t.Errorf("%d has body %s, want that of the last call, %s", i, got, want)
			}
		}
	})
	bubble(t, "one caller's in order", func(t *testing.T) {
		store, _ := newTap()
		slowly(store, "schedule", time.Millisecond)
		c := dueq.NewClient(store, dueq.ClientOptions{})
		var group sync.WaitGroup
		for g := range 20 {
			group.Go(func() {
				id := fmt.Sprint("g", g)
				for i := range 30 {
					got, err := c.Schedule(t.Context(), "q", dueq.Task{ID: id, Body: fmt.Append(nil, i)}, dueq.In(time.Hour))
					want := dueq.StatusReplaced
					if i == 0 {
						want = dueq.StatusScheduled
					}
					if err != nil || got.Status != want {
						t.Errorf("%s %d: %v, %v; want %v", id, i, got.Status, err, want)
					}
				}
			})
		}
		group.Wait()
		for g := range 20 {
			if got := get(t, store, "q", fmt.Sprint("g", g)); string(got.Body) != "29" {
				t.Errorf("g%d has body %q, want 29", g, got.Body)
			}
		}
	})
	bubble(t, "the good ones of a shared call when one is bad", func(t *testing.T) {
		store, _ := newTap()
		slowly(store, "schedule", 10*time.Millisecond)
		set(t, store, "q", dueq.SettingsPatch{"body_max": "10"})
		c := dueq.NewClient(store, dueq.ClientOptions{})
		var group sync.WaitGroup
		for i := range 50 {
			group.Go(func() {
				task := dueq.Task{ID: fmt.Sprint(i)}
				if i == 25 {
					task.Body = make([]byte, 11)
				}
				got, err := c.Schedule(t.Context(), "q", task, dueq.In(0))
				if bad := i == 25; bad != errors.Is(err, dueq.ErrTooLarge) || bad != (got.Status == dueq.StatusRefused) || !bad && err != nil {
					t.Errorf("task %d: %+v, %v", i, got, err)
				}
			})
		}
		group.Wait()
		if st := stats(t, store, "q"); st.Scheduled != 49 {
			t.Errorf("%d scheduled, want 49", st.Scheduled)
		}
	})
	bubble(t, "with the error of a failed call for all its callers, then again", func(t *testing.T) {
		store, _ := newTap()
		var down atomic.Bool
		down.Store(true)
		store.before = func(op, _ string) error {
			time.Sleep(10 * time.Millisecond)
			if down.Load() {
				return unavailable(op, true)
			}
			return nil
		}
		c := dueq.NewClient(store, dueq.ClientOptions{})
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() {
				got, err := c.Schedule(t.Context(), "q", dueq.Task{ID: fmt.Sprint(i)}, dueq.In(0))
				var call *dueq.CallError
				if !errors.Is(err, dueq.ErrUnavailable) || !errors.As(err, &call) || !call.MayHaveHappened || got.Status != dueq.StatusUnknown {
					t.Errorf("task %d: %+v, %v", i, got, err)
				}
			})
		}
		group.Wait()
		down.Store(false)
		if _, err := c.Schedule(t.Context(), "q", dueq.Task{ID: "a"}, dueq.In(0)); err != nil {
			t.Errorf("after the outage: %v", err)
		}
	})
	bubble(t, "and lets callers go whose context ends: queued ones are certainly not sent", func(t *testing.T) {
		store, _ := newTap()
		slowly(store, "schedule", time.Second)
		c := dueq.NewClient(store, dueq.ClientOptions{})
		var group sync.WaitGroup
		leave := func(kind string, mayHaveHappened bool) {
			group.Go(func() {
				ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, errors.New("tired"))
				defer cancel()
				began := time.Now()
				_, err := c.Schedule(ctx, "q", dueq.Task{ID: "one", Kind: kind}, dueq.In(time.Hour))
				var call *dueq.CallError
				if !errors.Is(err, dueq.ErrUnavailable) || !errors.As(err, &call) || call.MayHaveHappened != mayHaveHappened || !strings.Contains(err.Error(), "tired") {
					t.Errorf("%s: %v; want may have happened %v", kind, err, mayHaveHappened)
				}
				if took := time.Since(began); took != 500*time.Millisecond {
					t.Errorf("%s left after %v", kind, took)
				}
			})
			synctest.Wait()
		}
		leave("flying", true)
		for i := range 200 {
			leave(fmt.Sprint("queued", i), false)
		}
		stays := make(chan error, 1)
		go func() {
			_, err := c.Schedule(t.Context(), "q", dueq.Task{ID: "one", Kind: "stays"}, dueq.In(time.Hour))
			stays <- err
		}()
		group.Wait()
		if err := <-stays; err != nil {
			t.Errorf("who stayed got %v", err)
		}
		pass(time.Minute)
		if st := stats(t, store, "q"); st.Scheduled != 2 {
			t.Errorf("%d scheduled, want the one in flight and the one who stayed", st.Scheduled)
		}
	})
	bubble(t, "nothing when the context is done already", func(t *testing.T) {
		store, _ := newTap()
		c := dueq.NewClient(store, dueq.ClientOptions{})
		_, err := c.Schedule(cancelled(), "q", dueq.Task{ID: "a"}, dueq.In(0))
		var call *dueq.CallError
		if !errors.Is(err, dueq.ErrUnavailable) || !errors.Is(err, context.Canceled) || !errors.As(err, &call) || call.MayHaveHappened {
			t.Errorf("%v", err)
		}
		pass(time.Second)
		if n := store.count("schedule"); n != 0 {
			t.Errorf("%d calls", n)
		}
	})
	bubble(t, "nothing that is invalid, and names the field", func(t *testing.T) {
		store, _ := newTap()
		c := dueq.NewClient(store, dueq.ClientOptions{MemberMax: 10})
		for field, item := range map[string]dueq.Item{
			"queue":  {Queue: "#", Task: dueq.Task{ID: "a"}},
			"id":     {Queue: "q", Task: dueq.Task{}},
			"member": {Queue: "q", Task: dueq.Task{ID: strings.Repeat("x", 11)}},
			"delay":  {Queue: "q", Task: dueq.Task{ID: "a"}, When: dueq.In(-1)},
			"due":    {Queue: "q", Task: dueq.Task{ID: "a"}, When: dueq.At(time.Unix(0, 0))},
		} {
			got, err := c.Schedule(t.Context(), item.Queue, item.Task, item.When)
			wantField(t, err, field)
			if got.Status != dueq.StatusRefused {
				t.Errorf("%s: status %v", field, got.Status)
			}
		}
		if n := store.count("schedule"); n != 0 {
			t.Errorf("%d calls", n)
		}
	})
	bubble(t, "as IfExists says", func(t *testing.T) {
		store, _ := newTap()
		c := dueq.NewClient(store, dueq.ClientOptions{})
		for _, step := range []struct {
			in       time.Duration
			ifExists []dueq.IfExists
			want     dueq.Status
		}{
			{time.Hour, nil, dueq.StatusScheduled},
			{time.Minute, []dueq.IfExists{dueq.Keep}, dueq.StatusKept},
			{time.Minute, []dueq.IfExists{dueq.Later}, dueq.StatusKept},
			{time.Minute, []dueq.IfExists{dueq.Earlier}, dueq.StatusReplaced},
			{time.Hour, []dueq.IfExists{dueq.Later}, dueq.StatusReplaced},
			{time.Minute, nil, dueq.StatusReplaced},
		} {
			if got, err := c.Schedule(t.Context(), "q", dueq.Task{ID: "a"}, dueq.In(step.in), step.ifExists...); err != nil || got.Status != step.want {
				t.Errorf("%+v: %v, %v", step, got.Status, err)
			}
		}
	})
	t.Run("panics when its options are out of bounds", func(t *testing.T) {
		t.Parallel()
		store, _ := newTap()
		for _, n := range []int{-1, dueq.MemberMax + 1} {
			if !panics(func() { dueq.NewClient(store, dueq.ClientOptions{MemberMax: n}) }) {
				t.Errorf("MemberMax %d: no panic", n)
			}
		}
	})
}

func wantField(t *testing.T, err error, field string) {
	t.Helper()
	var got *dueq.FieldError
	if !errors.As(err, &got) || !errors.Is(err, dueq.ErrInvalid) || got.Field != field {
		t.Errorf("error %v, want a FieldError of %s", err, field)
	}
}

func TestClientSchedulesAll(t *testing.T) {
	bubble(t, "by thousands, with the refused ones in their places", func(t *testing.T) {
		store, _ := newTap()
		c := dueq.NewClient(store, dueq.ClientOptions{})
		items := make([]dueq.Item, 3500)
		bad := map[int]bool{0: true, 999: true, 1000: true, 1777: true, 3499: true}
		for i := range items {
			items[i] = dueq.Item{Queue: fmt.Sprint("q", i%3), Task: dueq.Task{ID: fmt.Sprint(i)}, When: dueq.At(time.UnixMilli(2e12 + int64(i)))}
			if bad[i] {
				items[i].Task.ID = "a#b"
			}
		}
		got, err := c.ScheduleAll(t.Context(), items)
		if err != nil || len(got) != len(items) {
			t.Fatalf("%d outcomes, %v", len(got), err)
		}
		for i, o := range got {
			if bad[i] {
				wantField(t, o.Err, "id")
			} else if o.Status != dueq.StatusScheduled || o.Due.UnixMilli() != 2e12+int64(i) {
				t.Fatalf("item %d: %+v", i, o)
			}
		}
		if n := store.count("schedule"); n != 4 {
			t.Errorf("%d calls, want 4", n)
		}
	})
	bubble(t, "with what is known beside an error", func(t *testing.T) {
		store, _ := newTap()
		var calls atomic.Int32
		store.before = func(op, _ string) error {
			if calls.Add(1) == 2 {
				return unavailable(op, true)
			}
			return nil
		}
		items := make([]dueq.Item, 2500)
		for i := range items {
			items[i] = dueq.Item{Queue: "q", Task: dueq.Task{ID: fmt.Sprint(i)}}
		}
		items[5].Task.ID = ""
		got, err := dueq.NewClient(store, dueq.ClientOptions{}).ScheduleAll(t.Context(), items)
		if !errors.Is(err, dueq.ErrUnavailable) {
			t.Fatal(err)
		}
		if got[0].Status != dueq.StatusScheduled || got[5].Status != dueq.StatusRefused || got[1000].Status != dueq.StatusScheduled ||
			got[1001].Status != dueq.StatusUnknown || got[2499].Status != dueq.StatusUnknown {
			t.Errorf("outcomes %v %v %v %v %v", got[0], got[5], got[1000], got[1001], got[2499])
		}
	})
	bubble(t, "none", func(t *testing.T) {
		store, _ := newTap()
		if got, err := dueq.NewClient(store, dueq.ClientOptions{}).ScheduleAll(t.Context(), nil); err != nil || len(got) != 0 || store.count("schedule") != 0 {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestClientChanges(t *testing.T) {
	bubble(t, "with the sentinel of each state", func(t *testing.T) {
		store, _ := newTap()
		c := dueq.NewClient(store, dueq.ClientOptions{})
		ctx := t.Context()
		prepare := func(state string) string {
			id := state
			switch state {
			case "scheduled":
				schedule(t, store, "q", id, dueq.In(time.Hour))
			case "active", "dead":
				schedule(t, store, "q", id, dueq.In(0))
				got, err := store.Claim(ctx, dueq.ClaimRequest{Queue: "q", Max: 1})
				if err != nil || len(got.Tasks) != 1 || got.Tasks[0].ID != id {
					t.Fatal(got, err)
				}
				if state == "dead" {
					if _, err := store.Settle(ctx, "q", []dueq.Result{{Task: got.Tasks[0], Verdict: dueq.VerdictDead}}); err != nil {
						t.Fatal(err)
					}
				}
			}
			return id
		}
		ops := map[string]func(id string) error{
			"cancel":     func(id string) error { return c.Cancel(ctx, "q", id) },
			"stop":       func(id string) error { return c.Stop(ctx, "q", id) },
			"reschedule": func(id string) error { return c.Reschedule(ctx, "q", id, dueq.In(time.Minute)) },
			"requeue":    func(id string) error { return c.Requeue(ctx, "q", id, dueq.In(time.Minute)) },
			"delete":     func(id string) error { return c.Delete(ctx, "q", id) },
		}
		want := map[string]map[string]error{
			"cancel":     {"scheduled": nil, "active": dueq.ErrRunning, "dead": dueq.ErrDead, "none": dueq.ErrNotFound},
			"stop":       {"scheduled": nil, "active": nil, "dead": dueq.ErrDead, "none": dueq.ErrNotFound},
			"reschedule": {"scheduled": nil, "active": dueq.ErrRunning, "dead": dueq.ErrDead, "none": dueq.ErrNotFound},
			"requeue":    {"scheduled": nil, "active": dueq.ErrRunning, "dead": nil, "none": dueq.ErrNotFound},
			"delete":     {"scheduled": nil, "active": dueq.ErrRunning, "dead": nil, "none": dueq.ErrNotFound},
		}
		for op, states := range want {
			for state, sentinel := range states {
				id := prepare(state)
				err := ops[op](id)
				if sentinel == nil && err != nil || sentinel != nil && !errors.Is(err, sentinel) {
					t.Errorf("%s of one that is %s: %v, want %v", op, state, err, sentinel)
				}
				var call *dueq.CallError
				if err != nil && (!errors.As(err, &call) || call.Op != op || call.Queue != "q") {
					t.Errorf("%s of one that is %s: %v is not a CallError of it", op, state, err)
				}
				c.Stop(ctx, "q", id)
				c.Delete(ctx, "q", id)
			}
		}
	})
	bubble(t, "nothing when the store is away", func(t *testing.T) {
		store, _ := newTap()
		store.before = func(op, _ string) error { return unavailable(op, false) }
		c := dueq.NewClient(store, dueq.ClientOptions{})
		if err := c.Cancel(t.Context(), "q", "a"); !errors.Is(err, dueq.ErrUnavailable) {
			t.Error(err)
		}
	})
	bubble(t, "what Get then shows", func(t *testing.T) {
		store, _ := newTap()
		c := dueq.NewClient(store, dueq.ClientOptions{})
		if _, err := c.Get(t.Context(), "q", "a"); !errors.Is(err, dueq.ErrNotFound) {
			t.Errorf("get of nothing: %v", err)
		}
		due := time.UnixMilli(2e12)
		if _, err := c.Schedule(t.Context(), "q", dueq.Task{ID: "a", Kind: "k", Body: []byte("b")}, dueq.At(due)); err != nil {
			t.Fatal(err)
		}
		got, err := c.Get(t.Context(), "q", "a:k")
		if err != nil || got.ID != "a" || got.Kind != "k" || !bytes.Equal(got.Body, []byte("b")) || !got.Due.Equal(due) || got.State != dueq.StateScheduled {
			t.Errorf("%+v, %v", got, err)
		}
		if err := c.Reschedule(t.Context(), "q", "a:k", dueq.At(due.Add(time.Hour))); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Get(t.Context(), "q", "a:k"); err != nil || !got.Due.Equal(due.Add(time.Hour)) || string(got.Body) != "b" {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
