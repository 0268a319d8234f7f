package config

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dueq/dueq"
)

// validate refuses values that are wrong, each by itself and then together.
func (l *loader) validate(cfg *Config) {
	l.validateHidden(cfg)
	l.validateListen(cfg)
	for i, o := range cfg.TrustedOrigins {
		if err := new(http.CrossOriginProtection).AddTrustedOrigin(o); err != nil {
			l.refuse(item("trusted_origins", i), "%q is not https://HOST or https://HOST:PORT", o)
		}
	}
	l.validateTokens(cfg.Tokens)
	l.validateLimits(cfg.Limits)
	l.validatePush(cfg.Push)
	l.within("metrics.max_queues", cfg.Metrics.MaxQueues, 1, 100_000)
	l.oneOf("log.level", cfg.Log.Level, "debug", "info", "warn", "error")
	l.oneOf("log.format", cfg.Log.Format, "text", "json")
	l.lasts("drain", cfg.Drain, 0, time.Hour)
	l.lasts("grace", cfg.Grace, 0, time.Hour)
	l.validateReach(cfg)
}

func item(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// validateHidden refuses what Print has put in place of secrets.
func (l *loader) validateHidden(cfg *Config) {
	if strings.Contains(cfg.Store, ":"+hidden+"@") || strings.Contains(cfg.Store, "="+hidden) {
		l.refuse("store", "has %s where the password was before --print-config hid it", hidden)
	}
	for i, t := range cfg.Tokens {
		if strings.Contains(t.Hash, hidden) {
			l.refuse(item("tokens", i)+".hash", "is %s, which --print-config put in its place", t.Hash)
		}
	}
	for i, s := range cfg.Push.Secrets {
		for j, secret := range s.Secrets {
			if strings.Contains(secret, hidden) {
				l.refuse(item(item("push.secrets", i)+".secrets", j), "is %s, which --print-config put in its place", secret)
			}
		}
	}
}

func (l *loader) validateListen(cfg *Config) {
	if len(cfg.Listen) == 0 {
		l.refuse("listen", "is empty")
	}
	for i, address := range cfg.Listen {
		_, port, _ := net.SplitHostPort(address)
		if err := checkAddress(address); err != nil {
			l.refuse(item("listen", i), "%q %v", address, err)
		} else if port != "0" && slices.Contains(cfg.Listen[:i], address) {
			l.refuse(item("listen", i), "%q is there already", address)
		}
	}
}

// checkAddress checks HOST:PORT or unix:PATH.
func checkAddress(address string) error {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if !filepath.IsAbs(path) || len(path) > 100 {
			return fmt.Errorf("is not unix: and an absolute path of at most 100 bytes")
		}
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if n, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil || strconv.FormatUint(n, 10) != port || strings.ContainsAny(host, "/ ") {
		return fmt.Errorf("is not HOST:PORT, :PORT or unix:PATH")
	}
	return nil
}

// isLocal tells whether only this machine can reach an address of listen.
// Names other than localhost may be anything.
func isLocal(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// validateReach lets strangers in only who were given a token, or if somebody
// insists. It says nothing while other things are wrong, such as the tokens.
func (l *loader) validateReach(cfg *Config) {
	if len(cfg.Tokens) > 0 || cfg.AnyHost || len(l.problems) > 0 {
		return
	}
	for i, address := range cfg.Listen {
		if !isLocal(address) {
			l.refuse(item("listen", i), "%q can be reached from other machines and there are no tokens: add one (dueq token NAME --scope publish,consume), listen on 127.0.0.1, or insist with insecure_any_host", address)
		}
	}
}

func (l *loader) validateTokens(tokens []Token) {
	names, hashes := map[string]bool{}, map[string]bool{}
	for i, t := range tokens {
		path := item("tokens", i)
		switch {
		case !IsTokenName(t.Name):
			l.refuse(path+".name", "%q is not a name of 1 to 64 letters, digits and . _ -", t.Name)
		case names[t.Name]:
			l.refuse(path+".name", "%q is there already", t.Name)
		}
		sum, ok := strings.CutPrefix(t.Hash, "sha256:")
		raw, err := hex.DecodeString(sum)
		switch {
		case !ok || err != nil || len(raw) != 32 || sum != strings.ToLower(sum):
			l.refuse(path+".hash", "is not sha256: and 64 digits 0-9 a-f; dueq token makes one")
		case hashes[t.Hash]:
			l.refuse(path+".hash", "is that of another token")
		}
		names[t.Name], hashes[t.Hash] = true, true
		l.validateRights(path, t)
	}
}

func (l *loader) validateRights(path string, t Token) {
	if len(t.Scopes) == 0 {
		l.refuse(path+".scopes", "is empty; there are %s", strings.Join(Scopes, ", "))
	}
	for i, scope := range t.Scopes {
		l.oneOf(item(path+".scopes", i), scope, Scopes...)
		if slices.Contains(t.Scopes[:i], scope) {
			l.refuse(item(path+".scopes", i), "%q is there already", scope)
		}
	}
	for i, pattern := range t.Queues {
		if err := CheckPattern(pattern); err != nil {
			l.refuse(item(path+".queues", i), "%v", err)
		}
	}
}

// IsTokenName tells whether s can be the name of a token.
func IsTokenName(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
	})
}

// CheckPattern tells what is wrong with a pattern of queues: a name, where * is
// any text.
func CheckPattern(pattern string) error {
	if pattern == "" || dueq.ValidateQueue(strings.ReplaceAll(pattern, "*", "x")) != nil {
		return fmt.Errorf("%q is not the name of a queue, in which * is any text", pattern)
	}
	return nil
}

func (l *loader) validateLimits(limits Limits) {
	l.within("limits.member", limits.Member, 1, dueq.MemberMax)
	l.sized("limits.header", limits.Header, 8<<10, 1<<20)
	l.lasts("limits.header_timeout", limits.HeaderTimeout, 100*time.Millisecond, time.Hour)
	l.lasts("limits.idle_timeout", limits.IdleTimeout, 100*time.Millisecond, time.Hour)
	l.within("limits.open_polls", limits.OpenPolls, 1, 1_000_000)
	l.within("limits.open_streams", limits.OpenStreams, 1, 1_000_000)
}

func (l *loader) validatePush(push Push) {
	patterns := map[string]bool{}
	for i, s := range push.Secrets {
		path := item("push.secrets", i)
		if err := CheckPattern(s.Queue); err != nil {
			l.refuse(path+".queue", "%v", err)
		} else if patterns[s.Queue] {
			l.refuse(path+".queue", "%q is there already", s.Queue)
		}
		patterns[s.Queue] = true
		l.validateSecrets(path, s)
	}
	l.lasts("push.timeout", push.Timeout, 0, 24*time.Hour)
	for i, network := range push.AllowedNetworks {
		if p, err := netip.ParsePrefix(network); err != nil || p != p.Masked() {
			l.refuse(item("push.allowed_networks", i), "%q is not a network like 10.0.0.0/8", network)
		}
	}
}

func (l *loader) validateSecrets(path string, s PushSecret) {
	at := path + ".secrets"
	if s.SecretsFile != "" {
		at = path + ".secrets_file"
	}
	if n := len(s.Secrets); n == 0 || n > 2 {
		l.refuse(at, "holds %d secrets, it must be 1, or 2 while one takes the place of the other", n)
	}
	for i, secret := range s.Secrets {
		key := item(at, i)
		if err := checkSecret(secret); err != nil {
			l.refuse(key, "%v", err)
		}
	}
}

func (l *loader) oneOf(path, word string, words ...string) {
	if !slices.Contains(words, word) {
		l.refuse(path, "%q is not one of %s", word, strings.Join(words, ", "))
	}
}

func (l *loader) within(path string, n, low, high int) {
	if n < low || n > high {
		l.refuse(path, "%d is not from %d to %d", n, low, high)
	}
}

func (l *loader) sized(path string, n, low, high Size) {
	if n < low || n > high {
		l.refuse(path, "%v is not from %v to %v", n, low, high)
	}
}

func (l *loader) lasts(path string, d, low, high time.Duration) {
	if d < low || d > high {
		l.refuse(path, "%s is not from %s to %s", dueq.FormatDuration(d), dueq.FormatDuration(low), dueq.FormatDuration(high))
	}
}
