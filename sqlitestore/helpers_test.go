package sqlitestore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/sqlitestore"
)

func file(t *testing.T) string { return filepath.Join(t.TempDir(), "dueq.db") }

// many are tasks that are due, numbered from first.
func many(queue string, first, n int) []dueq.Item {
	items := make([]dueq.Item, n)
	for i := range items {
		items[i] = dueq.Item{Queue: queue, Task: dueq.Task{ID: fmt.Sprintf("order_%08d", first+i), Kind: "pay_timeout"}}
	}
	return items
}

func putMany(t *testing.T, store dueq.Store, queue string, first, n int) {
	t.Helper()
	outcomes, err := store.Schedule(t.Context(), many(queue, first, n))
	must(t, err)
	for _, o := range outcomes {
		must(t, o.Error())
	}
}

func put(t *testing.T, store dueq.Store, queue, id string, when ...dueq.When) {
	t.Helper()
	item := dueq.Item{Queue: queue, Task: dueq.Task{ID: id}}
	if len(when) > 0 {
		item.When = when[0]
	}
	outcomes, err := store.Schedule(t.Context(), []dueq.Item{item})
	must(t, err)
	must(t, outcomes[0].Error())
}

func stats(t *testing.T, store dueq.Store, queue string) dueq.QueueStats {
	t.Helper()
	all, err := store.Stats(t.Context(), queue)
	must(t, err)
	return all[0]
}

// claimAck claims up to 100 tasks of queue q and acknowledges them.
func claimAck(t testing.TB, store *sqlitestore.Store) int {
	t.Helper()
	claim, err := store.Claim(context.Background(), dueq.ClaimRequest{Queue: "q", Max: 100})
	if err != nil {
		t.Error(err)
	}
	results := make([]dueq.Result, len(claim.Tasks))
	for i, task := range claim.Tasks {
		results[i].Task = task
	}
	outcomes, err := store.Settle(context.Background(), "q", results)
	if err != nil {
		t.Error(err)
	}
	for _, o := range outcomes {
		if o.Status != dueq.StatusDone {
			t.Errorf("settled: %v", o.Status)
		}
	}
	return len(outcomes)
}
