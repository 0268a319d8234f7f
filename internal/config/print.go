package config

import (
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/openstore"
)

// Print writes the configuration as YAML, which Load reads back, with the
// source of each key as a comment. Passwords, hashes and secrets are hidden;
// Load refuses what stands in their place.
func (c Config) Print(w io.Writer) error {
	text, err := encode(c.mapping("", reflect.ValueOf(c.redacted())))
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	return err
}

func encode(n *yaml.Node) (string, error) {
	var b strings.Builder
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	err := encoder.Encode(n)
	return b.String(), err
}

func (c Config) redacted() Config {
	c.Store = openstore.Redacted(c.Store)
	tokens := c.Tokens
	c.Tokens = nil
	for _, t := range tokens {
		t.Hash = "sha256:" + hidden
		c.Tokens = append(c.Tokens, t)
	}
	secrets := c.Push.Secrets
	c.Push.Secrets = nil
	for _, s := range secrets {
		s.Secrets = hide(s)
		c.Push.Secrets = append(c.Push.Secrets, s)
	}
	return c
}

func hide(s PushSecret) []string {
	if s.SecretsFile != "" {
		return nil
	}
	all := make([]string, len(s.Secrets))
	for i := range all {
		all[i] = "whsec_" + hidden
	}
	return all
}

// mapping returns a section, each key with its source.
func (c Config) mapping(section string, v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Tag.Get("koanf"), v.Field(i)
		if name == "" {
			continue
		}
		path := join(section, name)
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: name}
		if field.Kind() == reflect.Struct {
			n.Content = append(n.Content, key, c.mapping(path, field))
			continue
		}
		value := node(field)
		comment(key, value, originIn(c.origins, path).String())
		n.Content = append(n.Content, key, value)
	}
	return n
}

// comment says something about a key in its own line.
func comment(key, value *yaml.Node, text string) {
	if len(value.Content) == 0 {
		key = value
	}
	key.LineComment = text
}

// node returns a value, of a struct in a list what is set of it.
func node(v reflect.Value) *yaml.Node {
	n := &yaml.Node{}
	switch v.Kind() {
	case reflect.Struct:
		n.Kind = yaml.MappingNode
		for i := range v.NumField() {
			if field := v.Field(i); !field.IsZero() {
				n.Content = append(n.Content, text(v.Type().Field(i).Tag.Get("koanf")), node(field))
			}
		}
	case reflect.Slice:
		n.Kind = yaml.SequenceNode
		for i := range v.Len() {
			n.Content = append(n.Content, node(v.Index(i)))
		}
		if v.Len() == 0 {
			n.Style = yaml.FlowStyle
		}
	default:
		return scalarNode(v)
	}
	return n
}

func scalarNode(v reflect.Value) *yaml.Node {
	switch value := v.Interface().(type) {
	case time.Duration:
		return text(dueq.FormatDuration(value))
	case Size:
		return text(value.String())
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(value)}
	case int:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(value)}
	}
	return text(v.String())
}

// text is quoted by the encoder where it would be something else.
func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

// Lines returns the lines of a file that add the token.
func (t Token) Lines() (string, error) {
	list := node(reflect.ValueOf([]Token{t}))
	for _, field := range list.Content[0].Content {
		if field.Kind == yaml.SequenceNode {
			field.Style = yaml.FlowStyle
		}
	}
	return encode(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{text("tokens"), list}})
}

// Values returns what Print writes, by key.
func (c Config) Values() (map[string]any, error) {
	values := map[string]any{}
	return values, c.mapping("", reflect.ValueOf(c.redacted())).Decode(&values)
}

// Sources returns where each key has its value: FILE:LINE, $NAME, --flag or
// default.
func (c Config) Sources() map[string]string {
	sources := map[string]string{}
	for _, k := range keys {
		sources[k.path] = originIn(c.origins, k.path).String()
	}
	return sources
}
