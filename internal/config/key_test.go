package config

import (
	"strings"
	"testing"
)

// TestVariablesAndFlagsAreOneKeyEach would fail for the keys a.b_c and a_b.c,
// and for a variable that somebody else sets.
func TestVariablesAndFlagsAreOneKeyEach(t *testing.T) {
	t.Parallel()
	envs, flags := map[string]string{}, map[string]string{}
	for _, k := range keys {
		if other, twice := envs[k.env()]; twice {
			t.Errorf("%s sets %s and %s", k.env(), other, k.path)
		}
		if other, twice := flags[FlagName(k.path)]; twice {
			t.Errorf("--%s sets %s and %s", FlagName(k.path), other, k.path)
		}
		for _, other := range otherVariables {
			if front, any := strings.CutSuffix(other, "*"); k.env() == other || any && strings.HasPrefix(k.env(), front) {
				t.Errorf("%s belongs to others", k.env())
			}
		}
		envs[k.env()], flags[FlagName(k.path)] = k.path, k.path
	}
	if len(keys) < 15 || envs["DUEQ_LOG_LEVEL"] != "log.level" || flags["log-level"] != "log.level" {
		t.Errorf("%d keys: %v", len(keys), envs)
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "abc", 3}, {"listen", "lisen", 1}, {"listen", "listne", 2}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%q %q: got %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestSizeIsWrittenAsItIsRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{"0": 0, "1": 1, "1023": 1023, "1KiB": 1 << 10, "64KiB": 64 << 10, "1025": 1025, "4MiB": 4 << 20, "2147483647MiB": 2147483647 << 20} {
		if got, err := ParseSize(text); err != nil || got != want || want.String() != text {
			t.Errorf("%s: got %d, %v, written %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "KiB", "-1", "+1", "01", "1 KiB", "1kib", "1.5MiB", "1GiB", "0x10", "1_000", "2147483648"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}
