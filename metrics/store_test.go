package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
	"github.com/dueq/dueq/metrics"
	"github.com/dueq/dueq/storetest"
)

// A wrapped store is a store: nothing of its answers changes.
func TestWrappedStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Fixture {
		var micro atomic.Int64
		micro.Store(epoch.UnixMicro())
		now := func() time.Time { return time.UnixMicro(micro.Load()).UTC() }
		store := memstore.New(memstore.Options{Now: now})
		m := metrics.New(store, metrics.Options{})
		return storetest.Fixture{
			Store:   m.Observe(m.Wrap(store)),
			Now:     now,
			Advance: func(d time.Duration) { micro.Add(d.Microseconds()) },
			Add:     store.Add,
			Remove:  store.Remove,
			Dump:    func(queue string) storetest.Snapshot { return storetest.Snapshot(store.Contents(queue)) },
		}
	})
}

func TestWrapMeasuresEveryCall(t *testing.T) {
	t.Parallel()
	plain, _ := frozen()
	m := metrics.New(nil, metrics.Options{})
	store := m.Wrap(basic{plain}) // that can do nothing more
	ctx := t.Context()
	calls := map[string]func(context.Context) error{
		"schedule": func(ctx context.Context) error {
			_, err := store.Schedule(ctx, []dueq.Item{{Queue: "q", Task: dueq.Task{ID: "1"}, When: dueq.In(0)}})
			return err
		},
		"change": func(ctx context.Context) error {
			_, err := store.Change(ctx, "q", dueq.OpCancel, []dueq.Target{{Member: "1"}})
			return err
		},
		"claim": func(ctx context.Context) error {
			_, err := store.Claim(ctx, dueq.ClaimRequest{Queue: "q"})
			return err
		},
		"settle": func(ctx context.Context) error {
			_, err := store.Settle(ctx, "q", []dueq.Result{{}})
			return err
		},
		"extend": func(ctx context.Context) error {
			_, err := store.Extend(ctx, "q", []dueq.Lease{{Member: "1"}}, time.Minute)
			return err
		},
		"get": func(ctx context.Context) error {
			_, err := store.Get(ctx, "q", []string{"1"})
			return err
		},
		"list": func(ctx context.Context) error {
			_, err := store.List(ctx, dueq.ListQuery{Queue: "q", State: dueq.StateDead})
			return err
		},
		"stats": func(ctx context.Context) error {
			_, err := store.Stats(ctx)
			return err
		},
		"settings": func(ctx context.Context) error {
			_, err := store.Settings(ctx, "q")
			return err
		},
		"set_settings": func(ctx context.Context) error {
			_, err := store.SetSettings(ctx, "q", dueq.SettingsPatch{"retries": "1"})
			return err
		},
		"wake": func(ctx context.Context) error {
			_, err := store.Wake(ctx)
			return err
		},
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	late, cancel := context.WithDeadline(ctx, time.Unix(0, 0))
	defer cancel()
	for op, call := range calls {
		must(t, call(ctx))
		if op != "wake" {
			wantErr(t, call(gone), dueq.ErrUnavailable)
			wantErr(t, call(late), dueq.ErrUnavailable)
		}
	}
	must(t, store.Close())
	for op, call := range calls {
		wantErr(t, call(ctx), dueq.ErrClosed)
		want := page{
			fmt.Sprintf("dueq_store_call_seconds_count{op=%q}", op):                   4,
			fmt.Sprintf("dueq_store_errors_total{error=%q,op=%q}", "canceled", op):    1,
			fmt.Sprintf("dueq_store_errors_total{error=%q,op=%q}", "unavailable", op): 1,
			fmt.Sprintf("dueq_store_errors_total{error=%q,op=%q}", "closed", op):      1,
		}
		if op == "wake" {
			want = page{`dueq_store_call_seconds_count{op="wake"}`: 2, `dueq_store_errors_total{error="closed",op="wake"}`: 1}
		}
		scrape(t, m).want(t, want)
	}
	if n := len(scrape(t, m).within("dueq_store_call_seconds_count")); n != len(calls) {
		t.Errorf("%d methods are measured, %d were called", n, len(calls))
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("the error is %v, want %v", err, want)
	}
}

func TestRefusedSchedulesAreCountedByReason(t *testing.T) {
	t.Parallel()
	plain, _ := frozen()
	m := metrics.New(plain, metrics.Options{})
	store := m.Wrap(plain)
	set(t, store, "q", dueq.SettingsPatch{"body_max": "10"})
	item := func(queue, id, body string) dueq.Item {
		return dueq.Item{Queue: queue, Task: dueq.Task{ID: id, Body: []byte(body)}, When: dueq.In(time.Hour)}
	}
	big := strings.Repeat("x", 11)
	outcomes, err := store.Schedule(t.Context(), []dueq.Item{
		item("q", "good", "x"), item("q", "", "x"), item("q", "two words", "x"), item("q", "big", big),
		item("r", "good", big), item("r", "", "x"), item("no queue", "x", "x"), item("", "x", "x"),
	})
	must(t, err)
	if outcomes[0].Status != dueq.StatusScheduled || outcomes[4].Status != dueq.StatusScheduled {
		t.Errorf("good ones are %v and %v", outcomes[0], outcomes[4])
	}
	_, err = store.Schedule(t.Context(), make([]dueq.Item, dueq.MaxItems+1))
	wantErr(t, err, dueq.ErrInvalid)
	must(t, plain.Close())
	_, err = store.Schedule(t.Context(), []dueq.Item{item("q", "1", ""), item("q", "2", ""), item("r", "3", "")})
	wantErr(t, err, dueq.ErrClosed)
	want := page{
		`dueq_rejected_total{queue="q",reason="invalid"}`:     2,
		`dueq_rejected_total{queue="q",reason="too_large"}`:   1,
		`dueq_rejected_total{queue="q",reason="closed"}`:      2,
		`dueq_rejected_total{queue="r",reason="invalid"}`:     1,
		`dueq_rejected_total{queue="r",reason="closed"}`:      1,
		`dueq_rejected_total{queue="other",reason="invalid"}`: 2 + dueq.MaxItems + 1,
	}
	p := scrape(t, m)
	p.want(t, want)
	if got := p.within("dueq_rejected_total"); len(got) != len(want) {
		t.Errorf("there is more: %v", got)
	}
}
