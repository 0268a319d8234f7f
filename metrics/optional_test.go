package metrics_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/metrics"
)

type probing interface{ Probe(context.Context) error }

var errProbe = errors.New("cannot write")

// Stores that can do more.
type (
	basic    struct{ dueq.Store }
	forwards struct{ dueq.Store }
	probes   struct{ dueq.Store }
	both     struct {
		dueq.Store
		forwards
		probes
	}
)

func (forwards) Forward(_ context.Context, req dueq.ForwardRequest) (dueq.Forwarded, error) {
	return dueq.Forwarded{Count: req.Max}, nil
}

func (probes) Probe(context.Context) error { return errProbe }

func TestWrappedStoresCanDoWhatTheirsCan(t *testing.T) {
	t.Parallel()
	plain, _ := frozen()
	for _, c := range []struct {
		name             string
		store            dueq.Store
		forwards, probes bool
	}{
		{"neither", basic{plain}, false, false},
		{"forwards", forwards{plain}, true, false},
		{"probes", probes{plain}, false, true},
		{"both", both{Store: plain}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := metrics.New(nil, metrics.Options{})
			store := m.Observe(m.Wrap(c.store))
			schedule(t, store, "q-"+c.name, dueq.In(time.Hour), "x")
			forwarder, can := store.(dueq.Forwarder)
			if can != c.forwards {
				t.Fatalf("that it can forward is %v", can)
			}
			if can {
				got, err := forwarder.Forward(t.Context(), dueq.ForwardRequest{Queue: "q", Max: 7})
				if err != nil || got.Count != 7 {
					t.Errorf("it forwards %v, %v", got, err)
				}
				scrape(t, m).want(t, page{`dueq_store_call_seconds_count{op="forward"}`: 1})
			}
			prober, can := store.(probing)
			if can != c.probes {
				t.Fatalf("that it can probe is %v", can)
			}
			if can {
				wantErr(t, prober.Probe(t.Context()), errProbe)
				scrape(t, m).want(t, page{
					`dueq_store_call_seconds_count{op="probe"}`:         1,
					`dueq_store_errors_total{error="other",op="probe"}`: 1,
				})
			}
		})
	}
}

func TestForwardingOnRedisIsCounted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	plain := openRedis(t, server)
	m := metrics.New(plain, metrics.Options{})
	store := m.Wrap(plain)
	schedule(t, store, "q", dueq.In(0), "1", "2", "3")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- dueq.Forward(ctx, store, "q", dueq.ForwardOptions{To: "list", Observer: m.Observer(), Logger: slog.New(slog.DiscardHandler)})
	}()
	eventually(t, "all are forwarded", func() bool { return statsOf(t, plain, "q").Totals.Forwarded == 3 })
	stop()
	must(t, <-ended)
	p := scrape(t, m)
	p.want(t, page{`dueq_task_events_total{event="forwarded",queue="q"}`: 3, `dueq_tasks{queue="q",state="scheduled"}`: 0})
	// The first call, which checks the destination, is Forward's own.
	if calls, scans := p[`dueq_store_call_seconds_count{op="forward"}`], p[`dueq_scan_latency_seconds_count`]; scans < 1 || calls != scans+1 {
		t.Errorf("%v calls and %v scans", calls, scans)
	}
}
