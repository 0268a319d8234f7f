package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dueq/dueq"
)

const fileMax = 1 << 20 // bytes of a file

// file reads the YAML file.
func (l *loader) file(path string) {
	l.origins["config"] = origin{source: path}
	text, err := readFile(path)
	if err != nil {
		l.refuse("config", "cannot be read: %v", err)
		return
	}
	if section, ok := l.document(text, reflect.TypeFor[Config](), "", origin{source: path, line: 1}).(map[string]any); ok {
		l.add(section)
	}
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, reason(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, fileMax+1))
	if err == nil && len(text) > fileMax {
		err = errors.New("it is larger than 1 MiB")
	}
	return text, reason(err)
}

// reason leaves out the path, which is said elsewhere.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// document reads one YAML document that holds a value of type t for path.
func (l *loader) document(text []byte, t reflect.Type, path string, at origin) any {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var first, second yaml.Node
	err := decoder.Decode(&first)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		l.refuse(path, "is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		return nil
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		l.refuse(path, "has more than one document, or what follows --- is not YAML")
		return nil
	}
	return l.value(first.Content[0], t, path, at)
}

// value returns what stands in a node, or nil for nothing: if it is absent, or
// was refused.
func (l *loader) value(n *yaml.Node, t reflect.Type, path string, at origin) any {
	if at.line > 0 {
		at.line = n.Line
	}
	l.set(path, at)
	list := t.Kind() == reflect.Slice || t.Kind() == reflect.Struct
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		l.refuse(path, "has an anchor or an alias, & or *, which are not for here")
	case n.ShortTag() == "!!null" && list:
	case t.Kind() == reflect.Struct && n.Kind == yaml.MappingNode && n.ShortTag() == "!!map":
		return l.section(n, t, path, at)
	case t.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode && n.ShortTag() == "!!seq":
		return l.list(n, t, path, at)
	case n.ShortTag() == "!!null":
		l.refuse(path, "has no value, want %s", wanted(t))
	case n.Kind != yaml.ScalarNode || !slices.Contains(tagsOf(t), n.ShortTag()):
		l.refuse(path, "is %s, want %s", found(n), wanted(t))
	default:
		return l.scalar(n.Value, t, path)
	}
	return nil
}

// tagsOf are the YAML types that a scalar may have.
func tagsOf(t reflect.Type) []string {
	switch {
	case t == durationType || t.Kind() == reflect.String:
		return []string{"!!str"}
	case t == sizeType:
		return []string{"!!str", "!!int"}
	case t.Kind() == reflect.Int:
		return []string{"!!int"}
	case t.Kind() == reflect.Bool:
		return []string{"!!bool"}
	}
	return nil
}

// found says what a node is. Its value may be a secret and is not shown.
func found(n *yaml.Node) string {
	names := map[string]string{
		"!!map": "keys and values", "!!seq": "a list", "!!str": "text", "!!bool": "true or false",
		"!!int": "a number", "!!float": "a number with a fraction or out of range", "!!timestamp": "a date",
	}
	if name, ok := names[n.ShortTag()]; ok {
		return name
	}
	return "of the type " + n.ShortTag()
}

func (l *loader) section(n *yaml.Node, t reflect.Type, path string, at origin) map[string]any {
	section, lines := map[string]any{}, map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		child := join(path, name.Value)
		field, known := fieldOf(t, name.Value)
		if at.line > 0 {
			at.line = name.Line
		}
		switch first, twice := lines[name.Value]; {
		case !known || name.Kind != yaml.ScalarNode || name.ShortTag() != "!!str":
			l.unknown(path, t, name, at)
			continue
		case twice:
			l.twice(child, first, at)
			continue
		}
		lines[name.Value] = name.Line
		if v := l.value(value, field, child, at); v != nil {
			section[name.Value] = v
		}
	}
	return section
}

// twice refuses a key in spite of what else is wrong with it.
func (l *loader) twice(path string, first int, at origin) {
	where := "before"
	if at.line > 0 {
		where = "in line " + strconv.Itoa(first)
	}
	l.problems = append(l.problems, &dueq.FieldError{Field: path, Reason: fmt.Sprintf("is given twice, first %s (%s)", where, at)})
}

func (l *loader) unknown(section string, t reflect.Type, name *yaml.Node, at origin) {
	text := name.Value
	if name.Kind != yaml.ScalarNode {
		text = "?"
	}
	hint := ""
	if near := nearest(section, t, text); near != "" {
		hint = ", perhaps " + near
	} else {
		var names []string
		for sibling := range fieldsOf(t) {
			names = append(names, sibling)
		}
		hint = "; there are " + strings.Join(names, ", ")
	}
	l.problems = append(l.problems, &dueq.FieldError{Field: join(section, text), Reason: fmt.Sprintf("is not a key%s (%s)", hint, at)})
}

func (l *loader) list(n *yaml.Node, t reflect.Type, path string, at origin) []any {
	items := []any{}
	for i, item := range n.Content {
		child := fmt.Sprintf("%s[%d]", path, i)
		v := l.value(item, t.Elem(), child, at)
		if v == nil {
			v = reflect.Zero(t.Elem()).Interface() // keeps the places of those behind it
			l.refuse(child, "has no value, want %s", wanted(t.Elem()))
		}
		items = append(items, v)
	}
	return items
}

// scalar reads a text by its type, or refuses it.
func (l *loader) scalar(text string, t reflect.Type, path string) any {
	v, err := parse(text, t)
	if err != nil {
		l.refuse(path, "%v", err)
		return nil
	}
	return v
}

func parse(text string, t reflect.Type) (any, error) {
	switch {
	case t == durationType:
		d, err := dueq.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a duration like 30s, 5m or 1d", text)
		}
		return d, nil
	case t == sizeType:
		return orNil(ParseSize(text))
	case t.Kind() == reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil || strconv.Itoa(n) != text {
			return nil, fmt.Errorf("%q is not a whole number in plain digits", text)
		}
		return n, nil
	case t.Kind() == reflect.Bool:
		if text != "true" && text != "false" {
			return nil, fmt.Errorf("%q is neither true nor false", text)
		}
		return text == "true", nil
	}
	return text, nil
}

func orNil[T any](v T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}
