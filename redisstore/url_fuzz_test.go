package redisstore_test

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/redisstore"
)

// FuzzURL puts a password into a URL and checks that the URL is refused without
// showing it, or names only hosts that can be dialled.
func FuzzURL(f *testing.F) {
	for _, seed := range [][4]string{
		{"redis://", "", "", "127.0.0.1:6379/3"}, {"rediss+sentinel://u", "", "", "h1,h2:1/main/2?prefix=x:"}, {"redis+cluster://u", "a", "%2F", "h1,h2"},
		{"redis://", "1?", "", "host"}, {"redis://u", "/", "?", "host"}, {"redis://u:a@b?c", "", "", "h"}, {"redis+cluster://", "", "", ",h1"},
		{"redis+cluster://", "", "", "h1,"}, {"redis+cluster://", "", "", "h1,h2:"}, {"redis+cluster://", "", "", "h1,h 2"}, {"redis+cluster://", "", "", "h1,h2:port"},
		{"redis://", "", "", "h?pool_size=x&prefix=%zz"}, {"redis+sentinel://", "", "", "[::1],::1/m"}, {"redis://[", "", "", "]"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	f.Fuzz(func(t *testing.T, front, before, after, rest string) {
		const secret = "s3cr3t"
		raw := front + ":" + before + secret + after + "@" + rest
		options, _, err := redisstore.ParseURL(raw)
		var field *dueq.FieldError
		switch {
		case err == nil:
			wantHosts(t, raw, options.Addrs)
		case !errors.As(err, &field) || field.Field != "store":
			t.Errorf("%q: %v, want a FieldError of store", raw, err)
		case strings.Contains(err.Error(), secret) && !strings.Contains(front+rest, secret):
			t.Errorf("%q: the error shows the password: %v", raw, err)
		}
	})
}

func wantHosts(t *testing.T, raw string, addrs []string) {
	t.Helper()
	for _, addr := range addrs {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
			t.Errorf("%q was accepted, with the address %q", raw, addr)
		}
	}
	if len(addrs) == 0 {
		t.Errorf("%q was accepted without an address", raw)
	}
}

// FuzzURLParts writes a URL and checks that it is read as it was meant.
func FuzzURLParts(f *testing.F) {
	f.Add("user", "p:w@/?#%", "delay:x:", "main", uint8(0), uint8(3), uint8(1))
	f.Add("", "\xff ,", "", "my/master", uint8(1), uint8(0), uint8(3))
	f.Add("", "", "a&b=c", "", uint8(2), uint8(15), uint8(2))
	f.Fuzz(func(t *testing.T, user, password, prefix, master string, layout, db, hosts uint8) {
		name := []string{"redis", "redis+cluster", "redis+sentinel"}[layout%3]
		u := url.URL{Scheme: name, User: url.UserPassword(user, password), RawQuery: url.Values{"prefix": {prefix}}.Encode()}
		var want []string
		switch name {
		case "redis":
			hosts, master = 1, ""
			u.Path = fmt.Sprint("/", db)
		case "redis+cluster":
			db, master = 0, ""
		case "redis+sentinel":
			master = "m" + strings.Map(func(r rune) rune { return r&0x3f + '@' }, master)
			u = *u.JoinPath(master, fmt.Sprint(db))
		}
		var named []string
		for i := range max(1, hosts%5) {
			named = append(named, fmt.Sprintf("h%d:%d", i, 7000+int(i)))
			want = append(want, named[i])
		}
		u.Host = strings.Join(named, ",")
		login, rest, _ := strings.Cut(u.String(), "@")
		raw := login + "@" + strings.ReplaceAll(rest, "@", "%40")
		options, gotPrefix, err := redisstore.ParseURL(raw)
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		if options.Username != user || options.Password != password || options.DB != int(db) || gotPrefix != prefix ||
			options.MasterName != master || !slices.Equal(options.Addrs, want) || options.IsClusterMode != (name == "redis+cluster") {
			t.Errorf("%q is read as user %q, password %q, database %d, prefix %q, master %q, hosts %q", raw,
				options.Username, options.Password, options.DB, gotPrefix, options.MasterName, options.Addrs)
		}
	})
}

func TestURL_that_is_nearly_right_is_refused(t *testing.T) {
	t.Parallel()
	for raw, reason := range map[string]string{
		"redis+cluster://,h1":                         "empty host",
		"redis+cluster://h1,,h2":                      "empty host",
		"redis+cluster://h1,h2,":                      "empty host",
		"redis+cluster://h1,h 2":                      "not a valid URL",
		"redis+cluster://h1,h2:port":                  "not a valid URL",
		"redis://h1,h2":                               "several hosts",
		"redis://h1?prefix=%zz":                       "cannot be read",
		"redis+sentinel://h1/m?sentinel_password=%zz": "cannot be read",
		"redis://u:a/b@h":                             "written %2F",
		"redis://:1?b@h":                              "written %2F",
		"redis://h?client_name=a@b":                   "written %40",
	} {
		_, _, err := redisstore.ParseURL(raw)
		var field *dueq.FieldError
		if !errors.As(err, &field) || field.Field != "store" || !strings.Contains(field.Reason, reason) {
			t.Errorf("%s: %v, want a FieldError of store that says %q", raw, err, reason)
		}
	}
}
