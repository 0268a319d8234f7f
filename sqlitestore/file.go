package sqlitestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dueq/dueq"
)

// prepareFile returns the absolute path of the file. A file that is missing is
// made, for this user only, and so are its directories.
//
// A file that is there is never opened here: closing it would end the locks
// that SQLite holds on it for other stores of this process.
func prepareFile(path string) (string, error) {
	if path == "" {
		return "", &dueq.FieldError{Field: "store", Reason: "has no path of a file"}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	if err := refuseNetwork(filepath.Dir(path)); err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: it is not a regular file", path)
	case err == nil:
		return filepath.EvalSymlinks(path) // the journal lies beside the file itself
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return path, nil // another process made it just now
	}
	if err != nil {
		return "", err
	}
	return path, file.Close()
}

// networkError says on which kind of file system the file would lie. Locks
// and shared memory do not work there as SQLite needs them.
func networkError(dir, kind string) error {
	return fmt.Errorf("%s: it is on a network file system (%s), where several processes would damage the file; use a local disk", dir, kind)
}
