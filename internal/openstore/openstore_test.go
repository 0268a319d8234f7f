package openstore_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/openstore"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
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

	for _, url := range []string{"", "redis", "sqlite:", "sqlite://file", "http://", "http://localhost?a=b", "ftp://localhost", "memory:x", "memory", "127.0.0.1:6379"} {
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
		"http://s3cret@127.0.0.1:1", "http://u:s3cret@127.0.0.1:1", "https://:s3cret@127.0.0.1:port", "http://:s3cret@[::1",
		"http://127.0.0.1:1?token=s3cret", "http://127.0.0.1:1?s3cret", "http://:s3cret%00@127.0.0.1:1",
	} {
		t.Run("keeps the password of "+url, func(t *testing.T) {
			_, err := openstore.Open(t.Context(), url, "")
			if err == nil || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("got %v, want an error without the password", err)
			}
		})
	}
}

func TestRedacted(t *testing.T) {
	for url, want := range map[string]string{
		"redis://127.0.0.1:6379/1":                                 "redis://127.0.0.1:6379/1",
		"redis://user@127.0.0.1:6379":                              "redis://user@127.0.0.1:6379",
		"redis://user:1@127.0.0.1:6379":                            "redis://user:***@127.0.0.1:6379",
		"redis://:a@b:c@127.0.0.1:6379?pool_size=3":                "redis://:***@127.0.0.1:6379?pool_size=3",
		"redis+sentinel://u:s@h/m?sentinel_password=x&pool_size=3": "redis+sentinel://u:***@h/m?sentinel_password=***&pool_size=3",
		"redis+sentinel://h/m?sentinel_password=x":                 "redis+sentinel://h/m?sentinel_password=***",
		"sqlite:/data//a:b@c.db":                                   "sqlite:/data//a:b@c.db",
		"memory:":                                                  "memory:",
	} {
		if got := openstore.Redacted(url); got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
}

func TestOpenOfAServer(t *testing.T) {
	var auth atomic.Value
	known := true
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth.Store(r.URL.Path + " " + r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		if !known {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(401)
			_, _ = io.WriteString(w, `{"type":"urn:dueq:problem:unauthorized","title":"Token missing or not valid","status":401,"retryable":false}`)
			return
		}
		_, _ = io.WriteString(w, `{"info":{"title":"dueq"}}`)
	}))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	env := func(name string) string { return map[string]string{"DUEQ_TOKEN": "of/env"}[name] }
	for url, want := range map[string]string{
		"http://" + host:                "/openapi.json Bearer of/env",
		"http://" + host + "/sub/":      "/sub/openapi.json Bearer of/env",
		"http://:of_url@" + host + "/x": "/x/openapi.json Bearer of_url",
	} {
		for _, prefix := range []string{"", redisstore.DefaultPrefix} {
			store, err := openstore.Open(t.Context(), openstore.WithToken(url, env), prefix)
			if err != nil {
				t.Fatal(err)
			}
			if got := auth.Load(); got != want {
				t.Errorf("%s: asked %q, want %q", url, got, want)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	known = false
	if _, err := openstore.Open(t.Context(), s.URL, ""); err == nil || !strings.Contains(err.Error(), "Token missing or not valid") {
		t.Errorf("got %v, want what the server says", err)
	}
	_, err := openstore.Open(t.Context(), s.URL, "other:")
	if field := (*dueq.FieldError)(nil); !errors.As(err, &field) || field.Field != "prefix" {
		t.Errorf("got %v, want a FieldError of prefix", err)
	}
	for _, url := range []string{"redis://127.0.0.1", "sqlite:file", "memory:", "", "http://%", "mysql://h"} {
		if got := openstore.WithToken(url, env); got != url {
			t.Errorf("%q became %q", url, got)
		}
	}
	if got := openstore.WithToken("http://h", func(string) string { return "" }); got != "http://h" {
		t.Errorf("without a token the URL became %q", got)
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
