package sqlitestore_test

import (
	"testing"

	"github.com/dueq/dueq/storetest"
)

// TestModel with operations that the fuzzer chooses.
func FuzzModel(f *testing.F) {
	storetest.FuzzModel(f, func(t *testing.T) (got, oracle storetest.Fixture) {
		store := openFixture(t)
		return store, oracleOf(store)
	})
}
