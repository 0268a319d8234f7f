package sqlitestore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/sqlitestore"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	refuses := func(t *testing.T, path string, texts ...string) {
		t.Helper()
		store, err := sqlitestore.Open(path, sqlitestore.Options{})
		if err == nil {
			store.Close()
			t.Fatal("it opens")
		}
		for _, text := range append(texts, path) {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("got %q, want %q in it", err, text)
			}
		}
	}
	made := func(t *testing.T, sql string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "dueq.db")
		store, err := sqlitestore.Open(path, sqlitestore.Options{})
		must(t, err)
		must(t, store.Exec(sql))
		must(t, store.Close())
		return path
	}

	t.Run("makes a file for this user only, journal and directories too", func(t *testing.T) {
		dir := t.TempDir()
		store := open(t, filepath.Join(dir, "a", "b", "dueq.db"), sqlitestore.Options{})
		put(t, store, "q", "x")
		for name, want := range map[string]os.FileMode{
			"a": 0o700, "a/b": 0o700, "a/b/dueq.db": 0o600, "a/b/dueq.db-wal": 0o600, "a/b/dueq.db-shm": 0o600,
		} {
			info, err := os.Stat(filepath.Join(dir, name))
			must(t, err)
			if got := info.Mode().Perm(); got != want {
				t.Errorf("%s: mode %o, want %o", name, got, want)
			}
		}
	})
	t.Run("leaves one file behind when closed", func(t *testing.T) {
		path := made(t, "")
		if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 1 {
			t.Errorf("left are %v, %v", left, err)
		}
	})
	t.Run("finds what was there, also through a link", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "dueq.db")
		store, err := sqlitestore.Open(path, sqlitestore.Options{})
		must(t, err)
		put(t, store, "q", "x")
		_, err = store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"retries": "7"})
		must(t, err)
		must(t, store.Close())
		link := filepath.Join(t.TempDir(), "link.db")
		must(t, os.Symlink(path, link))
		store = open(t, link, sqlitestore.Options{})
		if s := stats(t, store, "q"); s.Scheduled != 1 || s.Totals.Scheduled != 1 {
			t.Errorf("got %+v", s)
		}
		settings, err := store.Settings(t.Context(), "q")
		if err != nil || settings.Retries != 7 || settings.Version != 1 || settings.Batch != dueq.DefaultSettings().Batch {
			t.Errorf("got %+v, %v", settings, err)
		}
	})
	t.Run("refuses a file of a newer dueq", func(t *testing.T) {
		refuses(t, made(t, "PRAGMA user_version = 2"), "newer dueq", "version 2")
	})
	t.Run("refuses a database of another program", func(t *testing.T) {
		refuses(t, made(t, "PRAGMA application_id = 7"), "another program")
	})
	t.Run("refuses what is no database, and leaves it alone", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "notes.txt")
		text := strings.Repeat("these are my notes\n", 100)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		refuses(t, path, "not an SQLite database")
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("it was changed: %v", err)
		}
	})
	t.Run("refuses a directory", func(t *testing.T) {
		refuses(t, t.TempDir(), "not a regular file")
	})
	t.Run("refuses an empty path and bad options", func(t *testing.T) {
		_, err := sqlitestore.Open("", sqlitestore.Options{})
		if !errors.Is(err, dueq.ErrInvalid) {
			t.Errorf("got %v, want invalid", err)
		}
		_, err = sqlitestore.Open(filepath.Join(t.TempDir(), "x.db"), sqlitestore.Options{Timeout: -1})
		if !errors.Is(err, dueq.ErrInvalid) {
			t.Errorf("got %v, want invalid", err)
		}
	})
}

func TestDamagedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "dueq.db")
	store, err := sqlitestore.Open(path, sqlitestore.Options{})
	must(t, err)
	for i := range 5 {
		putMany(t, store, "q", i*1000, 1000)
	}
	must(t, store.Close())
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	info, err := file.Stat()
	must(t, err)
	garbage := []byte(strings.Repeat("garbage!", int(info.Size()-3*4096)/8))
	_, err = file.WriteAt(garbage, 3*4096)
	must(t, err)
	must(t, file.Close())

	store, err = sqlitestore.Open(path, sqlitestore.Options{})
	if err == nil {
		defer store.Close()
		_, err = store.Claim(t.Context(), dueq.ClaimRequest{Queue: "q", Max: 1000})
		if err == nil {
			_, err = store.List(t.Context(), dueq.ListQuery{Queue: "q", State: dueq.StateScheduled, Limit: 1000})
		}
	}
	if err == nil || !strings.Contains(err.Error(), "damaged") || !strings.Contains(err.Error(), path) || errors.Is(err, dueq.ErrUnavailable) {
		t.Errorf("got %v, want that %s is damaged", err, path)
	}
}

// The file may not grow any more, so statements fail in the middle of a
// transaction: nothing of it stays.
func TestFileMayNotGrow(t *testing.T) {
	t.Parallel()
	store := open(t, file(t), sqlitestore.Options{})
	must(t, store.Exec("PRAGMA max_page_count = 50"))
	scheduled, failure := 0, error(nil)
	for ; failure == nil && scheduled < 10_000; scheduled += 100 {
		_, failure = store.Schedule(t.Context(), many("q", scheduled, 100))
	}
	scheduled -= 100
	var call *dueq.CallError
	if !errors.Is(failure, dueq.ErrUnavailable) || !errors.As(failure, &call) || call.MayHaveHappened {
		t.Errorf("got %v, want unavailable and that it did not happen", failure)
	}
	if got := len(dump(t, store, "q").Scheduled); got != scheduled || stats(t, store, "q").Totals.Scheduled != int64(scheduled) {
		t.Errorf("%d tasks are there, %d were acknowledged", got, scheduled)
	}
}
