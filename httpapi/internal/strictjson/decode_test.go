package strictjson_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fenced/fenced/httpapi/internal/strictjson"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/tokens"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body string
		want wire.AcquireRequest
	}{
		"all fields": {
			`{"lock":"orders/42","owner":"w1","ttl":"5s","wait":"1s","keep_place":true,"session":"s","metadata":{"a":"1","b":""}}`,
			wire.AcquireRequest{
				Lock: "orders/42", Owner: "w1", TTL: "5s", Wait: "1s", KeepPlace: true, Session: "s",
				Metadata: map[string]string{"a": "1", "b": ""},
			},
		},
		"white space everywhere": {" \t\r\n{ \"lock\" : \"a\" , \"keep_place\" : false } \n", wire.AcquireRequest{Lock: "a"}},
		"nothing":                {`{}`, wire.AcquireRequest{}},
		"empty metadata":         {`{"metadata":{}}`, wire.AcquireRequest{Metadata: map[string]string{}}},
		"escapes":                {`{"lock":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00x"}`, wire.AcquireRequest{Lock: "\"\\/\b\f\n\r\té😀x"}},
		"escaped field name":     {`{"l\u006fck":"a"}`, wire.AcquireRequest{Lock: "a"}},
		"raw UTF-8":              {`{"lock":"é😀"}`, wire.AcquireRequest{Lock: "é😀"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got wire.AcquireRequest
			if err := strictjson.Decode([]byte(tt.body), &got); err != nil {
				t.Fatalf("Decode: %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestDecode_items(t *testing.T) {
	t.Parallel()
	var got []wire.CheckItem
	if err := strictjson.Decode([]byte(`[{"lock":"a","token":7},{"token":9007199254740991,"lock":"b"}]`), &got); err != nil {
		t.Fatalf("Decode: %v", err)
	}
	want := []wire.CheckItem{{Lock: "a", Token: 7}, {Lock: "b", Token: tokens.Max}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestDecode_refuses(t *testing.T) {
	t.Parallel()
	const malformed, bounds = apierr.Malformed, apierr.OutOfBounds
	tests := map[string]struct {
		body  string
		code  apierr.Code
		field string
	}{
		"nothing":                     {``, malformed, ""},
		"only space":                  {` `, malformed, ""},
		"not JSON":                    {`lock=a`, malformed, ""},
		"broken off in a name":        {`{"lo`, malformed, ""},
		"broken off before the colon": {`{"lock"`, malformed, ""},
		"broken off in a value":       {`{"lock":"a`, malformed, ""},
		"broken off in an escape":     {`{"lock":"a\`, malformed, ""},
		"broken off in \\u":           {`{"lock":"a\u00`, malformed, ""},
		"broken off after a value":    {`{"lock":"a"`, malformed, ""},
		"broken off after a comma":    {`{"lock":"a",`, malformed, ""},
		"broken off in a literal":     {`{"keep_place":tru`, malformed, ""},
		"comma before the end":        {`{"lock":"a",}`, malformed, ""},
		"no comma":                    {`{"lock":"a" "owner":"b"}`, malformed, ""},
		"no colon":                    {`{"lock" "a"}`, malformed, ""},
		"name without quotes":         {`{lock:"a"}`, malformed, ""},
		"two values":                  {`{"lock":"a"}{"lock":"b"}`, malformed, ""},
		"text behind":                 {`{"lock":"a"}x`, malformed, ""},
		"zero byte behind":            {"{\"lock\":\"a\"}\x00", malformed, ""},
		"field twice":                 {`{"lock":"a","lock":"a"}`, malformed, ""},
		"field twice by escape":       {`{"lock":"a","loc\u006b":"b"}`, malformed, ""},
		"key twice":                   {`{"metadata":{"a":"1","a":"2"}}`, malformed, ""},
		"other case":                  {`{"Lock":"a"}`, malformed, ""},
		"folded case":                 {"{\"loc\u212a\":\"a\"}", malformed, ""}, // KELVIN SIGN folds to k
		"bytes that are not UTF-8":    {"{\"lock\":\"a\xff\"}", malformed, "lock"},
		"control character":           {"{\"lock\":\"a\n\"}", malformed, "lock"},
		"unknown escape":              {`{"lock":"\x41"}`, malformed, ""},
		"bad hex":                     {`{"lock":"\u00g0"}`, malformed, ""},
		"signed hex":                  {`{"lock":"\u+123"}`, malformed, ""},
		"high surrogate alone":        {`{"lock":"\ud83dxxxxxx"}`, malformed, "lock"},
		"low surrogate alone":         {`{"lock":"\ude00\ude00"}`, malformed, "lock"},
		"surrogates swapped":          {`{"lock":"\ude00\ud83d"}`, malformed, "lock"},
		"high surrogate at the end":   {`{"lock":"a","owner":"\ud83d"}`, malformed, "owner"},
		"low surrogate at the end":    {`{"metadata":{"a":"\udc00"}}`, malformed, "metadata"},
		"surrogate and an escape":     {`{"lock":"\ud83d\n"}`, malformed, "lock"},
		"surrogate in a name":         {`{"lock\ud83d":"a"}`, malformed, "body"},
		"unknown field":               {`{"lock":"a","colour":"red"}`, bounds, "colour"},
		"unprintable unknown field":   {`{"a b":1}`, bounds, "(unprintable)"},
		"null":                        {`{"lock":null}`, bounds, "lock"},
		"number for a string":         {`{"lock":1}`, bounds, "lock"},
		"object for a string":         {`{"owner":{}}`, bounds, "owner"},
		"string for a bool":           {`{"keep_place":"true"}`, bounds, "keep_place"},
		"empty string":                {`{"ttl":""}`, bounds, "ttl"},
		"array for the body":          {`[]`, bounds, "body"},
		"metadata that nests":         {`{"metadata":{"a":{}}}`, bounds, "metadata"},
		"metadata that is a string":   {`{"metadata":"a"}`, bounds, "metadata"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var v wire.AcquireRequest
			checkRefusal(t, strictjson.Decode([]byte(tt.body), &v), tt.code, tt.field)
		})
	}
}

func TestDecode_tokens(t *testing.T) {
	t.Parallel()
	for _, token := range []string{`0`, `-1`, `1.5`, `1e3`, `9007199254740992`, `99999999999999999999`, `"7"`, `"abc"`, `null`, `true`, `007`} {
		t.Run(token, func(t *testing.T) {
			t.Parallel()
			var v []wire.CheckItem
			body := fmt.Sprintf(`[{"lock":"a","token":1},{"lock":"b","token":%s}]`, token)
			checkRefusal(t, strictjson.Decode([]byte(body), &v), apierr.OutOfBounds, "[1].token")
		})
	}
}

// A refusal says what is wrong where, and a body that is whole does not "break off".
func TestDecode_details(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"lock":"a","owner":"\udc00"}`: `owner must be text whose surrogates, \ud800 to \udfff, stand in pairs`,
		"{\"lock\":\"a\xff\"}":          "lock must be UTF-8",
		"{\"lock\":\"a\n\"}":            "lock must be text whose control characters are escaped",
		`{"lock":"\u1"}`:                "the body is not JSON at byte 9",
		`{"lock":"\u1`:                  "the body breaks off after byte 12",
		`{"lock":"\ud83d\`:              "the body breaks off after byte 16",
		`{"lock":"\ud83d\ude`:           "the body breaks off after byte 19",
		`{"lock":"\ud83d`:               "the body breaks off after byte 15",
	} {
		var v wire.AcquireRequest
		var e *apierr.Error
		if err := strictjson.Decode([]byte(body), &v); !errors.As(err, &e) || e.Detail != want {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

// Whatever is wrong with a number, the limit is that of its field.
func TestDecode_floor(t *testing.T) {
	t.Parallel()
	for _, above := range []string{`4503599627370497`, `9007199254740991`, `9007199254740992`, `0`, `-1`, `1.5`, `"7"`, `null`} {
		var v wire.FloorRequest
		var e *apierr.Error
		err := strictjson.Decode([]byte(`{"above":`+above+`}`), &v)
		if !errors.As(err, &e) || e.Detail != "above must be an integer from 1 to 4503599627370496" || e.Field != "above" {
			t.Errorf("%s: %v", above, err)
		}
	}
	var v wire.FloorRequest
	if err := strictjson.Decode([]byte(`{"above":4503599627370496}`), &v); err != nil || v.Above != wire.MaxFloor {
		t.Errorf("%d, %v", v.Above, err)
	}
}

func TestDecode_bounds_the_number_of_items(t *testing.T) {
	t.Parallel()
	item := `{"lock":"a","token":1}`
	var v []wire.CheckItem
	body := "[" + strings.Repeat(item+",", strictjson.MaxItems-1) + item + "]"
	if err := strictjson.Decode([]byte(body), &v); err != nil || len(v) != strictjson.MaxItems {
		t.Errorf("%d items, error %v", len(v), err)
	}
	body = "[" + strings.Repeat(item+",", strictjson.MaxItems) + item + "]"
	checkRefusal(t, strictjson.Decode([]byte(body), &v), apierr.OutOfBounds, "body")
}

func checkRefusal(t *testing.T, err error, code apierr.Code, field string) {
	t.Helper()
	var e *apierr.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an *apierr.Error with code %s", err, code)
	}
	if e.ErrCode != code || e.Field != field {
		t.Errorf("got %s for field %q, want %s for %q (%v)", e.ErrCode, e.Field, code, field, e)
	}
}

// FuzzDecode holds Decode against encoding/json: what one accepts the other
// accepts, with an equal result.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"lock":"a","owner":"b","metadata":{"k":"v"}}`, `[{"lock":"\ud83d\ude00","token":1}]`, `{"keep_place":true} `, `{"lock":"a\u0000"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		compare[wire.AcquireRequest](t, data)
		compare[[]wire.CheckItem](t, data)
	})
}

func compare[T any](t *testing.T, data []byte) {
	t.Helper()
	var got, want T
	if err := strictjson.Decode(data, &got); err != nil {
		return
	}
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatalf("accepted %q, which encoding/json refuses: %v", data, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%q (-encoding/json +strictjson)\n%s", data, diff)
	}
}

func BenchmarkDecode(b *testing.B) {
	body := []byte(`{"lock":"orders/42","owner":"worker-1","ttl":"15s","wait":"5s"}`)
	b.Run("strictjson", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v wire.AcquireRequest
			_ = strictjson.Decode(body, &v)
		}
	})
	b.Run("encoding_json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v wire.AcquireRequest
			_ = json.Unmarshal(body, &v)
		}
	})
}
