package redisstore

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dueq/dueq"
)

func TestURL_says_where_the_servers_are(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]struct {
		addrs  []string
		master string
		db     int
		tls    bool
	}{
		"redis://":                                  {addrs: []string{"localhost:6379"}},
		"redis://h":                                 {addrs: []string{"h:6379"}},
		"redis://h:1":                               {addrs: []string{"h:1"}},
		"redis://h:1/":                              {addrs: []string{"h:1"}},
		"redis://h:1/7":                             {addrs: []string{"h:1"}, db: 7},
		"redis://h?db=7":                            {addrs: []string{"h:6379"}, db: 7},
		"redis://[::1]":                             {addrs: []string{"[::1]:6379"}},
		"redis://[::1]:1/2":                         {addrs: []string{"[::1]:1"}, db: 2},
		"redis://u:p@[fe80::1]:1":                   {addrs: []string{"[fe80::1]:1"}},
		"rediss://h/3":                              {addrs: []string{"h:6379"}, db: 3, tls: true},
		"redis+cluster://":                          {addrs: []string{"localhost:6379"}},
		"redis+sentinel:///m":                       {addrs: []string{"localhost:26379"}, master: "m"},
		"redis+cluster://h":                         {addrs: []string{"h:6379"}},
		"redis+cluster://a,b:2,[::1],[::2]:4":       {addrs: []string{"a:6379", "b:2", "[::1]:6379", "[::2]:4"}},
		"redis+cluster://[::1]:1,b/0":               {addrs: []string{"[::1]:1", "b:6379"}},
		"rediss+cluster://u:p@a,b/":                 {addrs: []string{"a:6379", "b:6379"}, tls: true},
		"redis+sentinel://a/m":                      {addrs: []string{"a:26379"}, master: "m"},
		"redis+sentinel://a:1,b,[::1]/my-master":    {addrs: []string{"a:1", "b:26379", "[::1]:26379"}, master: "my-master"},
		"redis+sentinel://[::1],b/m/5":              {addrs: []string{"[::1]:26379", "b:26379"}, master: "m", db: 5},
		"rediss+sentinel://u:p@a,b/m/5?pool_size=3": {addrs: []string{"a:26379", "b:26379"}, master: "m", db: 5, tls: true},
	} {
		src, err := parseURL(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		o := src.options
		if !slices.Equal(o.Addrs, want.addrs) || o.MasterName != want.master || o.DB != want.db || (o.TLSConfig != nil) != want.tls {
			t.Errorf("%s: got %q, master %q, database %d, TLS %v, want %+v", url, o.Addrs, o.MasterName, o.DB, o.TLSConfig != nil, want)
		}
		if cluster := strings.Contains(url, "cluster"); o.IsClusterMode != cluster {
			t.Errorf("%s: cluster is %v", url, o.IsClusterMode)
		}
		if o.TLSConfig != nil && o.TLSConfig.ServerName != "" {
			t.Errorf("%s: every server is to be called %s", url, o.TLSConfig.ServerName)
		}
	}
}

func TestURL_says_who_calls_and_how(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{"redis://u:p%40%2F@h/", "rediss://u:p%40%2F@h/", "redis+cluster://u:p%40%2F@h,i/",
		"rediss+cluster://u:p%40%2F@h,i/", "redis+sentinel://u:p%40%2F@h,i/m", "rediss+sentinel://u:p%40%2F@h,i/m"} {
		src, err := parseURL(layout + "?prefix=shop:&pool_size=3&protocol=2&client_name=me&min_idle_conns=1&max_active_conns=9")
		if err != nil {
			t.Errorf("%s: %v", layout, err)
			continue
		}
		o := src.options
		if o.Username != "u" || o.Password != "p@/" {
			t.Errorf("%s: user %q, password %q", layout, o.Username, o.Password)
		}
		if src.prefix != "shop:" || o.PoolSize != 3 || o.Protocol != 2 || o.ClientName != "me" || o.MinIdleConns != 1 || o.MaxActiveConns != 9 {
			t.Errorf("%s: lost a parameter: %+v, prefix %q", layout, o, src.prefix)
		}
	}
	src, err := parseURL("redis+sentinel://h/m?sentinel_user=su&sentinel_password=sp%26")
	if err != nil || src.options.SentinelUsername != "su" || src.options.SentinelPassword != "sp&" || src.options.Password != "" {
		t.Errorf("sentinel's user: got %+v, %v", src.options, err)
	}
}

func TestURL_refuses_what_it_cannot_honour(t *testing.T) {
	t.Parallel()
	garbage := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(garbage, []byte("-----BEGIN CERTIFICATE-----\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"":                                      "is none of",
		"redis":                                 "is none of",
		"redis:h":                               "is none of",
		"h:6379":                                "is none of",
		"Redis://h":                             "is none of",
		"redis+tls://h":                         "is none of",
		"unix:///tmp/redis.sock":                "is none of",
		"redis://a,b":                           "several hosts",
		"rediss://a:1,b:2/3":                    "several hosts",
		"redis://,":                             "empty host",
		"redis://h?pool_size=%zz":               "cannot be read",
		"redis+cluster://a,,b":                  "empty host",
		"redis+cluster://a,":                    "empty host",
		"redis+cluster://,a":                    "empty host",
		"redis+cluster://a,:1":                  "empty host",
		"redis+cluster://a/1":                   "only database 0",
		"redis+cluster://a?db=2":                "only database 0",
		"redis+cluster://a/m":                   "not a valid URL",
		"redis+sentinel://":                     "names no master",
		"redis+sentinel://a":                    "names no master",
		"redis+sentinel://a,b/":                 "names no master",
		"redis+sentinel://a//3":                 "names no master",
		"redis+sentinel://,a/m":                 "empty host",
		"redis+sentinel://a,/m":                 "empty host",
		"redis+sentinel://a/m/n":                "not a valid URL",
		"redis+sentinel://a/m/1/2":              "not a valid URL",
		"redis://h/x":                           "not a valid URL",
		"redis://h/1/2":                         "not a valid URL",
		"redis://[::1":                          "not a valid URL",
		"redis://h:port":                        "not a valid URL",
		"redis://h?nonsense=1":                  "not a valid URL",
		"redis+cluster://a?nonsense=1":          "not a valid URL",
		"redis+sentinel://a/m?nonsense=1":       "not a valid URL",
		"redis://h?pool_size=many":              "not a valid URL",
		"redis://h?ca=" + garbage:               "only rediss",
		"redis+cluster://h?ca=" + garbage:       "only rediss",
		"rediss://h?ca=" + garbage:              "no certificate",
		"rediss://h?ca=" + garbage + "-not":     "cannot be read",
		"redis://h?sentinel_user=u":             "no sentinels",
		"redis+cluster://h?sentinel_password=p": "no sentinels",
	} {
		_, err := parseURL(url)
		var field *dueq.FieldError
		if !errors.As(err, &field) || field.Field != "store" || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want a FieldError of store naming %q", url, err, want)
		}
	}
}

func TestURL_with_a_bad_prefix_is_refused(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{"redis://127.0.0.1:1", "redis+cluster://127.0.0.1:1", "redis+sentinel://127.0.0.1:1/m"} {
		for _, prefix := range []string{"{a}", "a b", "a%7Bb", "%C3%A9", "%00"} {
			_, err := Open(layout+"?prefix="+prefix, Options{})
			var field *dueq.FieldError
			if !errors.As(err, &field) || field.Field != "prefix" {
				t.Errorf("%s, %s: got %v, want a FieldError of prefix", layout, prefix, err)
			}
		}
	}
}

func TestURL_errors_show_no_password(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis+cluster://u:s3cr3t@a,b/x", "redis+cluster://u:s3cr3t@a,,b", "redis+cluster://u:s3cr3t@a:x,b",
		"redis+cluster://u:s3cr3t,x@a,b/x", "redis+cluster://u:s3cr3t/@a,b", "redis+sentinel://u:s3cr3t@a,b",
		"redis+sentinel://u:s3cr3t@a/m/x", "redis+sentinel://a?sentinel_password=s3cr3t",
		"redis+sentinel://a/m?sentinel_password=s3cr3t&nonsense=1", "redis://h?sentinel_password=s3cr3t",
		"redis+sentinel://a/m?sentinel_password=s3cr3t%zz", "redis+sentinel://a:x/m?sentinel_password=s3cr3t",
		"redis://h?password=s3cr3t", "redis+sentinel://:s3cr3t@a:1:2/m", "rediss://u:s3cr3t@h?ca=/nowhere",
	} {
		_, err := parseURL(url)
		if err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: got %v, want an error without the password", url, err)
		}
	}
}
