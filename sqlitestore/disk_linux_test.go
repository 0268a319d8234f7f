package sqlitestore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/sqlitestore"
)

func TestNetworkFileSystemsAreKnownByTheirMounts(t *testing.T) {
	t.Parallel()
	mounts := "/dev/vda / ext4 rw 0 0\nh:/x /mnt/x fuse.sshfs rw 0 0\n/dev/y /mnt/x/y fuseblk rw 0 0\n"
	for dir, want := range map[string]string{"/home": "", "/mnt/x": "fuse.sshfs", "/mnt/x/a/b": "fuse.sshfs", "/mnt/xy": "", "/mnt/x/y/z": ""} {
		if got := sqlitestore.FuseKind(dir, mounts); got != want {
			t.Errorf("%s: got %q, want %q", dir, got, want)
		}
	}
}

func TestReadOnlyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	protect := func() error { return os.Chmod(filepath.Join(dir, "dueq.db"), 0o400) }
	if os.Getuid() == 0 {
		dir = tmpfs(t, "4m")
		protect = func() error { return syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "") }
	}
	path := filepath.Join(dir, "dueq.db")
	store, err := sqlitestore.Open(path, sqlitestore.Options{})
	must(t, err)
	put(t, store, "q", "x")
	must(t, store.Close())
	must(t, protect())
	_, err = sqlitestore.Open(path, sqlitestore.Options{})
	if err == nil || !strings.Contains(err.Error(), "read-only") || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want that %s is read-only", err, path)
	}
}

// The disk fills up under load. What was acknowledged is there, what was not
// says that it did not happen, and all goes on when there is room again.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir, makeRoom := t.TempDir(), func(store *sqlitestore.Store) error { return store.Exec("PRAGMA max_page_count = 1000000") }
	if os.Getuid() == 0 {
		dir = tmpfs(t, "5m")
		ballast := filepath.Join(dir, "ballast")
		must(t, os.WriteFile(ballast, make([]byte, 3<<20), 0o600))
		makeRoom = func(*sqlitestore.Store) error { return os.Remove(ballast) }
	}
	path := filepath.Join(dir, "dueq.db")
	store := open(t, path, sqlitestore.Options{})
	must(t, store.Exec("PRAGMA max_page_count = 250"))
	if os.Getuid() == 0 {
		must(t, store.Exec("PRAGMA max_page_count = 1000000"))
	}
	scheduled, failure := 0, error(nil)
	for ; failure == nil && scheduled < 100_000; scheduled += 100 {
		_, failure = store.Schedule(t.Context(), many("q", scheduled, 100))
	}
	scheduled -= 100
	var call *dueq.CallError
	if !errors.Is(failure, dueq.ErrUnavailable) || !strings.Contains(failure.Error(), "the disk is full") ||
		!strings.Contains(failure.Error(), path) || !errors.As(failure, &call) || call.MayHaveHappened {
		t.Errorf("got %v after %d tasks, want that the disk of %s is full and that it did not happen", failure, scheduled, path)
	}
	if err := store.Probe(t.Context()); os.Getuid() == 0 && (!errors.Is(err, dueq.ErrUnavailable) || !strings.Contains(err.Error(), "the disk is full")) {
		t.Errorf("a probe says %v, want that the disk is full", err)
	}
	if got := stats(t, store, "q").Scheduled; got != int64(scheduled) {
		t.Errorf("%d tasks are there, %d were acknowledged", got, scheduled)
	}
	must(t, makeRoom(store))
	must(t, store.Probe(t.Context()))
	putMany(t, store, "q", scheduled, 100)
	if answer, err := store.Integrity(); err != nil || answer != "ok\n" {
		t.Errorf("integrity: %s, %v", answer, err)
	}
	for left := scheduled + 100; left > 0; {
		n := claimAck(t, store)
		if n == 0 {
			t.Fatalf("%d tasks are missing", left)
		}
		left -= n
	}
}

// tmpfs mounts a file system of some size until the end of the test.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("root may not mount here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
