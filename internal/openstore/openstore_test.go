package openstore_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/openstore"
	"github.com/dueq/dueq/internal/redistest"
)

func TestOpen(t *testing.T) {
	t.Run("memory gives a new store each time", func(t *testing.T) {
		first, err := openstore.Open(t.Context(), "memory:", "")
		if err != nil {
			t.Fatal(err)
		}
		second, err := openstore.Open(t.Context(), "memory:", "")
		if err != nil {
			t.Fatal(err)
		}
		item := dueq.Item{Queue: "q", Task: dueq.Task{ID: "a"}}
		if _, err := first.Schedule(t.Context(), []dueq.Item{item}); err != nil {
			t.Fatal(err)
		}
		stats, err := second.Stats(t.Context())
		if err != nil || len(stats) != 0 {
			t.Errorf("the second store has %v, %v; want nothing", stats, err)
		}
		if first.Close() != nil || second.Close() != nil {
			t.Error("close failed")
		}
	})

	t.Run("sqlite keeps tasks in a file", func(t *testing.T) {
		url := "sqlite:" + filepath.Join(t.TempDir(), "new", "dueq.db")
		for _, want := range []dueq.Status{dueq.StatusScheduled, dueq.StatusReplaced} {
			store, err := openstore.Open(t.Context(), url, "")
			if err != nil {
				t.Fatal(err)
			}
			outcomes, err := store.Schedule(t.Context(), []dueq.Item{{Queue: "q", Task: dueq.Task{ID: "a"}}})
			if err != nil || outcomes[0].Status != want {
				t.Errorf("got %v, %v; want %v", outcomes, err, want)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
	})

	for _, url := range []string{"memory:", "sqlite:" + filepath.Join(t.TempDir(), "dueq.db")} {
		t.Run("there are no replicas to wait for in "+url, func(t *testing.T) {
			store, err := openstore.Open(t.Context(), url, "")
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			_, err = store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"wait_replicas": "1"})
			var field *dueq.FieldError
			if !errors.As(err, &field) || field.Field != "wait_replicas" {
				t.Errorf("got %v, want a FieldError of wait_replicas", err)
			}
			if _, err := store.SetSettings(t.Context(), "q", dueq.SettingsPatch{"wait_replicas": "0"}); err != nil {
				t.Error(err)
			}
		})
	}

	t.Run("redis keeps tasks under the prefix", func(t *testing.T) {
		url := redistest.Start(t).URL()
		for _, prefix := range []string{"one:", "two:"} {
			store, err := openstore.Open(t.Context(), url, prefix)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			outcomes, err := store.Schedule(t.Context(), []dueq.Item{{Queue: "q", Task: dueq.Task{ID: "a"}}})
			if err != nil || outcomes[0].Status != dueq.StatusScheduled {
				t.Errorf("%s: got %v, %v; want scheduled", prefix, outcomes, err)
			}
		}
	})

	for _, url := range []string{"", "redis", "sqlite:", "sqlite://file", "http://localhost", "memory:x", "memory", "127.0.0.1:6379"} {
		t.Run("refuses "+url, func(t *testing.T) {
			_, err := openstore.Open(t.Context(), url, "")
			var field *dueq.FieldError
			if !errors.As(err, &field) || field.Field != "store" {
				t.Errorf("got %v, want a FieldError of store", err)
			}
		})
	}

	for _, url := range []string{
		"redis://:s3cret@127.0.0.1:1", "redis://user:s3cret@127.0.0.1:port", "redis://:s3cret@[::1", "rediss://:s3cret%2@127.0.0.1:1",
		"redis+cluster://:s3cret@127.0.0.1:1,127.0.0.1:2", "redis+cluster://u:s3cret@a,,b", "redis+sentinel://u:s3cret@127.0.0.1:1/m",
		"redis+sentinel://127.0.0.1:1/m?sentinel_user=u&sentinel_password=s3cret", "redis+sentinel://127.0.0.1:1/m?sentinel_password=s3cret%2",
		"redis+sentinel://127.0.0.1:1?sentinel_password=s3cret", "redis://127.0.0.1:1?sentinel_password=s3cret&x=y",
		"redis://u:s3cret@127.0.0.1:1/notanumber", "postgres://:s3cret@host", ":s3cret@host",
	} {
		t.Run("keeps the password of "+url, func(t *testing.T) {
			_, err := openstore.Open(t.Context(), url, "")
			if err == nil || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("got %v, want an error without the password", err)
			}
		})
	}
}

func TestDefault(t *testing.T) {
	for _, c := range []struct {
		goos, want string
		env        map[string]string
	}{
		{"linux", "sqlite:/home/u/.local/share/dueq/dueq.db", map[string]string{"HOME": "/home/u"}},
		{"linux", "sqlite:/data/dueq/dueq.db", map[string]string{"HOME": "/home/u", "XDG_DATA_HOME": "/data"}},
		{"linux", "sqlite:/home/u/.local/share/dueq/dueq.db", map[string]string{"HOME": "/home/u", "XDG_DATA_HOME": "relative"}},
		{"darwin", "sqlite:/Users/u/Library/Application Support/dueq/dueq.db", map[string]string{"HOME": "/Users/u"}},
		{"windows", "sqlite:" + filepath.Join("local", "dueq", "dueq.db"), map[string]string{"LocalAppData": "local"}},
		{"linux", "", nil},
		{"windows", "", map[string]string{"HOME": "/home/u"}},
	} {
		got, err := openstore.Default(func(name string) string { return c.env[name] }, c.goos)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s %v: got %q, %v; want %q", c.goos, c.env, got, err, c.want)
		}
	}
}
