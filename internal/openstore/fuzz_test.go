package openstore_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/dueq/dueq/internal/openstore"
)

// FuzzOpen opens stores on servers that do not listen and checks that nothing
// shows the password.
func FuzzOpen(f *testing.F) {
	for _, seed := range [][3]string{
		{"redis://", "s3cr3t", "/0"}, {"rediss+sentinel://u", "s3cr%333t", "/main?sentinel_password=s3cr3t"}, {"redis+cluster://u", "s3cr3t ", ""},
		{"redis://u", "s3cr3t/x", "/x"}, {"redis://", "1?s3cr3t", ""}, {"redis://", "s3cr3t", "?nonsense=1"}, {"mysql://", "s3cr3t", ""}, {"sqlite", "s3cr3t", ""},
		{"http://redis", "s3cr3t", "/x"}, {"https://", "s3cr3t", "?redis"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, front, password, rest string) {
		const secret = "s3cr3t"
		if strings.Contains(front, secret) || !strings.Contains(password, secret) || strings.ContainsAny(rest, ",@") || !strings.Contains(front, "redis") {
			t.Skip("names other hosts, or no password")
		}
		if params, err := url.ParseQuery(rest); err != nil || len(params) > 1 || strings.Contains(rest, "conns") {
			t.Skip("opens more connections than the machine has")
		}
		store, err := openstore.Open(t.Context(), front+":"+password+"@127.0.0.1:1"+rest, "")
		if err == nil {
			_ = store.Close()
			t.Errorf("%q %q %q was opened", front, password, rest)
		} else if strings.Contains(err.Error(), secret) && !strings.Contains(rest, secret) {
			t.Errorf("%q %q %q: %v shows the password", front, password, rest, err)
		}
	})
}
