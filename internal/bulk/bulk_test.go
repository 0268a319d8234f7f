package bulk

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

func readAll(t testing.TB, text string, opts Options) ([]Record, error) {
	t.Helper()
	r := NewReader(strings.NewReader(text), opts)
	var all []Record
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, rec)
	}
}

// show writes records as lines that a test can compare.
func show(all []Record) []string {
	var out []string
	for _, rec := range all {
		if rec.Err != nil {
			out = append(out, fmt.Sprintf("%d bad: %v", rec.Line, rec.Err))
			continue
		}
		when := rec.When.Delay().String()
		if ms, ok := rec.When.Absolute(); ok {
			when = fmt.Sprint(ms)
		}
		body := ""
		if rec.Task.Body != nil {
			body = fmt.Sprintf(" %q", rec.Task.Body)
		}
		out = append(out, fmt.Sprintf("%d %s %s %s%s", rec.Line, rec.Task.Member(), when, rec.IfExists, body))
	}
	return out
}

func TestCSV(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", RecordMax)
	for name, test := range map[string]struct {
		text string
		want []string
		err  string
	}{
		"all columns in any order": {text: "body,due,priority,kind,id\nhello,2026-12-01T08:00:00Z,7,k,a\n,1796112000000,,,b",
			want: []string{`2 a:k:p7 1796112000000 replace "hello"`, `3 b 1796112000000 replace`}},
		"byte order mark, CRLF, empty lines": {text: "\ufeffid,delay\r\n\r\n\na,30m\r\n\r\nb,0s\r\n",
			want: []string{"4 a 30m0s replace", "6 b 0s replace"}},
		"quoted fields keep what they hold": {text: "id,delay,body\na,1s,\"x,\"\"y\"\"\r\nz\"\nb,1s,\n",
			want: []string{"2 a 1s replace \"x,\\\"y\\\"\\r\\nz\"", "4 b 1s replace"}},
		"a bad record does not keep the others": {text: "id,delay\n,1s\na b,1s\na,soon\na,\na,-1s\na\na,1s,x\na,1s\n",
			want: []string{"2 bad: id is empty", "3 bad: id contains white space or a control character (U+0020)", `4 bad: delay "soon" is not a duration like 30m, 1.5s or 7d`,
				`5 bad: delay "" is not a duration like 30m, 1.5s or 7d`, "6 bad: delay -1s is negative", "7 bad: line has 1 fields, the header has 2", "8 bad: line has 3 fields, the header has 2", "9 a 1s replace"}},
		"priority":                     {text: "id,delay,priority\na,1s,10\na,1s,x\na,1s,0", want: []string{`2 bad: priority "10" is not 0 to 9`, `3 bad: priority "x" is not 0 to 9`, "4 a:p0 1s replace"}},
		"a quote in the middle":        {text: "id,delay\na\"b,1s\n\"a\"b,1s\n\"a\",1s\n", want: []string{"2 bad: line has a quote within a field that does not begin with one", "3 bad: line has text after a closing quote", "4 a 1s replace"}},
		"a quote that never closes":    {text: "id,delay\na,1s\n\"b,1s\nc,1s\n", want: []string{"2 a 1s replace", "3 bad: line has a quote that is never closed, so that it goes on to line 5, the last"}},
		"a long line":                  {text: "id,delay,body\na,1s," + long + "\nb,1s,\"" + long + "\nevil,1s,\"\nc,1s,\n", want: []string{"2 bad: line is longer than 1048576 bytes", "3 bad: line is longer than 1048576 bytes", "5 c 1s replace"}},
		"a long member":                {text: "id,delay\n" + long[:65] + ",1s\n", want: []string{"2 bad: member is 65 bytes, the limit is 64"}},
		"a time without an offset":     {text: "id,due\na,2026-12-01T08:00:00\nb,1717023456\n", want: []string{`2 bad: due "2026-12-01T08:00:00" is neither RFC 3339 with an offset (2026-12-01T08:00:00Z) nor Unix milliseconds`, "3 bad: due 1717023456 ms is before 1973, perhaps it is in seconds"}},
		"nothing":                      {text: "", err: "header is missing"},
		"only empty lines":             {text: "\n\r\n", err: "header is missing"},
		"only a header":                {text: "id,delay"},
		"an unknown column":            {text: "id,delay,when\n", err: `header has the column "when", which is not one of id, kind, priority, delay, due, body`},
		"a column with a space":        {text: "id, delay\n", err: `header has the column " delay"`},
		"a column twice":               {text: "id,delay,id\n", err: "header has the column id twice"},
		"no id":                        {text: "kind,delay\n", err: "header lacks the column id"},
		"no due":                       {text: "id\n", err: "header lacks a column delay or due"},
		"delay and due":                {text: "id,delay,due\n", err: "header has both columns delay and due"},
		"a header that is not CSV":     {text: "id,de\"lay\n", err: "header is not CSV: line has a quote within"},
		"UTF-16":                       {text: "\xff\xfei\x00d\x00", err: "file is UTF-16"},
		"more columns than there are":  {text: "id,kind,priority,delay,body,id,id,id,id\n", err: "header has the column id twice"},
		"more fields than are counted": {text: "id,delay\na,1s,1,2,3,4,5,6,7,8,9\n", want: []string{"2 bad: line has 7 fields, the header has 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, test.text, Options{Format: CSV}, test.want, test.err)
		})
	}
}

func TestNDJSON(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", RecordMax)
	for text, want := range map[string]string{
		`{"id":"a","kind":"k","priority":3,"delay_ms":1500,"body":{"x": [1,"é"]},"if_exists":"earlier"}`: `a:k:p3 1.5s earlier "{\"x\": [1,\"é\"]}"`,
		`{"id":"a","due_at":"2026-12-01T09:00:00.5+01:00","body_base64":"AAE="}`:                         `a 1796112000500 keep "\x00\x01"`,
		`{"id":"a","delay_ms":0,"body_base64":""}`:                                                       `a 0s keep ""`,
		`{"id":"a","delay_ms":0,"body":"text"}`:                                                          `a 0s keep "\"text\""`,
		`{"id":"a","delay_ms":9223372036854}`:                                                            `a 2562047h47m16.854s keep`,
		`{"id":"a","delay_ms":9223372036855}`:                                                            `bad: delay_ms "9223372036855" is not 0 to 9223372036854`,
		`{"id":"a","delay_ms":1e400}`:                                                                    `bad: delay_ms "1e400" is not a whole number`,
		`{"id":"a","delay_ms":1e3}`:                                                                      `bad: delay_ms "1e3" is not a whole number`,
		`{"id":"a","delay_ms":1.0}`:                                                                      `bad: delay_ms "1.0" is not a whole number`,
		`{"id":"a","delay_ms":"5"}`:                                                                      `bad: delay_ms "\"5\"" is not a whole number`,
		`{"id":"a","delay_ms":-5}`:                                                                       `bad: delay_ms "-5" is not 0 to 9223372036854`,
		`{"id":"a","delay_ms":99999999999999999999}`:                                                     `bad: delay_ms "99999999999999999999" is not 0 to 9223372036854`,
		`{"id":"a","delay_ms":true}`:                                                                     `bad: delay_ms "true" is not a whole number`,
		`{"id":"a"}`:                                                                                     `bad: delay_ms or due_at is missing`,
		`{"delay_ms":1}`:                                                                                 `bad: id is missing`,
		`{"id":"a","delay_ms":1,"due_at":"2026-12-01T08:00:00Z"}`:                                        `bad: delay_ms and due_at are both there`,
		`{"id":"a","delay_ms":1,"body":1,"body_base64":""}`:                                              `bad: body and body_base64 are both there`,
		`{"id":"a","delay_ms":1,"delay_ms":2}`:                                                           `bad: delay_ms is there twice`,
		`{"id":"a","delay_ms":1,"ID":"b"}`:                                                               `bad: line has the field "ID", which is not one of id, kind, priority, trace, body, body_base64, delay_ms, due_at, if_exists`,
		`{"id":"a","delay_ms":1,"` + long[:90] + `":1}`:                                                  `bad: line has the field "` + long[:39] + `…", which is not one of`,
		`{"id":"a","delay_ms":1,"kind":null}`:                                                            `bad: kind is null; leave it out`,
		`{"id":7,"delay_ms":1}`:                                                                          `bad: id "7" is not a string`,
		`{"id":"\ud800","delay_ms":1}`:                                                                   `bad: id has an escape that is no character`,
		`{"id":"\ufffd","delay_ms":1}`:                                                                   "\ufffd 1ms keep",
		"{\"id\":\"\xff\",\"delay_ms\":1}":                                                               `bad: line is not valid UTF-8`,
		`{"id":"a","delay_ms":1,"priority":10}`:                                                          `bad: priority "10" is not 0 to 9`,
		`{"id":"a","delay_ms":1,"priority":"1"}`:                                                         `bad: priority "\"1\"" is not a whole number`,
		`{"id":"a","delay_ms":1,"if_exists":"new"}`:                                                      `bad: if_exists "new" is not one of replace, keep, earlier, later`,
		`{"id":"a","delay_ms":1,"if_exists":""}`:                                                         `bad: if_exists "" is not one of replace`,
		`{"id":"a","delay_ms":1,"body_base64":"A"}`:                                                      `bad: body_base64 is not base64`,
		`{"id":"a","due_at":"2026-12-01T08:00:00"}`:                                                      `bad: due_at "2026-12-01T08:00:00" is not RFC 3339 with an offset`,
		`{"id":"a","due_at":1796112000500}`:                                                              `bad: due_at "1796112000500" is not a string`,
		`{"id":"a","due_at":"0001-01-01T00:00:00Z"}`:                                                     `bad: due_at 1 ms is before 1973`,
		`{"id":"a:b","delay_ms":1}`:                                                                      `bad: kind is needed when the id contains a colon`,
		`[1]`:                                                                                            `bad: line is not a JSON object`,
		long[:400]:                                                                                       `bad: line is not JSON`,
		strings.Repeat("4", 400):                                                                         `bad: line is not a JSON object`,
		`x`:                                                                                              `bad: line is not JSON: invalid character 'x'`,
		`{"id":"a",`:                                                                                     `bad: line ends within the JSON object`,
		`{"id":"a","delay_ms":1} {}`:                                                                     `bad: line has more after the object`,
		`{"id":"a","delay_ms":1}}`:                                                                       `bad: line has more after the object`,
		`{"id":"a","delay_ms":01}`:                                                                       `bad: line is not JSON`,
		`{"id":"a","body":"` + long + `"}`:                                                               `bad: line is longer than 1048576 bytes`,
		`{"id":"` + long[:65] + `","delay_ms":1}`:                                                        `bad: member is 65 bytes, the limit is 64`,
	} {
		t.Run(text[:min(len(text), 60)], func(t *testing.T) {
			t.Parallel()
			good := `{"id":"good","delay_ms":1}`
			lines := []string{"2 " + want, "4 good 1ms keep"}
			check(t, "\ufeff\n"+text+"\r\n \t\n"+good, Options{Format: NDJSON, IfExists: dueq.Keep}, lines, "")
		})
	}
}

func check(t *testing.T, text string, opts Options, want []string, wantErr string) {
	t.Helper()
	all, err := readAll(t, text, opts)
	if wantErr != "" {
		if err == nil || !strings.Contains(err.Error(), wantErr) || !errors.Is(err, dueq.ErrInvalid) {
			t.Errorf("error %v, want %q", err, wantErr)
		}
		return
	}
	got := show(all)
	same := err == nil && len(got) == len(want)
	for i := range want {
		same = same && (got[i] == want[i] || strings.Contains(want[i], "bad: ") && strings.HasPrefix(got[i], want[i]))
	}
	if !same {
		t.Errorf("error %v\ngot  %s\nwant %s", err, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// Not beside other tests, whose memory would count.
func TestARecordThatNeverEndsTakesNoMoreMemory(t *testing.T) {
	for name, file := range map[string]struct {
		format Format
		front  string
		rest   repeated
	}{
		"CSV": {CSV, "id,delay,body\na,1s,\"", "x,\n"}, "NDJSON": {NDJSON, `{"id":"`, "x"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := NewReader(io.MultiReader(strings.NewReader(file.front), io.LimitReader(file.rest, 16<<20)), Options{Format: file.format})
		if rec, err := r.Next(); err != nil || rec.Err == nil {
			t.Errorf("%s: got %+v, %v", name, rec, err)
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 10<<20 {
			t.Errorf("%s: allocated %d MiB for a record of 16 MiB, of which 1 is allowed", name, used>>20)
		}
	}
}

func TestReader(t *testing.T) {
	t.Parallel()
	t.Run("reports a last line that is too long", func(t *testing.T) {
		all, err := readAll(t, strings.Repeat("x", 3*RecordMax), Options{Format: NDJSON})
		if err != nil || len(all) != 1 || all[0].Err == nil {
			t.Errorf("got %d records, %v", len(all), err)
		}
	})
	t.Run("says where a record ends", func(t *testing.T) {
		all, _ := readAll(t, "id,delay,body\na,1s,\"\n\n\"\nb,1s,\"\n\"", Options{Format: CSV})
		if len(all) != 2 || all[0].Line != 2 || all[0].End != 4 || all[1].Line != 5 || all[1].End != 6 {
			t.Errorf("got %+v", all)
		}
	})
	t.Run("takes longer members when told", func(t *testing.T) {
		all, _ := readAll(t, "id,delay\n"+strings.Repeat("x", 65)+",1s", Options{Format: CSV, MemberMax: 65})
		if all[0].Err != nil {
			t.Error(all[0].Err)
		}
	})
	t.Run("a file that cannot be read ends with why", func(t *testing.T) {
		broken := errors.New("broken")
		for format, front := range map[Format]string{CSV: "id,delay\na,1s\nb", NDJSON: `{"id":"a","delay_ms":1}` + "\n{"} {
			r := NewReader(io.MultiReader(strings.NewReader(front), failing{broken}), Options{Format: format})
			if rec, err := r.Next(); err != nil || rec.Task.ID != "a" {
				t.Errorf("%v: got %+v, %v", format, rec, err)
			}
			if rec, err := r.Next(); !errors.Is(err, broken) {
				t.Errorf("%v: got %+v, %v", format, rec, err)
			}
		}
	})
}

// repeated is a file that says the same for ever.
type repeated string

func (r repeated) Read(p []byte) (n int, err error) {
	for n < len(p) {
		n += copy(p[n:], r)
	}
	return n, nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestFormat(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]Format{"a.csv": CSV, "A.CSV": CSV, "x/a.ndjson": NDJSON, "a.jsonl": NDJSON, "a.json": 0, "csv": 0, "-": 0} {
		if got, ok := FormatOf(name); got != want || ok != (want != 0) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if _, err := ParseFormat("xml"); err == nil || !strings.Contains(err.Error(), `format "xml" is not one of csv, ndjson`) {
		t.Errorf("got %v", err)
	}
}

// FuzzCSV checks that every record is good or has a reason, in the order of
// lines, and that what encoding/csv reads without complaint is read the same.
func FuzzCSV(f *testing.F) {
	for _, seed := range []string{"a,1s\n", "\"a\",1s,\"x\ny\"\r\n\n", "a\"b\n\"c\"d,\n\"", "\ufeff,,\r", "é,1d,\"\"\"\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := readAll(t, "id,delay,body\n"+text, Options{Format: CSV})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		checkRecords(t, text, all, 1)
		checkAgain(t, text, all, CSV, writeCSV)
		if strings.Contains(text, "\r") {
			return // of which encoding/csv keeps less
		}
		peer := csv.NewReader(strings.NewReader(text))
		peer.FieldsPerRecord = -1
		rows, err := peer.ReadAll()
		if err != nil {
			return
		}
		if len(rows) != len(all) {
			t.Fatalf("%q: %d records, encoding/csv reads %d: %q", text, len(all), len(rows), rows)
		}
		for i, row := range rows {
			if all[i].Err == nil && !reflect.DeepEqual(row[:1], []string{all[i].Task.ID}) || all[i].Err == nil && row[2] != string(all[i].Task.Body) {
				t.Errorf("%q: record %d is %+v, encoding/csv reads %q", text, i, all[i], row)
			}
		}
	})
}

// FuzzNDJSON checks that every line that is not blank is good or has a reason.
func FuzzNDJSON(f *testing.F) {
	for _, seed := range []string{`{"id":"a","delay_ms":1}`, `{"id":"a","due_at":"2026-12-01T08:00:00Z","body":{"a":[]}}` + "\n\n{", `{"id":"\ud800","delay_ms":1e400}`, "[]\r\nnull\n\"\"", `{"id":"a","id":"b"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := readAll(t, "\n"+text, Options{Format: NDJSON})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		checkRecords(t, text, all, 1)
		checkAgain(t, text, all, NDJSON, writeNDJSON)
		n := 0
		for line := range strings.SplitSeq(text, "\n") {
			if len(strings.TrimSpace(line)) > 0 && len(line) < RecordMax {
				n++
			}
		}
		if blank := strings.ContainsAny(text, "\u0085\u00a0"); n != len(all) && !blank {
			t.Errorf("%q: %d records of %d lines", text, len(all), n)
		}
	})
}

func checkRecords(t *testing.T, text string, all []Record, header int) {
	t.Helper()
	last, lines := header, header+strings.Count(text, "\n")+1
	for _, rec := range all {
		if rec.Line <= last || rec.End < rec.Line || rec.End > lines {
			t.Errorf("%q: lines %d to %d after line %d, of %d", text, rec.Line, rec.End, last, lines)
		}
		last = rec.End
		if rec.Err != nil {
			if !errors.Is(rec.Err, dueq.ErrInvalid) || len(rec.Err.Error()) > 500 {
				t.Errorf("%q: %v", text, rec.Err)
			}
			continue
		}
		if parsed, err := dueq.ParseMember(rec.Task.Member()); err != nil || parsed.ID != rec.Task.ID {
			t.Errorf("%q: %+v: %v", text, rec, err)
		}
	}
}

// checkAgain writes the good records of a file and checks that they are read
// the same.
func checkAgain(t *testing.T, text string, all []Record, format Format, write func([]Record) string) {
	t.Helper()
	all = slices.DeleteFunc(slices.Clone(all), func(rec Record) bool { return rec.Err != nil })
	written := write(all)
	again, err := readAll(t, written, Options{Format: format})
	if err != nil || len(again) != len(all) {
		t.Fatalf("%q: %d good records are written %q, which reads as %+v, %v", text, len(all), written, again, err)
	}
	for i, rec := range all {
		got := again[i]
		if got.Err != nil || got.Task.Member() != rec.Task.Member() || string(got.Task.Body) != string(rec.Task.Body) || got.When != rec.When {
			t.Errorf("%q: %+v is written %q, which reads as %+v", text, rec, written, got)
		}
	}
}

func writeCSV(all []Record) string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write([]string{"body", "delay", "id"})
	for _, rec := range all {
		_ = w.Write([]string{string(rec.Task.Body), dueq.FormatDuration(rec.When.Delay()), rec.Task.ID})
	}
	w.Flush()
	return b.String()
}

func writeNDJSON(all []Record) string {
	var b strings.Builder
	for _, rec := range all {
		item := map[string]any{"id": rec.Task.ID, "if_exists": rec.IfExists.String(), "body_base64": rec.Task.Body}
		if rec.Task.Kind != "" {
			item["kind"] = rec.Task.Kind
		}
		if rec.Task.Priority != 0 {
			item["priority"] = rec.Task.Priority.Level()
		}
		if rec.Task.Body == nil {
			delete(item, "body_base64")
		}
		if due, ok := rec.When.Absolute(); ok {
			item["due_at"] = time.UnixMilli(due).UTC()
		} else {
			item["delay_ms"] = rec.When.Delay().Milliseconds()
		}
		_ = json.NewEncoder(&b).Encode(item)
	}
	return b.String()
}
