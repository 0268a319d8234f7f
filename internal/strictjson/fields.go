package strictjson

import (
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// field is what the tags of a field in a struct say.
type field struct {
	name             string
	index            []int // for reflect.Value.FieldByIndex
	required         bool
	minimum, maximum float64
	maxItems         int // zero is no limit
	enum             []string
}

var fieldCache sync.Map // reflect.Type → []field

// fieldsOf lists the fields of a struct as JSON knows them, those of embedded
// structs where these stand.
func fieldsOf(t reflect.Type) []field {
	if known, ok := fieldCache.Load(t); ok {
		return known.([]field)
	}
	var all []field
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous && f.IsExported() {
			all = append(all, newField(f))
		}
	}
	fieldCache.Store(t, all)
	return all
}

func newField(f reflect.StructField) field {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	out := field{
		name: name, index: f.Index, required: !strings.Contains(options, "omit"),
		minimum: limit(f, "minimum", math.MinInt64), maximum: limit(f, "maximum", math.MaxInt64),
		maxItems: int(limit(f, "maxItems", 0)),
	}
	if words := f.Tag.Get("enum"); words != "" {
		out.enum = strings.Split(words, ",")
	}
	return out
}

func limit(f reflect.StructField, tag string, none float64) float64 {
	text, ok := f.Tag.Lookup(tag)
	if !ok {
		return none
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic("strictjson: tag " + tag + " of " + f.Name + ": " + err.Error())
	}
	return n
}
