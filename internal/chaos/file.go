package chaos

import (
	"path/filepath"
	"testing"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/sqlitestore"
)

// file is a SQLite file that all processes share. It has no server to hurt:
// processes that die and freeze while they write are its faults.
var file = Target{
	Name: "file",
	Open: func(addr string) (dueq.Store, error) { return opened(sqlitestore.Open(addr, sqlitestore.Options{})) },
	Start: func(t testing.TB) *System {
		return &System{Addr: filepath.Join(t.TempDir(), "dueq.db")}
	},
}
