package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/strictjson"
	"github.com/dueq/dueq/internal/view"
)

// settingsPatch is new values of settings, by their names in JSON: whole
// numbers, numbers, texts, true and false; null for the default.
type settingsPatch struct {
	patch dueq.SettingsPatch
	names map[string]string // as the store has them → as the request has them
}

func (p *settingsPatch) decode(data []byte) error {
	p.patch, p.names = dueq.SettingsPatch{}, map[string]string{}
	return strictjson.Object(data, "body", func(name string, value json.RawMessage) error {
		kind, ok := settingKinds[name]
		if !ok {
			all := strings.Join(slices.Sorted(maps.Keys(settingKinds)), ", ")
			return refused("body", fmt.Sprintf("has the field %s, which is not one of %s", strictjson.Quote(name), all))
		}
		text, err := settingText(name, kind, string(value))
		if err != nil {
			return err
		}
		setting, _ := settingUnit(name)
		p.patch[setting], p.names[setting] = text, name
		return nil
	})
}

// settingKinds are the names of settings in JSON, and what their values are.
var settingKinds = func() map[string]reflect.Kind {
	kinds := map[string]reflect.Kind{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[view.Settings]()) {
		kinds[f.Tag.Get("json")] = f.Type.Kind()
	}
	return kinds
}()

// settingUnit takes a name in JSON apart: timeout_ms is timeout in ms.
func settingUnit(name string) (setting, unit string) {
	if s, ok := strings.CutSuffix(name, "_ms"); ok {
		return s, "ms"
	}
	if s, ok := strings.CutSuffix(name, "_percent"); ok {
		return s, "%"
	}
	return name, ""
}

// settingText is a value as a SettingsPatch has it.
func settingText(name string, kind reflect.Kind, value string) (string, error) {
	_, unit := settingUnit(name)
	isNumber := value[0] == '-' || value[0] >= '0' && value[0] <= '9'
	switch {
	case value == "null":
		return dueq.Default, nil
	case kind == reflect.Bool && value == "true":
		return "on", nil
	case kind == reflect.Bool && value == "false":
		return "off", nil
	case kind == reflect.String && value[0] == '"':
		var text string
		if err := json.Unmarshal([]byte(value), &text); err != nil {
			return "", refused(name, "is not JSON: "+err.Error())
		}
		if text == "" {
			text = "off"
		}
		return text, nil
	case name == "max_late_ms" && value == "0":
		return "off", nil
	case kind == reflect.Float64 && isNumber, kind != reflect.Bool && kind != reflect.String && isNumber && !strings.ContainsAny(value, ".eE"):
		return value + unit, nil
	}
	what := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.String: "a string", reflect.Float64: "a number"}[kind]
	if what == "" {
		what = "a whole number"
	}
	return "", refused(name, strictjson.Quote(value)+" is not "+what)
}

// settingsDoc is a settingsPatch as /openapi.json describes it.
type settingsDoc struct{}

// Schema implements huma.SchemaProvider: any of the settings, or null.
func (settingsDoc) Schema(r huma.Registry) *huma.Schema {
	all := *huma.SchemaFromType(r, reflect.TypeFor[view.Settings]())
	all.Required = nil
	for name, field := range all.Properties {
		copied := *field
		copied.Nullable = true
		all.Properties[name] = &copied
	}
	return &all
}
