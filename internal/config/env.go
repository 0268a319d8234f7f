package config

import (
	"reflect"
	"slices"
	"strings"
)

// otherVariables begin with DUEQ_ too: those of the command line, those that
// dueq work gives to its commands, and those that Kubernetes makes of a service
// called dueq.
var otherVariables = []string{
	"DUEQ_CONFIG", "DUEQ_TOKEN",
	"DUEQ_QUEUE", "DUEQ_ID", "DUEQ_KIND", "DUEQ_ATTEMPT", "DUEQ_ROUND", "DUEQ_DUE",
	"DUEQ_SERVICE_*", "DUEQ_PORT", "DUEQ_PORT_*",
}

// env reads the variables that are named after keys, and warns of others.
func (l *loader) env(environ []string) {
	values := map[string]any{}
	for _, pair := range environ {
		name, text, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "DUEQ_") || text == "" {
			continue
		}
		i := slices.IndexFunc(keys, func(k key) bool { return k.env() == name })
		if i < 0 {
			l.unknownVariable(name)
			continue
		}
		if v := l.text(keys[i], text, origin{source: "$" + name}); v != nil {
			values[keys[i].path] = v
		}
	}
	l.add(values)
}

func (l *loader) unknownVariable(name string) {
	if slices.ContainsFunc(otherVariables, func(other string) bool {
		front, any := strings.CutSuffix(other, "*")
		return name == other || any && strings.HasPrefix(name, front)
	}) {
		return
	}
	hint := ""
	if near := nearest("", reflect.TypeFor[Config](), strings.TrimPrefix(name, "DUEQ_")); near != "" {
		hint = ", perhaps " + key{path: near}.env()
	}
	l.warn("the variable %s is not known%s", name, hint)
}

// text reads the text of a variable or a flag. Lists of texts are written with
// commas, others in YAML: [{queue: a, secrets_file: b}].
func (l *loader) text(k key, text string, at origin) any {
	l.set(k.path, at)
	switch {
	case k.typ.Kind() != reflect.Slice:
		return l.scalar(text, k.typ, k.path)
	case k.typ.Elem().Kind() == reflect.String:
		var items []any
		for _, item := range strings.Split(text, ",") {
			items = append(items, strings.TrimSpace(item))
		}
		return items
	}
	return l.document([]byte(text), k.typ, k.path, at)
}
