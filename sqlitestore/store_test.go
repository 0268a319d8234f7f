package sqlitestore_test

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq/internal/rules"
	"github.com/dueq/dueq/memstore"
	"github.com/dueq/dueq/sqlitestore"
	"github.com/dueq/dueq/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, openFixture)
}

// The transactions against the rules in memory: random operations, the same
// frozen clock, every answer and all that lies in the store compared.
func TestModel(t *testing.T) {
	t.Parallel()
	store := openFixture(t)
	oracle := memstore.New(memstore.Options{Now: store.Now})
	storetest.Model(t, store, storetest.Fixture{
		Store:   oracle,
		Now:     store.Now,
		Advance: func(time.Duration) {}, // they share the clock
		Add:     oracle.Add,
		Remove:  oracle.Remove,
		Dump:    func(queue string) storetest.Snapshot { return storetest.Snapshot(oracle.Contents(queue)) },
	})
}

// openFixture opens a store whose clock stands still.
func openFixture(t *testing.T) storetest.Fixture {
	var micro atomic.Int64
	micro.Store(1_800_000_000_000_000)
	now := func() time.Time { return time.UnixMicro(micro.Load()).UTC() }
	store := open(t, filepath.Join(t.TempDir(), "dueq.db"), sqlitestore.Options{Now: now, Timeout: 10 * time.Second})
	return storetest.Fixture{
		Store:   store,
		Now:     now,
		Advance: func(d time.Duration) { micro.Add(d.Microseconds()) },
		Add:     func(queue, member string, score float64) { must(t, store.Add(queue, member, score)) },
		Remove:  func(queue, member string) { must(t, store.Remove(queue, member)) },
		Dump:    func(queue string) storetest.Snapshot { return dump(t, store, queue) },
	}
}

// dump reads the rows of one queue, and checks that they are counted right.
func dump(t *testing.T, store *sqlitestore.Store, queue string) storetest.Snapshot {
	t.Helper()
	contents, err := store.Contents(queue)
	must(t, err)
	counted, noted, err := store.Recount(queue)
	must(t, err)
	if counted != noted {
		t.Errorf("%s: there are %v tasks in the places, %v are noted", queue, counted, noted)
	}
	return storetest.Snapshot(contents)
}

func open(t *testing.T, path string, opts sqlitestore.Options) *sqlitestore.Store {
	t.Helper()
	store, err := sqlitestore.Open(path, opts)
	must(t, err)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPlacesAreReadByTheirIndex(t *testing.T) {
	t.Parallel()
	store := open(t, filepath.Join(t.TempDir(), "dueq.db"), sqlitestore.Options{})
	for p := range rules.Places {
		plans, err := store.Plan(p)
		must(t, err)
		for _, plan := range plans {
			if !strings.Contains(plan, "USING INDEX task_") && !strings.Contains(plan, "USING COVERING INDEX task_") || strings.Contains(plan, "TEMP B-TREE") {
				t.Errorf("place %d: %s", p, plan)
			}
		}
	}
}
