package sqlitestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/dueq/dueq"
)

var (
	errForeign = errors.New("it is an SQLite database of another program")
	errBusy    = errors.New("other processes keep it locked")
)

// isBusy reports that another connection holds a lock.
func isBusy(err error) bool {
	var code *codeError
	return errors.As(err, &code) && (code.primary() == sqlite3.SQLITE_BUSY || code.primary() == sqlite3.SQLITE_LOCKED)
}

func isInterrupt(err error) bool {
	var code *codeError
	return errors.As(err, &code) && code.primary() == sqlite3.SQLITE_INTERRUPT
}

// isIO reports that the disk failed: what was being committed may be there or
// not.
func isIO(err error) bool {
	var code *codeError
	return errors.As(err, &code) && code.primary() == sqlite3.SQLITE_IOERR
}

func isFull(err error) bool {
	var code *codeError
	return errors.As(err, &code) && code.primary() == sqlite3.SQLITE_FULL
}

// explain says what an error of SQLite means, and names the file.
func explain(path string, err error) error {
	var code *codeError
	if !errors.As(err, &code) {
		return fmt.Errorf("%s: %w", path, err)
	}
	switch code.primary() {
	case sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%s: it is not an SQLite database: %w", path, err)
	case sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("%s: the file is damaged: %w", path, err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return dueq.Unavailable(fmt.Errorf("%s: the file or its directory is read-only: %w", path, err))
	case sqlite3.SQLITE_FULL:
		return dueq.Unavailable(fmt.Errorf("%s: the disk is full: %w", path, err))
	case sqlite3.SQLITE_CANTOPEN:
		if !canMakeFiles(filepath.Dir(path)) {
			return dueq.Unavailable(fmt.Errorf("%s: its directory is read-only, and there must be room for the journal: %w", path, err))
		}
		return dueq.Unavailable(fmt.Errorf("%s: the file cannot be opened: %w", path, err))
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return dueq.Unavailable(fmt.Errorf("%s: %w: %w", path, errBusy, err))
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM:
		return dueq.Unavailable(fmt.Errorf("%s: %w", path, err))
	}
	return fmt.Errorf("%s: %w", path, err)
}

// canMakeFiles tries whether files can be made in a directory.
func canMakeFiles(dir string) bool {
	file, err := os.CreateTemp(dir, ".dueq-*")
	if err != nil {
		return false
	}
	file.Close()
	os.Remove(file.Name())
	return true
}
