package strictjson

import (
	"cmp"
	"reflect"
	"strings"
	"sync"

	"github.com/fenced/fenced/tokens"
)

var tokenType = reflect.TypeFor[tokens.Token]()

// field is what the tags of a struct's field say.
type field struct {
	name    string       // in JSON
	highest tokens.Token // the tag "maximum"
}

// known caches the fields of each struct type, in their order.
var known sync.Map // reflect.Type -> []field

func fieldsOf(t reflect.Type) []field {
	if fields, ok := known.Load(t); ok {
		return fields.([]field)
	}
	fields := make([]field, t.NumField())
	for i := range fields {
		fields[i] = fieldOf(t, t.Field(i))
	}
	known.Store(t, fields)
	return fields
}

func fieldOf(t reflect.Type, f reflect.StructField) field {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" {
		panic("strictjson: " + t.String() + "." + f.Name + " has no json tag")
	}
	highest, err := tokens.Parse(cmp.Or(f.Tag.Get("maximum"), tokens.Max.String()))
	if err != nil {
		panic("strictjson: " + t.String() + "." + f.Name + ": maximum: " + err.Error())
	}
	return field{name, highest}
}
