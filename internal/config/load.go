package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"

	"github.com/dueq/dueq"
)

// Sources say what is set, each winning over those before it: Store, the file,
// the environment, flags.
type Sources struct {
	Store string            // the store where nobody names one
	File  string            // path of the YAML file; empty is none
	Env   []string          // NAME=value, as os.Environ has it; an empty value is none
	Flags map[string]string // by key, of those that were given; lists with commas
}

// Problems are all that is wrong with a configuration, each naming its key and
// where it stands. They are ErrInvalid.
type Problems []*dueq.FieldError

func (p Problems) Error() string {
	texts := make([]string, len(p))
	for i, problem := range p {
		texts[i] = problem.Error()
	}
	return strings.Join(texts, "; ")
}

func (p Problems) Unwrap() []error {
	list := make([]error, len(p))
	for i, problem := range p {
		list[i] = problem
	}
	return list
}

// Load reads all sources. Wrong values, unknown keys and keys given twice are
// errors, never passed over; unknown variables are warnings, since other
// programs have names that begin with DUEQ_ too.
//
// Errors: Problems.
func Load(src Sources) (Config, error) {
	l := &loader{merged: koanf.New("."), origins: map[string]origin{}}
	l.defaults(src.Store)
	if src.File != "" {
		l.file(src.File)
	}
	l.env(src.Env)
	l.flags(src.Flags)
	cfg, err := l.config()
	if err != nil {
		return Config{}, err
	}
	l.readSecrets(&cfg, src.File)
	l.validate(&cfg)
	cfg.origins, cfg.warnings = l.origins, l.warnings
	if len(l.problems) > 0 {
		return Config{}, l.problems
	}
	return cfg, nil
}

// origin is where a value comes from.
type origin struct {
	source string // path of the file, $NAME, --flag or default
	line   int    // in a file
}

func (o origin) String() string {
	if o.line == 0 {
		return o.source
	}
	return fmt.Sprintf("%s:%d", o.source, o.line)
}

// byDefault is the origin of what nobody set.
var byDefault = origin{source: "default"}

type loader struct {
	merged   *koanf.Koanf
	origins  map[string]origin // by key, also in lists: tokens[0].scopes[1]
	problems Problems
	warnings []string
}

func (l *loader) defaults(store string) {
	cfg := Default()
	cfg.Store = store
	values := map[string]any{}
	for _, k := range keys {
		v := valueOf(cfg, k.path)
		if k.typ.Kind() != reflect.Slice || v.Len() > 0 {
			values[k.path] = v.Interface()
		}
		l.origins[k.path] = byDefault
	}
	l.add(values)
}

// valueOf returns the value of a key.
func valueOf(cfg Config, path string) reflect.Value {
	v := reflect.ValueOf(cfg)
	for _, name := range strings.Split(path, ".") {
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("koanf") == name {
				v = v.Field(i)
				break
			}
		}
	}
	return v
}

// add lays values, by key or in sections, over those before them.
func (l *loader) add(values map[string]any) {
	if err := l.merged.Load(confmap.Provider(values, "."), nil); err != nil {
		l.refuse("config", "cannot be merged: %v", err)
	}
}

func (l *loader) flags(flags map[string]string) {
	values := map[string]any{}
	for _, path := range slices.Sorted(maps.Keys(flags)) {
		i := slices.IndexFunc(keys, func(k key) bool { return k.path == path })
		if v := l.text(keys[i], flags[path], origin{source: "--" + FlagName(path)}); v != nil {
			values[path] = v
		}
	}
	l.add(values)
}

// config makes the Config. The values have been checked one by one, so nothing
// is converted here.
func (l *loader) config() (Config, error) {
	var cfg Config
	err := l.merged.UnmarshalWithConf("", &cfg, koanf.UnmarshalConf{
		Tag:           "koanf",
		DecoderConfig: &mapstructure.DecoderConfig{Result: &cfg, TagName: "koanf", ErrorUnused: true},
	})
	return cfg, err
}

// set notes where a key has its value, and forgets what its list had before.
func (l *loader) set(path string, at origin) {
	maps.DeleteFunc(l.origins, func(other string, _ origin) bool { return strings.HasPrefix(other, path+"[") })
	l.origins[path] = at
}

// refuse notes a problem of a key, of the whole file if path is empty. The
// first one of each is enough.
func (l *loader) refuse(path, format string, args ...any) {
	path = cmp.Or(path, "config")
	for _, p := range l.problems {
		if rest, ok := strings.CutPrefix(p.Field, path); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return
		}
	}
	l.problems = append(l.problems, &dueq.FieldError{
		Field: path, Reason: fmt.Sprintf(format, args...) + " (" + l.origin(path).String() + ")",
	})
}

// origin returns where a key has its value, or what it is in.
func (l *loader) origin(path string) origin { return originIn(l.origins, path) }

func originIn(origins map[string]origin, path string) origin {
	for path != "" {
		if at, ok := origins[path]; ok {
			return at
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return byDefault
}

// IsDefault tells whether nobody set the key.
func (c Config) IsDefault(path string) bool { return originIn(c.origins, path) == byDefault }

// Blame adds to an error about a key where that key has its value.
func (c Config) Blame(err error) error {
	var field *dueq.FieldError
	if !errors.As(err, &field) {
		return err
	}
	at, known := c.origins[field.Field]
	if !known || at == byDefault {
		return err
	}
	return &dueq.FieldError{Field: field.Field, Reason: field.Reason + " (" + at.String() + ")"}
}

func (l *loader) warn(format string, args ...any) {
	l.warnings = append(l.warnings, fmt.Sprintf(format, args...))
}
