package strictjson

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/tokens"
)

// MaxItems bounds the length of an array.
const MaxItems = 1000

// Limits that errors name.
const (
	limitString  = "a string that is not empty"
	limitValue   = "a string"
	limitBool    = "true or false"
	limitObject  = "an object"
	limitArray   = "an array"
	limitKnown   = "a field of this call"
	limitToken   = "an integer from 1 to "
	limitEntries = "at most 1000 items"
	limitEscaped = "text whose control characters are escaped"
	limitUTF8    = "UTF-8"
	limitPairs   = "text whose surrogates, \\ud800 to \\udfff, stand in pairs"
)

// Decode reads the one JSON value in data into *v, which must be zero. Its errors
// are all *apierr.Error, malformed or out_of_bounds; after one, *v is undefined.
func Decode[T any](data []byte, v *T) error {
	d := decoder{data: data}
	d.path = d.steps[:0]
	if err := d.value(reflect.ValueOf(v).Elem()); err != nil {
		return err
	}
	if d.peek() != 0 || d.pos < len(d.data) {
		return apierr.New(apierr.Malformed, "the body goes on after its JSON value")
	}
	return nil
}

// decoder walks data once. Every method leaves pos behind what it has read.
type decoder struct {
	data []byte
	pos  int
	path []step
	// steps backs path, so that no request body of ours allocates one.
	steps [2]step
	// highest is the highest token that the field at path may have.
	highest tokens.Token
}

// step is one part of the path to a field: a name, or an index where name is "".
type step struct {
	name  string
	index int
}

func (d *decoder) value(v reflect.Value) error {
	if v.Type() == tokenType {
		return d.token(v)
	}
	switch v.Kind() {
	case reflect.Struct:
		return d.object(v)
	case reflect.String:
		return d.text(v)
	case reflect.Bool:
		return d.boolean(v)
	case reflect.Slice:
		return d.array(v)
	case reflect.Map:
		return d.stringMap(v)
	}
	panic("strictjson: " + v.Type().String() + " is no type of a request body")
}

// object reads the fields of a struct, each at most once.
func (d *decoder) object(v reflect.Value) error {
	fields := fieldsOf(v.Type())
	var seen uint64
	return d.members(func(name string) error {
		i, err := d.find(fields, name)
		if err != nil {
			return err
		}
		if seen&(1<<i) != 0 {
			return d.malformed("the field %s stands twice", fields[i].name)
		}
		seen |= 1 << i
		d.path = append(d.path, step{name: fields[i].name})
		d.highest = fields[i].highest
		if err := d.value(v.Field(i)); err != nil {
			return err
		}
		d.path = d.path[:len(d.path)-1]
		return nil
	})
}

// find returns the index of the field called name.
func (d *decoder) find(fields []field, name string) (int, error) {
	for i, f := range fields {
		if f.name == name {
			return i, nil
		}
	}
	for _, f := range fields {
		if strings.EqualFold(f.name, name) {
			return 0, d.malformed("the field %s is spelled in another case", f.name)
		}
	}
	d.path = append(d.path, step{name: printable(name)})
	return 0, d.bounds(limitKnown)
}

// printable returns name where it is short and plain enough to be repeated in an
// error, and a stand-in elsewhere.
func printable(name string) string {
	const longest = 32
	plain := func(r rune) bool {
		return r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if name == "" || len(name) > longest || strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) >= 0 {
		return "(unprintable)"
	}
	return name
}

// members calls member for each name of an object, with pos before its value.
func (d *decoder) members(member func(name string) error) error {
	if d.peek() != '{' {
		return d.unexpected(limitObject)
	}
	d.pos++
	if d.peek() == '}' {
		d.pos++
		return nil
	}
	for {
		if d.peek() != '"' {
			return d.broken()
		}
		name, err := d.str()
		if err != nil {
			return err
		}
		if d.peek() != ':' {
			return d.broken()
		}
		d.pos++
		if err := member(name); err != nil {
			return err
		}
		if more, err := d.next('}'); err != nil || !more {
			return err
		}
	}
}

// next reads the comma before another element, or the closing byte.
func (d *decoder) next(closing byte) (more bool, err error) {
	switch d.peek() {
	case ',':
		d.pos++
		return true, nil
	case closing:
		d.pos++
		return false, nil
	}
	return false, d.broken()
}

func (d *decoder) array(v reflect.Value) error {
	if d.peek() != '[' {
		return d.unexpected(limitArray)
	}
	d.pos++
	v.Set(reflect.MakeSlice(v.Type(), 0, 1))
	if d.peek() == ']' {
		d.pos++
		return nil
	}
	for i := 0; ; i++ {
		if i == MaxItems {
			return d.bounds(limitEntries)
		}
		d.path = append(d.path, step{index: i})
		v.Grow(1)
		v.SetLen(i + 1)
		v.Index(i).SetZero()
		if err := d.value(v.Index(i)); err != nil {
			return err
		}
		d.path = d.path[:len(d.path)-1]
		if more, err := d.next(']'); err != nil || !more {
			return err
		}
	}
}

func (d *decoder) stringMap(v reflect.Value) error {
	m := map[string]string{}
	err := d.members(func(name string) error {
		if _, twice := m[name]; twice {
			return d.malformed("a key stands twice in one object")
		}
		if len(m) == MaxItems {
			return d.bounds(limitEntries)
		}
		if d.peek() != '"' {
			return d.unexpected(limitObject + " of strings")
		}
		s, err := d.str()
		m[name] = s
		return err
	})
	v.Set(reflect.ValueOf(m))
	return err
}

// text reads a string field. A field that is given must say something: an empty
// one is more often an unset variable than a wish.
func (d *decoder) text(v reflect.Value) error {
	if d.peek() != '"' {
		return d.unexpected(limitValue)
	}
	s, err := d.str()
	if err != nil {
		return err
	}
	if s == "" {
		return d.bounds(limitString)
	}
	v.SetString(s)
	return nil
}

func (d *decoder) boolean(v reflect.Value) error {
	switch {
	case d.literal("true"):
		v.SetBool(true)
		return nil
	case d.literal("false"):
		return nil
	}
	return d.unexpected(limitBool)
}

func (d *decoder) token(v reflect.Value) error {
	if c := d.peek(); c != '-' && (c < '0' || c > '9') {
		return d.unexpected(limitToken + d.highest.String())
	}
	start := d.pos
	for d.pos < len(d.data) && strings.IndexByte("+-.0123456789Ee", d.data[d.pos]) >= 0 {
		d.pos++
	}
	if d.pos == len(d.data) {
		return d.broken() // a number that may go on
	}
	t, err := tokens.Parse(string(d.data[start:d.pos]))
	if err != nil || t > d.highest {
		return d.bounds(limitToken + d.highest.String())
	}
	v.SetInt(int64(t))
	return nil
}

// peek skips white space and returns the byte at pos, 0 at the end.
func (d *decoder) peek() byte {
	for ; d.pos < len(d.data); d.pos++ {
		switch c := d.data[d.pos]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// literal reads word where it stands next as a whole.
func (d *decoder) literal(word string) bool {
	d.peek()
	end := d.pos + len(word)
	if end > len(d.data) || string(d.data[d.pos:end]) != word {
		return false
	}
	d.pos = end
	return true
}

// unexpected answers a value that cannot be what limit says: a fault of type
// where another JSON value starts, of syntax elsewhere.
func (d *decoder) unexpected(limit string) error {
	switch c := d.peek(); {
	case c == '{', c == '[', c == '"', c == '-', '0' <= c && c <= '9':
		return d.bounds(limit)
	case d.literal("true"), d.literal("false"), d.literal("null"):
		return d.bounds(limit)
	}
	return d.broken()
}

// broken answers a fault of syntax.
func (d *decoder) broken() error {
	if d.peek() == 0 && d.pos == len(d.data) {
		return apierr.New(apierr.Malformed, "the body breaks off after byte %d", d.pos)
	}
	return apierr.New(apierr.Malformed, "the body is not JSON at byte %d", d.pos)
}

func (d *decoder) malformed(format string, args ...any) error {
	return apierr.New(apierr.Malformed, format, args...)
}

// unreadable answers text at pos that is not as limit says.
func (d *decoder) unreadable(limit string) error {
	field := d.field()
	return &apierr.Error{ErrCode: apierr.Malformed, Detail: field + " must be " + limit, Field: field, Limit: limit}
}

func (d *decoder) bounds(limit string) error {
	return apierr.Bounds(d.field(), limit)
}

// field renders the path: "metadata", "[3].token", or "body" at the top.
func (d *decoder) field() string {
	if len(d.path) == 0 {
		return "body"
	}
	var b strings.Builder
	for _, s := range d.path {
		switch {
		case s.name == "":
			fmt.Fprintf(&b, "[%s]", strconv.Itoa(s.index))
		case b.Len() > 0:
			b.WriteString("." + s.name)
		default:
			b.WriteString(s.name)
		}
	}
	return b.String()
}
