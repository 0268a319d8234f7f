// Package openstore turns the URL of a store into the store.
package openstore

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/httpapi"
	"github.com/dueq/dueq/memstore"
	"github.com/dueq/dueq/redisstore"
	"github.com/dueq/dueq/sqlitestore"
)

// Open opens the store at rawURL: redis://, redis+cluster://, redis+sentinel://
// and the same with rediss, http:// and https:// for what a server of dueq's
// keeps, sqlite:PATH for a file, which is made if it is missing, or memory: for
// a new one that only this process sees. An empty prefix is the store's
// default; files and memory have none, and a server chooses its own. Whoever
// opens a store closes it.
//
// Errors: a *dueq.FieldError "store" for a URL that names no store, or "prefix"
// for a server, and what the store says. No error shows the password or token
// of the URL.
func Open(ctx context.Context, rawURL, prefix string) (dueq.Store, error) {
	scheme, rest, _ := strings.Cut(rawURL, ":")
	switch {
	case strings.HasPrefix(scheme, "redis"):
		return openRedis(ctx, rawURL, prefix)
	case isHTTP(scheme):
		return openHTTP(ctx, rawURL, prefix)
	case scheme == "sqlite":
		return openFile(ctx, rawURL, rest)
	case rawURL == "memory:":
		return memstore.New(memstore.Options{}), nil
	case scheme == "memory":
		return nil, &dueq.FieldError{Field: "store", Reason: fmt.Sprintf("memory: takes nothing after the colon, not %q", rest)}
	}
	return nil, &dueq.FieldError{Field: "store", Reason: "is none of redis://HOST:PORT, redis+cluster://, redis+sentinel://, http://HOST:PORT, https://, sqlite:PATH and memory:"}
}

func isHTTP(scheme string) bool { return scheme == "http" || scheme == "https" }

// WithToken puts the secret of the environment variable DUEQ_TOKEN, if it is
// set, into the URL of a server that has none.
func WithToken(rawURL string, getenv func(name string) string) string {
	token := getenv("DUEQ_TOKEN")
	u, err := url.Parse(rawURL)
	if err != nil || token == "" || !isHTTP(u.Scheme) || u.User != nil {
		return rawURL
	}
	u.User = url.UserPassword("", token)
	return u.String()
}

func openHTTP(ctx context.Context, rawURL, prefix string) (dueq.Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, dueq.Unavailable(err)
	}
	if prefix != "" && prefix != redisstore.DefaultPrefix {
		return nil, &dueq.FieldError{Field: "prefix", Reason: "is for Redis; which keys a server uses is said where it is started"}
	}
	client, err := httpapi.Open(rawURL, httpapi.ClientOptions{})
	if err != nil {
		return nil, err
	}
	if err := client.Check(ctx); err != nil {
		_ = client.Close()
		return nil, err
	}
	return client, nil
}

func openRedis(ctx context.Context, rawURL, prefix string) (dueq.Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, dueq.Unavailable(err)
	}
	store, err := redisstore.Open(rawURL, redisstore.Options{Prefix: prefix})
	if err != nil {
		return nil, hidePassword(rawURL, err)
	}
	return store, nil
}

func openFile(ctx context.Context, rawURL, path string) (dueq.Store, error) {
	if path == "" || strings.HasPrefix(path, "//") {
		return nil, &dueq.FieldError{Field: "store", Reason: "is not sqlite:PATH, for example sqlite:/var/lib/dueq/dueq.db"}
	}
	if err := ctx.Err(); err != nil {
		return nil, dueq.Unavailable(err)
	}
	store, err := sqlitestore.Open(path, sqlitestore.Options{})
	if err != nil {
		return nil, err
	}
	return store, nil
}

// Redacted returns the URL of a store with *** in place of its passwords.
func Redacted(rawURL string) string {
	front, rest, ok := strings.Cut(rawURL, "//")
	if !ok || strings.HasPrefix(front, "sqlite") {
		return rawURL
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if user, _, ok := strings.Cut(rest[:at], ":"); ok {
			rest = user + ":***" + rest[at:]
		}
	}
	if before, after, ok := strings.Cut(rest, "sentinel_password="); ok {
		_, others, more := strings.Cut(after, "&")
		rest = before + "sentinel_password=***"
		if more {
			rest += "&" + others
		}
	}
	return front + "//" + rest
}

// hidePassword keeps what libraries put into errors, the URL as it was given
// or its password, out of err's text.
func hidePassword(rawURL string, err error) error {
	text := strings.ReplaceAll(err.Error(), rawURL, "the URL")
	for _, secret := range passwords(rawURL) {
		text = strings.ReplaceAll(text, secret, "***")
	}
	if text == err.Error() {
		return err
	}
	return &hidden{text, err}
}

// passwords returns the spellings of the passwords in a URL, also one that
// cannot be parsed: what stands between the first colon and the last @, and a
// sentinel's among the parameters.
func passwords(rawURL string) []string {
	_, rest, _ := strings.Cut(rawURL, "//")
	at := strings.LastIndexByte(rest, '@')
	_, password, _ := strings.Cut(rest[:max(at, 0)], ":")
	_, params, _ := strings.Cut(rest, "?")
	var spellings []string
	for _, secret := range []string{password, sentinelPassword(params)} {
		plain, _ := url.PathUnescape(secret)
		for _, text := range []string{secret, plain} {
			if text != "" {
				spellings = append(spellings, text)
			}
		}
	}
	return spellings
}

func sentinelPassword(params string) string {
	_, value, _ := strings.Cut(params, "sentinel_password=")
	value, _, _ = strings.Cut(value, "&")
	return value
}

type hidden struct {
	text string
	err  error
}

func (h *hidden) Error() string { return h.text }
func (h *hidden) Unwrap() error { return h.err }
