package view

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dueq/dueq"
)

func TestPayload(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"a":[1,"é",true,null]}`:       `{"body":{"a":[1,"é",true,null]}}`,
		`{"a": 1}`:                      `{"body":{"a":1},"body_base64":"eyJhIjogMX0="}`,
		`"<&>"`:                         `{"body":"<&>"}`,
		`-1.5e300`:                      `{"body":-1.5e300}`,
		`[1e400]`:                       `{"body_base64":"WzFlNDAwXQ=="}`,
		`"\ud83d\ude00"`:                `{"body":"\ud83d\ude00"}`,
		`"\\ud83d\n"`:                   `{"body":"\\ud83d\n"}`,
		`"\ud83d"`:                      `{"body_base64":"Ilx1ZDgzZCI="}`,
		`"\ud83dxxxxxx"`:                `{"body_base64":"Ilx1ZDgzZHh4eHh4eCI="}`,
		`"\ude00\ud83d"`:                `{"body_base64":"Ilx1ZGUwMFx1ZDgzZCI="}`,
		`null`:                          `{"body_base64":"bnVsbA=="}`,
		``:                              `{"body_base64":""}`,
		"\x00":                          `{"body_base64":"AA=="}`,
		"\"\xff\"":                      `{"body_base64":"Iv8i"}`,
		`{`:                             `{"body_base64":"ew=="}`,
		strings.Repeat("9", 400):        `{"body_base64":"OTk5`,
		strings.Repeat("9", 200):        `{"body":9999`,
		strings.Repeat(`[`, 100) + `]]`: `{"body_base64":"W1tb`,
		strings.Repeat("[", 101) + strings.Repeat("]", 101): `{"body_base64":"W1tb`,
		strings.Repeat("[", 100) + strings.Repeat("]", 100): `{"body":[[[`,
	} {
		got := encode(t, NewPayload([]byte(body)))
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
	if got := encode(t, NewPayload(nil)); got != "{}" {
		t.Errorf("no body is %s", got)
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

// FuzzPayload checks that every body comes back to the byte, and that what is
// shown as JSON can be read.
func FuzzPayload(f *testing.F) {
	for _, seed := range []string{`{"a": [1e400]}`, `"\ud83d\ude00"`, `[[1.5E-3]]`, "\xff", `"\\\""`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		text := encode(t, NewPayload(body))
		var got Payload
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !bytes.Equal(got.Bytes(), body) || got.Bytes() == nil && body != nil {
			t.Fatalf("%q came back as %q", body, got.Bytes())
		}
		var shown any
		if err := json.Unmarshal([]byte(text), &shown); err != nil {
			t.Fatalf("%s cannot be read: %v", text, err)
		}
		if s, ok := shown.(map[string]any)["body"].(string); ok && strings.ContainsRune(s, utf8.RuneError) && !bytes.Contains(body, []byte("\ufffd")) && !bytes.Contains(bytes.ToLower(body), []byte(`\ufffd`)) {
			t.Fatalf("%q is read as %q", body, s)
		}
	})
}

func TestInstant(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Time{
		`"2026-12-01T08:00:00.500Z"`: time.Date(2026, 12, 1, 8, 0, 0, 5e8, time.UTC),
		`null`:                       {},
	} {
		var got Instant
		if err := json.Unmarshal([]byte(text), &got); err != nil || !time.Time(got).Equal(want) || encode(t, got) != text {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	if err := json.Unmarshal([]byte(`"soon"`), new(Instant)); err == nil {
		t.Error("soon is a time")
	}
}

// Names in JSON are those of the settings, with the unit where there is one.
func TestSettings_has_every_setting(t *testing.T) {
	t.Parallel()
	fields := map[string]bool{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Settings]()) {
		fields[f.Tag.Get("json")] = true
	}
	for _, name := range dueq.SettingNames() {
		if !fields[name] && !fields[name+"_ms"] && !fields[name+"_percent"] {
			t.Errorf("%s is missing", name)
		}
	}
}
