package memstore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq/memstore"
	"github.com/dueq/dueq/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, openFixture)
}

// openFixture opens a store whose clock stands still.
func openFixture(*testing.T) storetest.Fixture {
	var micro atomic.Int64
	micro.Store(1_800_000_000_000_000)
	now := func() time.Time { return time.UnixMicro(micro.Load()).UTC() }
	store := memstore.New(memstore.Options{Now: now})
	return storetest.Fixture{
		Store:   store,
		Now:     now,
		Advance: func(d time.Duration) { micro.Add(d.Microseconds()) },
		Add:     store.Add,
		Remove:  store.Remove,
		Dump:    func(queue string) storetest.Snapshot { return storetest.Snapshot(store.Contents(queue)) },
	}
}
