package config

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"time"
)

// key has a value of its own: a text, a number, a list.
type key struct {
	path string // log.level
	typ  reflect.Type
}

// keys of Config, in its order.
var keys = keysUnder("", reflect.TypeFor[Config]())

func keysUnder(section string, t reflect.Type) []key {
	var all []key
	for name, field := range fieldsOf(t) {
		path := join(section, name)
		if field.Kind() == reflect.Struct {
			all = append(all, keysUnder(path, field)...)
			continue
		}
		all = append(all, key{path, field})
	}
	return all
}

// fieldsOf yields the keys of a struct and their types.
func fieldsOf(t reflect.Type) func(yield func(string, reflect.Type) bool) {
	return func(yield func(string, reflect.Type) bool) {
		for i := range t.NumField() {
			if name := t.Field(i).Tag.Get("koanf"); name != "" && !yield(name, t.Field(i).Type) {
				return
			}
		}
	}
}

func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	for found, field := range fieldsOf(t) {
		if found == name {
			return field, true
		}
	}
	return nil, false
}

func join(section, name string) string {
	if section == "" {
		return name
	}
	return section + "." + name
}

// env is the variable that sets the key: DUEQ_LOG_LEVEL.
func (k key) env() string {
	return "DUEQ_" + strings.ToUpper(strings.ReplaceAll(k.path, ".", "_"))
}

// FlagName is the flag that sets a key: log-level.
func FlagName(path string) string { return strings.NewReplacer(".", "-", "_", "-").Replace(path) }

var (
	durationType = reflect.TypeFor[time.Duration]()
	sizeType     = reflect.TypeFor[Size]()
)

// wanted says what a value of the type is.
func wanted(t reflect.Type) string {
	switch {
	case t == durationType:
		return "a duration like 30s"
	case t == sizeType:
		return "a size like 64KiB"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int:
		return "a whole number"
	case t.Kind() == reflect.Slice:
		return "a list"
	case t.Kind() == reflect.Struct:
		return "keys and values"
	}
	return "text"
}

// nearest returns the key that name, which t does not have, may be meant for:
// one of t's, or one of another section. Empty if there is none like it.
func nearest(section string, t reflect.Type, name string) string {
	var candidates []string
	for sibling := range fieldsOf(t) {
		candidates = append(candidates, join(section, sibling))
	}
	for _, k := range keys {
		candidates = append(candidates, k.path)
	}
	far := func(path string) int {
		last := path[strings.LastIndexByte(path, '.')+1:]
		return min(distance(plain(name), plain(last)), distance(plain(name), plain(path)))
	}
	best := slices.MinFunc(candidates, func(a, b string) int { return cmp.Compare(far(a), far(b)) })
	if far(best) > 1+len(name)/4 {
		return ""
	}
	return best
}

func plain(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "").Replace(s))
}

// distance is how many letters must be added, left out or changed (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
