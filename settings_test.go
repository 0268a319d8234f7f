package dueq_test

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dueq/dueq"
)

// anySettings draws valid values of all settings, as they are typed.
func anySettings(t *rapid.T) dueq.SettingsPatch {
	duration := func(name string, low, high time.Duration) string {
		ms := rapid.Int64Range(low.Milliseconds(), high.Milliseconds()).Draw(t, name)
		return dueq.FormatDuration(time.Duration(ms) * time.Millisecond)
	}
	number := func(name string, low, high int) string {
		return rapid.Map(rapid.IntRange(low, high), strconv.Itoa).Draw(t, name)
	}
	const day = 24 * time.Hour
	return dueq.SettingsPatch{
		"batch": number("batch", 1, 1000), "concurrency": number("concurrency", 1, 10000), "timeout": duration("timeout", time.Millisecond, day),
		"lease": duration("lease", time.Second, day), "lease_max": duration("lease_max", day, 30*day), "retries": number("retries", 0, 100_000),
		"retry_first": duration("retry_first", time.Millisecond, 30*day), "retry_factor": rapid.SampledFrom([]string{"1", "1.5", "2", "100"}).Draw(t, "retry_factor"),
		"retry_cap": duration("retry_cap", time.Millisecond, 365*day), "retry_jitter": rapid.SampledFrom([]string{"0%", "12.5%", "100%", "7%", "33%"}).Draw(t, "retry_jitter"),
		"delivery": rapid.SampledFrom([]string{"at_least_once", "at_most_once"}).Draw(t, "delivery"),
		"max_late": rapid.OneOf(rapid.Just("off"), rapid.Just(duration("max_late", time.Millisecond, 3650*day))).Draw(t, "late"),
		"priority": rapid.SampledFrom([]string{"on", "off"}).Draw(t, "priority"), "dead_keep": duration("dead_keep", time.Second, 3650*day),
		"body_max": number("body_max", 0, 16<<20), "paused": rapid.SampledFrom([]string{"on", "off"}).Draw(t, "paused"),
		"wait_replicas": number("wait_replicas", 0, 10),
		"forward":       rapid.SampledFrom([]string{"off", "list", "stream", "list:out", "stream:a:b"}).Draw(t, "forward"),
		"push":          rapid.SampledFrom([]string{"off", "http://127.0.0.1:9/x", "https://example.org/hook?a=b"}).Draw(t, "push"),
	}
}

func TestSettings(t *testing.T) {
	t.Run("read back as they were typed and as they were stored", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			patch := anySettings(t)
			s, err := dueq.DefaultSettings().With(patch)
			if err != nil {
				t.Fatalf("%v: %v", patch, err)
			}
			if got := s.Format(); !maps.Equal(got, patch) {
				t.Errorf("typed %v, shown %v", patch, got)
			}
			fields := s.Encode(patch)
			got, err := dueq.DecodeSettings(fields)
			if err != nil || got != s {
				t.Errorf("stored %v, read %+v, %v; want %+v", fields, got, err, s)
			}
			back, err := s.With(dueq.SettingsPatch(dueq.DefaultSettings().Format()))
			if err != nil || back != dueq.DefaultSettings() {
				t.Errorf("back to the defaults: %+v, %v", back, err)
			}
		})
	})
	t.Run("are all in the test above", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			names, drawn := dueq.SettingNames(), slices.Sorted(maps.Keys(anySettings(t)))
			slices.Sort(names)
			if !slices.Equal(names, drawn) {
				t.Fatalf("there are %v, drawn %v", names, drawn)
			}
		})
	})
	t.Run("have the defaults that are documented", func(t *testing.T) {
		t.Parallel()
		want := map[string]string{
			"batch": "100", "concurrency": "100", "timeout": "3s", "lease": "30s", "lease_max": "1d", "retries": "3", "retry_first": "5s", "retry_factor": "2",
			"retry_cap": "1h", "retry_jitter": "10%", "delivery": "at_least_once", "max_late": "off", "priority": "off", "dead_keep": "7d", "body_max": "65536", "paused": "off", "wait_replicas": "0",
			"forward": "off", "push": "off",
		}
		if got := dueq.DefaultSettings().Format(); !maps.Equal(got, want) {
			t.Errorf("%v", got)
		}
	})
	t.Run("take the default again, and forget what was stored", func(t *testing.T) {
		t.Parallel()
		s, err := dueq.DefaultSettings().With(dueq.SettingsPatch{"batch": "7", "timeout": "9s", "max_late": "1h"})
		if err != nil {
			t.Fatal(err)
		}
		patch := dueq.SettingsPatch{"batch": " default ", "max_late": "default"}
		s, err = s.With(patch)
		if err != nil || s.Batch != 100 || s.Timeout != 9*time.Second || s.MaxLate != 0 {
			t.Errorf("%+v, %v", s, err)
		}
		if got := s.Encode(patch); !maps.Equal(got, map[string]string{"batch": "", "max_late_ms": ""}) {
			t.Errorf("stored %v", got)
		}
	})
	t.Run("are refused out of bounds, the name named", func(t *testing.T) {
		t.Parallel()
		for name, values := range map[string][]string{
			"batch":         {"0", "1001", "-1", "1.5", "", "many", "1e2", "99999999999999999999"},
			"concurrency":   {"0", "10001"},
			"timeout":       {"0s", "999us", "1.5ms", "24h1ms", "-3s", "3", "", "NaN"},
			"lease":         {"999ms", "30d1ms", "25h"},
			"lease_max":     {"999ms", "31d"},
			"retries":       {"-1", "100001"},
			"retry_first":   {"0", "31d"},
			"retry_factor":  {"0.99", "101", "NaN", "Inf", "x"},
			"retry_cap":     {"0", "366d"},
			"retry_jitter":  {"-1%", "101%", "NaN", "%", "x"},
			"delivery":      {"exactly_once", "", "At_least_once"},
			"max_late":      {"0", "0s", "-1s", "never", "3651d"},
			"priority":      {"maybe", "", "2"},
			"dead_keep":     {"0", "999ms", "3651d"},
			"body_max":      {"-1", "16777217"},
			"wait_replicas": {"-1", "11", "all"},
			"paused":        {"yes", ""},
			"forward":       {"", "set", "list:", "stream:a\nb", "LIST:x", "list:" + strings.Repeat("k", 513)},
			"push":          {"", "on", "ftp://a/b", "http://", "https:///x", "http://user:pw@a/b", "http://a/#x", "http://a/" + strings.Repeat("x", 2048)},
			"colour":        {"red"},
		} {
			for _, value := range values {
				s, err := dueq.DefaultSettings().With(dueq.SettingsPatch{name: value})
				var field *dueq.FieldError
				if !errors.As(err, &field) || field.Field != name {
					t.Errorf("%s=%q: %+v, %v; want a FieldError of it", name, value, s, err)
				}
			}
		}
	})
	t.Run("know that lease is at most lease_max, both ways", func(t *testing.T) {
		t.Parallel()
		_, err := dueq.DefaultSettings().With(dueq.SettingsPatch{"lease_max": "10s"})
		wantField(t, err, "lease")
		if _, err := dueq.DefaultSettings().With(dueq.SettingsPatch{"lease_max": "10s", "lease": "10s"}); err != nil {
			t.Error(err)
		}
	})
	t.Run("are readable however a store was damaged", func(t *testing.T) {
		t.Parallel()
		s, err := dueq.DecodeSettings(map[string]string{"batch": "x", "timeout_ms": "9000", "unknown": "1", "version": "12", "lease_ms": "99999999999999999"})
		if err == nil || s.Batch != 100 || s.Timeout != 9*time.Second || s.Version != 12 || s.Lease != 30*time.Second {
			t.Errorf("%+v, %v", s, err)
		}
		s, err = dueq.DecodeSettings(map[string]string{"timeout_ms": "-288230376151702744"}) // -2^58 ms and 9 s, in ns 9 s
		if wantField(t, err, "timeout_ms"); s.Timeout != 3*time.Second {
			t.Errorf("a timeout far below zero is read as %v", s.Timeout)
		}
		rapid.Check(t, func(t *rapid.T) {
			fields := dueq.DefaultSettings().Encode(anySettings(t))
			for name := range fields {
				fields[name] = rapid.String().Draw(t, name)
			}
			dueq.DecodeSettings(fields)
		})
	})
}

// FuzzSettings checks that a value is refused, the setting named, or is shown,
// stored and read back as it took effect.
func FuzzSettings(f *testing.F) {
	for name, value := range dueq.DefaultSettings().Format() {
		f.Add(name, value)
	}
	for _, value := range []string{"33.33333333%", "-0%", "1e-320%", "0x1p3", "1_0", "106751.99116730064d", "\xff", " default "} {
		f.Add("retry_jitter", value)
		f.Add("retry_factor", value)
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		patch := dueq.SettingsPatch{name: value}
		s, err := dueq.DefaultSettings().With(patch)
		if err != nil {
			if field := (*dueq.FieldError)(nil); !errors.As(err, &field) || field.Field != name && (name != "lease_max" || field.Field != "lease") {
				t.Errorf("%q=%q: %v, want a FieldError of it", name, value, err)
			}
			return
		}
		if got, err := dueq.DefaultSettings().With(s.Format()); err != nil || got != s {
			t.Errorf("%s=%q is %+v, shown as %q, which is %+v, %v", name, value, s, s.Format()[name], got, err)
		}
		stored := s.Encode(patch)
		maps.DeleteFunc(stored, func(_, raw string) bool { return raw == "" }) // to be forgotten
		if got, err := dueq.DecodeSettings(stored); err != nil || got != s {
			t.Errorf("%s=%q is %+v, stored as %q, which is %+v, %v", name, value, s, stored, got, err)
		}
	})
}

// FuzzDecodeSettings checks that a field of a store is refused, its name named
// and the default in force, or is in bounds and stored the same again.
func FuzzDecodeSettings(f *testing.F) {
	all := dueq.SettingsPatch(dueq.DefaultSettings().Format())
	for field, value := range dueq.DefaultSettings().Encode(all) {
		f.Add(field, value)
		f.Add(field, "-288230376151702744")
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		s, err := dueq.DecodeSettings(map[string]string{name: value})
		if err != nil {
			if field := (*dueq.FieldError)(nil); !errors.As(err, &field) || field.Field != name || s != dueq.DefaultSettings() {
				t.Errorf("%q=%q: %+v, %v; want the defaults and a FieldError of it", name, value, s, err)
			}
			return
		}
		version := s.Version
		s.Version = 0
		got, err := dueq.DecodeSettings(s.Encode(all))
		if err != nil || got != s {
			t.Errorf("%s=%q (version %d) is %+v, stored again it is %+v, %v", name, value, version, s, got, err)
		}
	})
}
