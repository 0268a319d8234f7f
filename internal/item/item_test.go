package item

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

func TestNew_reads_back(t *testing.T) {
	t.Parallel()
	tasks := []dueq.Task{
		{ID: "a"}, {ID: "order:1", Kind: "k"}, {ID: "a", Kind: "k", Priority: dueq.P(0), Trace: "t/1"}, {ID: "ü", Priority: dueq.P(9)},
		{ID: "a", Body: []byte{}}, {ID: "a", Body: []byte(`{"n": [1, 1e400]}`)}, {ID: "a", Body: []byte("null")}, {ID: "a", Body: []byte("\x00\xff")}, {ID: "a", Body: []byte(`"<é>"`)},
	}
	whens := map[dueq.When]dueq.When{ // as it comes back
		{}:                                     {},
		dueq.In(90 * time.Minute):              dueq.In(90 * time.Minute),
		dueq.In(1):                             dueq.In(time.Millisecond),
		dueq.In(1<<63 - 1):                     {}, // refused: rounded up it is more than there is
		dueq.At(time.UnixMilli(1796112000500)): dueq.At(time.UnixMilli(1796112000500).UTC()),
		dueq.At(time.Unix(1796112000, 1)):      dueq.At(time.UnixMilli(1796112000001).UTC()),
	}
	for _, task := range tasks {
		for when, want := range whens {
			for _, ifExists := range []dueq.IfExists{dueq.Replace, dueq.Keep, dueq.Earlier, dueq.Later} {
				text := encode(t, New(task, when, ifExists))
				it, err := Parse(text, "item")
				if when == dueq.In(1<<63-1) {
					if err == nil {
						t.Errorf("%s is read", text)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				gotTask, err := it.Task()
				if err != nil || !reflect.DeepEqual(gotTask, task) {
					t.Errorf("%s: got %+v, %v, want %+v", text, gotTask, err, task)
				}
				if got, err := it.When.Parse(); err != nil || got != want {
					t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
				}
				if got, err := dueq.ParseIfExists(it.IfExists); err != nil || got != ifExists {
					t.Errorf("%s: got %v, %v, want %v", text, got, err, ifExists)
				}
			}
		}
	}
}

// encode writes bodies as they are.
func encode(t *testing.T, it Item) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(it); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestParseInstant_is_of_the_years_1973_to_9999(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-12-01T08:00:00Z": "", "1973-03-03T09:46:40Z": "", "9999-12-31T23:59:59.999Z": "",
		"1973-03-03T09:46:39Z":      "due_at 99999999000 ms is before 1973",
		"9999-12-31T23:59:59.9999Z": "due_at 253402300800000 ms is after the year 9999",
		"2026-12-01 08:00:00Z":      `due_at "2026-12-01 08:00:00Z" is not RFC 3339`,
		"":                          `due_at "" is not RFC 3339`,
	} {
		_, err := parseInstant("due_at", text)
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}
