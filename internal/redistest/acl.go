package redistest

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// WithUser adds an ACL user with a password and rules, for example "~delay:*"
// and "+@all". Without rules it may log in and nothing else. The default user
// stays as it is.
func WithUser(name, password string, rules ...string) Option {
	return func(o *options) {
		line := fmt.Sprintf("%s on %q %s", name, ">"+password, strings.Join(rules, " "))
		o.settings = append(o.settings, setting{"user", line})
		if o.users == nil {
			o.users = make(map[string]string)
		}
		o.users[name] = password
	}
}

// UserURL returns URL for a user that WithUser added.
func (s *Server) UserURL(name string) string {
	s.t.Helper()
	password, ok := s.users[name]
	if !ok {
		s.t.Fatalf("redistest: no user %s; add it WithUser", name)
	}
	u := newURL("redis", s.Addr(), "")
	u.User = url.UserPassword(name, password)
	return u.String()
}

// Denial is one entry of ACL LOG: what was denied to whom, and how often.
type Denial struct {
	Count  int64
	Reason string // command, key, channel or auth
	Object string // the command, key, channel or user that was denied
	User   string
}

// Denials returns what the server has denied since it started or since
// ResetDenials, the latest first. Redis keeps 128 entries.
func (s *Server) Denials(t testing.TB) []Denial {
	t.Helper()
	entries := s.mustCall(t, "ACL", "LOG").items
	denials := make([]Denial, len(entries))
	for i, entry := range entries {
		fields := entry.fields()
		count, _ := strconv.ParseInt(fields["count"], 10, 64)
		denials[i] = Denial{count, fields["reason"], fields["object"], fields["username"]}
	}
	return denials
}

// Denied returns how many commands the entries of Denials stand for.
func (s *Server) Denied(t testing.TB) int64 {
	t.Helper()
	var n int64
	for _, denial := range s.Denials(t) {
		n += denial.Count
	}
	return n
}

// ResetDenials empties the list of Denials.
func (s *Server) ResetDenials(t testing.TB) {
	t.Helper()
	s.mustCall(t, "ACL", "LOG", "RESET")
}

// fields returns an aggregate of names and values in turn as a map.
func (v value) fields() map[string]string {
	fields := make(map[string]string)
	for i := 0; i+1 < len(v.items); i += 2 {
		fields[v.items[i].text] = v.items[i+1].text
	}
	return fields
}
