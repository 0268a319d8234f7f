package sqlitestore_test

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq"
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
	storetest.Model(t, store, oracleOf(store))
}

// What one process knows of the file is worth nothing once another wrote.
func TestModelOfTwoProcesses(t *testing.T) {
	t.Parallel()
	first := openFixture(t)
	path := first.Store.(*sqlitestore.Store).Path()
	other := open(t, path, sqlitestore.Options{Now: first.Now, Timeout: 10 * time.Second})
	first.Store = &shared{Store: first.Store, other: other, random: rand.New(rand.NewPCG(1, 2))}
	storetest.Model(t, first, oracleOf(first))
}

// shared is two stores on one file, of which each call that writes takes one.
type shared struct {
	dueq.Store
	other  dueq.Store
	random *rand.Rand
}

func (s *shared) any() dueq.Store {
	if s.random.IntN(3) == 0 {
		return s.other
	}
	return s.Store
}

func (s *shared) Schedule(ctx context.Context, items []dueq.Item) ([]dueq.Outcome, error) {
	return s.any().Schedule(ctx, items)
}

func (s *shared) Change(ctx context.Context, queue string, op dueq.Op, targets []dueq.Target) ([]dueq.Outcome, error) {
	return s.any().Change(ctx, queue, op, targets)
}

func (s *shared) Claim(ctx context.Context, req dueq.ClaimRequest) (dueq.Claim, error) {
	return s.any().Claim(ctx, req)
}

func (s *shared) Settle(ctx context.Context, queue string, results []dueq.Result) ([]dueq.Outcome, error) {
	return s.any().Settle(ctx, queue, results)
}

func (s *shared) Extend(ctx context.Context, queue string, leases []dueq.Lease, d time.Duration) ([]dueq.Outcome, error) {
	return s.any().Extend(ctx, queue, leases, d)
}

func (s *shared) SetSettings(ctx context.Context, queue string, patch dueq.SettingsPatch) (dueq.Settings, error) {
	return s.any().SetSettings(ctx, queue, patch)
}

// oracleOf is a store in memory that shares the clock of another.
func oracleOf(store storetest.Fixture) storetest.Fixture {
	oracle := memstore.New(memstore.Options{Now: store.Now})
	return storetest.Fixture{
		Store:   oracle,
		Now:     store.Now,
		Advance: func(time.Duration) {}, // the other does
		Add:     oracle.Add,
		Remove:  oracle.Remove,
		Dump:    func(queue string) storetest.Snapshot { return storetest.Snapshot(oracle.Contents(queue)) },
	}
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
