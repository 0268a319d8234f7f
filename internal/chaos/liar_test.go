package chaos

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/history"
	"github.com/dueq/dueq/memstore"
)

// The proof that the verdict means something: a store that breaks one promise
// now and then, under the workload that right stores pass, is found out.
func TestRun_finds_out_a_store_that(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		lie  lie
		want history.What // empty: nothing is wrong
	}{
		{"tells_the_truth", honest, ""},
		{"drops_tasks", drop, history.Lost},
		{"repeats_tasks", repeat, history.Unexplained},
		{"hastens_tasks", hasten, history.Early},
		{"forgets_cancels", forget, history.Cancelled},
		{"lends_tasks_twice", lend, history.Beside},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store := &liar{Store: memstore.New(memstore.Options{}), lie: c.lie, lent: map[string][]*dueq.Task{}}
			target := Target{
				Name:  "liar",
				Start: func(testing.TB) *System { return &System{Alone: true} },
				Open:  func(string) (dueq.Store, error) { return store, nil },
			}
			r := Run(t, target, 1, 2*time.Second)
			got := map[history.What]int{}
			for _, f := range r.Findings {
				got[f.What]++
			}
			if c.want == "" && len(got) > 0 || c.want != "" && (got[c.want] == 0 || store.lies == 0) {
				t.Errorf("it lied %d times, got %v, want %q\n%v", store.lies, got, c.want, r)
			}
			t.Logf("%d lies: %v", store.lies, got)
		})
	}
}

type lie int

const (
	honest lie = iota
	drop
	repeat
	hasten
	forget
	lend
)

// liar is a store that lies at every tenth opportunity, of which there are
// fewer to forget a cancel: then at every second.
type liar struct {
	dueq.Store
	lie lie

	mu    sync.Mutex // guards the rest
	turns int
	lies  int
	lent  map[string][]*dueq.Task // by queue: to be handed out again
}

func (l *liar) liesNow(lie lie) bool {
	if l.lie != lie {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	every := 10
	if lie == forget {
		every = 2
	}
	if l.turns++; l.turns%every > 0 {
		return false
	}
	l.lies++
	return true
}

func (l *liar) Close() error { return nil }

func (l *liar) Schedule(ctx context.Context, items []dueq.Item) ([]dueq.Outcome, error) {
	outcomes := make([]dueq.Outcome, len(items))
	for i, item := range items {
		promised := time.Now().Add(item.When.Delay())
		switch {
		case l.liesNow(drop):
			outcomes[i] = dueq.Outcome{Status: dueq.StatusScheduled, Due: promised}
			continue
		case item.When.Delay() > 100*time.Millisecond && l.liesNow(hasten):
			item.When = dueq.In(item.When.Delay() / 2)
		default:
			promised = time.Time{}
		}
		one, err := l.Store.Schedule(ctx, []dueq.Item{item})
		if err != nil {
			return outcomes[:i], err
		}
		if outcomes[i] = one[0]; !promised.IsZero() && one[0].Status != dueq.StatusKept {
			outcomes[i].Due = promised
		}
	}
	return outcomes, nil
}

func (l *liar) Change(ctx context.Context, queue string, op dueq.Op, targets []dueq.Target) ([]dueq.Outcome, error) {
	if op == dueq.OpCancel && l.liesNow(forget) {
		return slices.Repeat([]dueq.Outcome{{Status: dueq.StatusDone}}, len(targets)), nil
	}
	return l.Store.Change(ctx, queue, op, targets)
}

func (l *liar) Claim(ctx context.Context, req dueq.ClaimRequest) (dueq.Claim, error) {
	claim, err := l.Store.Claim(ctx, req)
	if err != nil {
		return claim, err
	}
	l.mu.Lock()
	again := l.lent[req.Queue]
	delete(l.lent, req.Queue)
	l.mu.Unlock()
	claim.Tasks = append(claim.Tasks, again...)
	if len(again) > 0 && claim.LeaseEnds.IsZero() {
		claim.LeaseEnds = claim.Now.Add(lease)
	}
	for _, t := range claim.Tasks[:len(claim.Tasks)-len(again)] {
		if l.liesNow(lend) {
			second := *t
			second.Lease.Token++
			l.mu.Lock()
			l.lent[req.Queue] = append(l.lent[req.Queue], &second)
			l.mu.Unlock()
		}
	}
	return claim, nil
}

func (l *liar) Settle(ctx context.Context, queue string, results []dueq.Result) ([]dueq.Outcome, error) {
	outcomes, err := l.Store.Settle(ctx, queue, results)
	for i, r := range results {
		if err == nil && outcomes[i].Status == dueq.StatusDone && r.Verdict == dueq.VerdictAck && l.liesNow(repeat) {
			again := dueq.Task{ID: r.Task.ID, Kind: r.Task.Kind, Body: r.Task.Body}
			_, err = l.Store.Schedule(ctx, []dueq.Item{{Queue: queue, Task: again}})
		}
	}
	return outcomes, err
}
