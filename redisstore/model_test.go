package redisstore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/dueq/dueq/memstore"
	"github.com/dueq/dueq/storetest"
)

// The scripts against the rules written down in Go: random operations, the
// same frozen clock, every answer and all that lies in the store compared.
func TestModel(t *testing.T) {
	t.Parallel()
	model(t, openFixture(t))
}

func model(t *testing.T, store storetest.Fixture) {
	var micro atomic.Int64
	micro.Store(store.Now().UnixMicro())
	now := func() time.Time { return time.UnixMicro(micro.Load()).UTC() }
	oracle := memstore.New(memstore.Options{Now: now})
	storetest.Model(t, store, storetest.Fixture{
		Store:   oracle,
		Now:     now,
		Advance: func(d time.Duration) { micro.Add(d.Microseconds()) },
		Add:     oracle.Add,
		Remove:  oracle.Remove,
		Dump:    func(queue string) storetest.Snapshot { return storetest.Snapshot(oracle.Contents(queue)) },
	})
}
