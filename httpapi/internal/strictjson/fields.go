package strictjson

import (
	"reflect"
	"strings"
	"sync"

	"github.com/fenced/fenced/tokens"
)

var tokenType = reflect.TypeFor[tokens.Token]()

// fieldNames caches the JSON names of each struct type, in field order.
var fieldNames sync.Map // reflect.Type -> []string

func fieldsOf(t reflect.Type) []string {
	if names, ok := fieldNames.Load(t); ok {
		return names.([]string)
	}
	names := make([]string, t.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if names[i] == "" {
			panic("strictjson: " + t.String() + "." + t.Field(i).Name + " has no json tag")
		}
	}
	fieldNames.Store(t, names)
	return names
}
