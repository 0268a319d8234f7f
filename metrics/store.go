package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dueq/dueq"
)

// op is a method of a store that is measured.
type op int

const (
	opSchedule op = iota
	opChange
	opClaim
	opSettle
	opExtend
	opGet
	opList
	opStats
	opSettings
	opSetSettings
	opWake
	opForward // from here on, what not every store can
	opProbe
)

var ops = [...]string{"schedule", "change", "claim", "settle", "extend", "get", "list", "stats", "settings", "set_settings", "wake", "forward", "probe"}

// Why a task was rejected, besides the classes of errors.
const (
	reasonDropped = "dropped"
	reasonRefused = "refused"
	reasonDead    = "dead"
)

const (
	rejectedName = "dueq_rejected_total"
	rejectedHelp = "Tasks that were dropped before their run, refused or dead, by reason."
)

// classes are the errors told apart; the first that fits counts.
var classes = []struct {
	name string
	err  error
}{
	{"invalid", dueq.ErrInvalid},
	{"too_large", dueq.ErrTooLarge},
	{"closed", dueq.ErrClosed},
	{"canceled", context.Canceled}, // the caller left; it is ErrUnavailable too
	{"unavailable", dueq.ErrUnavailable},
}

func classOf(err error) string {
	for _, class := range classes {
		if errors.Is(err, class.err) {
			return class.name
		}
	}
	return other
}

func (m *Metrics) makeCalls() {
	m.calls = histogram("dueq_store_call_seconds",
		"How long calls to the store took, failed ones included.", scanBuckets, "op")
	m.errors = counter("dueq_store_errors_total",
		"Calls to the store that failed, by class of error.", "op", "error")
}

// Wrap returns store with every call measured, and the tasks counted that
// scheduling refused. Workers, clients and servers of a process can share it.
// It is a Forwarder or Prober if store is one.
func (m *Metrics) Wrap(store dueq.Store) dueq.Store {
	w := &wrapped{store: store, m: m}
	for op := range opForward {
		w.measure(op)
	}
	forwarder, prober := optional(store)
	if forwarder != nil {
		w.measure(opForward)
		forwarder = wrappedForwarder{forwarder, w}
	}
	if prober != nil {
		w.measure(opProbe)
		prober = wrappedProber{prober, w}
	}
	return withOptional(w, forwarder, prober)
}

// wrapped has no embedded Store: a method that is new there must not go
// unmeasured.
type wrapped struct {
	store dueq.Store
	m     *Metrics
	calls [len(ops)]prometheus.Observer
}

// measure makes the series of a call. That of failures is there before the first,
// which is an increase then.
func (w *wrapped) measure(op op) {
	w.calls[op] = w.m.calls.WithLabelValues(ops[op])
	w.m.errors.WithLabelValues(ops[op], classOf(dueq.ErrUnavailable))
}

// ended counts a call.
func (w *wrapped) ended(op op, began time.Time, err error) {
	w.calls[op].Observe(time.Since(began).Seconds())
	if err != nil {
		w.m.errors.WithLabelValues(ops[op], classOf(err)).Inc()
	}
}

func (w *wrapped) Schedule(ctx context.Context, items []dueq.Item) ([]dueq.Outcome, error) {
	began := time.Now()
	outcomes, err := w.store.Schedule(ctx, items)
	w.ended(opSchedule, began, err)
	w.m.refusals(items, outcomes, err)
	return outcomes, err
}

// refusals counts the items that were refused, and those of a failed call whose
// outcome nobody knows.
func (m *Metrics) refusals(items []dueq.Item, outcomes []dueq.Outcome, err error) {
	for i := range items {
		var o dueq.Outcome
		if i < len(outcomes) {
			o = outcomes[i]
		}
		why := o.Err
		if o.Status == dueq.StatusUnknown {
			why = err
		}
		if why != nil {
			m.rejected.WithLabelValues(m.names.of(items[i].Queue).label, classOf(why)).Inc()
		}
	}
}

func (w *wrapped) Change(ctx context.Context, queue string, op dueq.Op, targets []dueq.Target) ([]dueq.Outcome, error) {
	began := time.Now()
	outcomes, err := w.store.Change(ctx, queue, op, targets)
	w.ended(opChange, began, err)
	return outcomes, err
}

func (w *wrapped) Claim(ctx context.Context, req dueq.ClaimRequest) (dueq.Claim, error) {
	began := time.Now()
	claim, err := w.store.Claim(ctx, req)
	w.ended(opClaim, began, err)
	return claim, err
}

func (w *wrapped) Settle(ctx context.Context, queue string, results []dueq.Result) ([]dueq.Outcome, error) {
	began := time.Now()
	outcomes, err := w.store.Settle(ctx, queue, results)
	w.ended(opSettle, began, err)
	return outcomes, err
}

func (w *wrapped) Extend(ctx context.Context, queue string, leases []dueq.Lease, d time.Duration) ([]dueq.Outcome, error) {
	began := time.Now()
	outcomes, err := w.store.Extend(ctx, queue, leases, d)
	w.ended(opExtend, began, err)
	return outcomes, err
}

func (w *wrapped) Get(ctx context.Context, queue string, members []string) ([]dueq.Info, error) {
	began := time.Now()
	infos, err := w.store.Get(ctx, queue, members)
	w.ended(opGet, began, err)
	return infos, err
}

func (w *wrapped) List(ctx context.Context, q dueq.ListQuery) (dueq.Page, error) {
	began := time.Now()
	page, err := w.store.List(ctx, q)
	w.ended(opList, began, err)
	return page, err
}

func (w *wrapped) Stats(ctx context.Context, queues ...string) ([]dueq.QueueStats, error) {
	began := time.Now()
	stats, err := w.store.Stats(ctx, queues...)
	failure := err
	for i := range stats {
		if failure == nil {
			failure = stats[i].Err
		}
	}
	w.ended(opStats, began, failure)
	return stats, err
}

func (w *wrapped) Settings(ctx context.Context, queue string) (dueq.Settings, error) {
	began := time.Now()
	settings, err := w.store.Settings(ctx, queue)
	w.ended(opSettings, began, err)
	return settings, err
}

func (w *wrapped) SetSettings(ctx context.Context, queue string, patch dueq.SettingsPatch) (dueq.Settings, error) {
	began := time.Now()
	settings, err := w.store.SetSettings(ctx, queue, patch)
	w.ended(opSetSettings, began, err)
	return settings, err
}

func (w *wrapped) Wake(ctx context.Context) (<-chan dueq.Hint, error) {
	began := time.Now()
	hints, err := w.store.Wake(ctx)
	w.ended(opWake, began, err)
	return hints, err
}

func (w *wrapped) Close() error { return w.store.Close() }
