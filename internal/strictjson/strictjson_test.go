package strictjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/dueq/dueq"
)

type Inner struct {
	Deep *int64 `json:"deep,omitempty" minimum:"1" maximum:"9"`
}

type outer struct {
	Name string `json:"name" enum:"a,b"`
	Inner
	List  []Inner         `json:"list,omitempty" maxItems:"2"`
	Texts []string        `json:"texts,omitempty"`
	On    bool            `json:"on,omitempty"`
	Part  float64         `json:"part,omitempty" minimum:"0.5" maximum:"1e3"`
	Count int             `json:"count,omitempty"`
	Any   json.RawMessage `json:"any,omitempty"`
	Bytes []byte          `json:"bytes,omitzero"`
}

func TestUnmarshalReadsWhatIsMeant(t *testing.T) {
	t.Parallel()
	seven := int64(7)
	for text, want := range map[string]outer{
		`{"name":"a"}`: {Name: "a"},
		` { "name" : "b" , "deep":7, "list":[{},{"deep":7}], "texts":["x","é"] } `: {Name: "b", Inner: Inner{&seven},
			List: []Inner{{}, {&seven}}, Texts: []string{"x", "é"}},
		`{"name":"a","on":true,"part":1e3,"count":-3,"any":{"a": [1e400]},"bytes":""}`: {Name: "a", On: true, Part: 1000, Count: -3,
			Any: json.RawMessage(`{"a": [1e400]}`), Bytes: []byte{}},
		`{"name":"a","list":[],"bytes":"AAE="}`: {Name: "a", List: []Inner{}, Bytes: []byte{0, 1}},
	} {
		var got outer
		if err := Unmarshal([]byte(text), "body", &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v\nwant %+v", text, got, err, want)
		}
	}
}

func TestUnmarshalNamesWhatItRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                                   "body ends within the JSON object",
		`[]`:                                 "body is not a JSON object",
		`null`:                               "body is not a JSON object",
		`1e400`:                              "body is not a JSON object",
		`{"name":"a"} x`:                     "body has more after the object",
		"{\"name\":\"\xff\"}":                "body is not valid UTF-8",
		`{}`:                                 "name is missing",
		`{"name":"c"}`:                       `name "c" is not one of a, b`,
		`{"name":null}`:                      "name is null; leave it out",
		`{"name":"a","name":"a"}`:            "name is there twice",
		`{"name":"a","Deep":1}`:              `body has the field "Deep", which is not one of name, deep, list`,
		`{"name":"a","deep":0}`:              `deep "0" is not 1 to 9`,
		`{"name":"a","deep":1.0}`:            `deep "1.0" is not a whole number`,
		`{"name":"a","deep":1e400}`:          `deep "1e400" is not a whole number`,
		`{"name":"a","deep":99999999999e99}`: `deep "99999999999e99" is not a whole number`,
		`{"name":"a","count":9999999999999999999}`:          `count "9999999999999999999" is not `,
		`{"name":"a","deep":"5"}`:                           `deep "\"5\"" is not a whole number`,
		`{"name":"a","list":{}}`:                            `list "{}" is not a list`,
		`{"name":"a","list":[{},{},{}]}`:                    "list has more than 2 entries",
		`{"name":"a","list":[{},{"deep":12}]}`:              `list[1].deep "12" is not 1 to 9`,
		`{"name":"a","list":[{},{"x":12}]}`:                 `list[1] has the field "x", which is not one of deep`,
		`{"name":"a","list":[{},{"deep":1,"deep":1}]}`:      "list[1].deep is there twice",
		`{"name":"a","list":[3]}`:                           "list[0] is not a JSON object",
		`{"name":"a","list":[null]}`:                        "list[0] is null; leave it out",
		`{"name":"a","texts":["x",1]}`:                      `texts[1] "1" is not a string`,
		`{"name":"a","texts":["\ud800"]}`:                   "texts[0] has an escape that is no character",
		`{"name":"a","on":"true"}`:                          `on "\"true\"" is neither true nor false`,
		`{"name":"a","part":0.4}`:                           `part "0.4" is not 0.5 to 1000`,
		`{"name":"a","part":1e999}`:                         `part "1e999" is not 0.5 to 1000`,
		`{"name":"a","part":true}`:                          `part "true" is not a number`,
		`{"name":"a","any":null}`:                           "any is null; leave it out",
		`{"name":"a","bytes":"A"}`:                          "bytes is not base64",
		`{"name":"a","list":[{}`:                            "body ends within the JSON object",
		`{"name":"` + strings.Repeat("x", 99) + `"}`:        "x…\" is not one of",
		fmt.Sprintf(`{"name":"a","any":%s`, "[[[[[[[[[[[["): "body ends within the JSON object",
	} {
		err := Unmarshal([]byte(text), "body", new(outer))
		var field *dueq.FieldError
		if !errors.As(err, &field) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// FuzzUnmarshal checks that what is read means the same to encoding/json.
func FuzzUnmarshal(f *testing.F) {
	f.Add(`{"name":"a","list":[{"deep":1}],"any":[1],"bytes":"AAE=","part":0.5,"on":false}`)
	f.Add(`{"name":"b","deep":9,"texts":["\u00e9"],"count":-1}`)
	f.Fuzz(func(t *testing.T, text string) {
		var got, want outer
		if err := Unmarshal([]byte(text), "body", &got); err != nil {
			if !errors.Is(err, dueq.ErrInvalid) {
				t.Fatalf("%v is not a refused field", err)
			}
			return
		}
		if err := json.Unmarshal([]byte(text), &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: got %+v\nwant %+v, %v", text, got, want, err)
		}
	})
}
