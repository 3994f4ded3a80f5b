package tokens_test

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fenced/fenced/tokens"
)

// invalidTexts are spellings that some parser somewhere takes for a number.
var invalidTexts = []string{
	"", " ", "0", "00", "01", "-1", "+1", "-0", " 1", "1 ", "1\n", "\t1", "1.0", "1.5", "1e3", "1E3", "0x10", "1_000", "1,000",
	"9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551616",
	"99999999999999999999999999", "abc", "1a", "NaN", "Infinity", "null", "true", `"7"`, "[7]", "٣", "１", "1\x00", "\xff",
	strings.Repeat("1", 1<<16),
}

func TestParse_Invalid(t *testing.T) {
	t.Parallel()
	for _, s := range invalidTexts {
		got, err := tokens.Parse(s)
		if got != 0 || !errors.Is(err, tokens.ErrInvalid) {
			t.Errorf("Parse(%.40q) = %d, %v; want 0 and ErrInvalid", s, got, err)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("Parse of %d bytes: the error has %d", len(s), len(err.Error()))
		}
	}
}

func TestParse_Bounds(t *testing.T) {
	t.Parallel()
	for _, want := range []tokens.Token{1, 9, 10, 1 << 53 / 2, tokens.Max - 1, tokens.Max} {
		if got, err := tokens.Parse(want.String()); got != want || err != nil {
			t.Errorf("Parse(%q) = %d, %v", want.String(), got, err)
		}
	}
	if tokens.Max != 9007199254740991 {
		t.Errorf("Max = %d, want 2^53-1", tokens.Max)
	}
}

// Whatever way a token travels, it arrives as it was.
func TestToken_RoundTrips(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := tokens.Token(rapid.Int64Range(1, int64(tokens.Max)).Draw(t, "token"))
		var viaJSON struct{ T tokens.Token }
		b, err := json.Marshal(struct{ T tokens.Token }{want})
		if err == nil {
			err = json.Unmarshal(b, &viaJSON)
		}
		if err != nil || viaJSON.T != want {
			t.Errorf("JSON %s: %d, %v", b, viaJSON.T, err)
		}
		// A reader whose numbers are floats loses nothing.
		var float struct{ T float64 }
		if err := json.Unmarshal(b, &float); err != nil || tokens.Token(float.T) != want {
			t.Errorf("JSON %s as a float: %v, %v", b, float.T, err)
		}
		var viaSQL tokens.Token
		v, err := want.Value()
		if err == nil {
			err = viaSQL.Scan(v)
		}
		if err != nil || viaSQL != want {
			t.Errorf("SQL %v: %d, %v", v, viaSQL, err)
		}
		var viaText tokens.Token
		b, err = want.MarshalText()
		if err == nil {
			err = viaText.UnmarshalText(b)
		}
		if err != nil || viaText != want {
			t.Errorf("text %s: %d, %v", b, viaText, err)
		}
	})
}

func TestToken_InvalidIsNeverWritten(t *testing.T) {
	t.Parallel()
	for _, bad := range []tokens.Token{0, -1, tokens.Max + 1, math.MaxInt64, math.MinInt64} {
		if bad.Valid() {
			t.Errorf("%d is valid", bad)
		}
		if b, err := json.Marshal(bad); !errors.Is(err, tokens.ErrInvalid) {
			t.Errorf("Marshal(%d) = %s, %v; want ErrInvalid", bad, b, err)
		}
		if b, err := bad.MarshalText(); !errors.Is(err, tokens.ErrInvalid) {
			t.Errorf("MarshalText(%d) = %s, %v; want ErrInvalid", bad, b, err)
		}
		if v, err := bad.Value(); !errors.Is(err, tokens.ErrInvalid) {
			t.Errorf("Value of %d = %v, %v; want ErrInvalid", bad, v, err)
		}
	}
}

func TestToken_UnmarshalJSON_Strict(t *testing.T) {
	t.Parallel()
	for _, literal := range []string{"0", "-1", "1.5", "1.0", "1e3", "9007199254740992", "1e400", `"7"`, "null", "true", "[]", "{}"} {
		got := struct{ T tokens.Token }{T: 5}
		if err := json.Unmarshal([]byte(`{"T":`+literal+`}`), &got); !errors.Is(err, tokens.ErrInvalid) || got.T != 5 {
			t.Errorf("Unmarshal(%s) = %d, %v; want 5 as before and ErrInvalid", literal, got.T, err)
		}
	}
}

func TestToken_Scan(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		src  any
		want tokens.Token
		err  error
	}{
		{int64(7), 7, nil},
		{int64(tokens.Max), tokens.Max, nil},
		{[]byte("7"), 7, nil},
		{"7", 7, nil},
		{nil, 5, tokens.ErrInvalid},
		{int64(0), 5, tokens.ErrInvalid},
		{int64(-1), 5, tokens.ErrInvalid},
		{int64(tokens.Max) + 1, 5, tokens.ErrInvalid},
		{float64(7), 5, tokens.ErrInvalid},
		{true, 5, tokens.ErrInvalid},
		{"7 ", 5, tokens.ErrInvalid},
		{[]byte("07"), 5, tokens.ErrInvalid},
	} {
		got := tokens.Token(5)
		if err := got.Scan(tt.src); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("Scan(%#v): %d, %v; want %d, %v", tt.src, got, err, tt.want, tt.err)
		}
	}
}

// What Parse accepts has one spelling, the one that String gives.
func FuzzParse(f *testing.F) {
	for _, s := range append(invalidTexts, "1", "42", "9007199254740991") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := tokens.Parse(s)
		n, strconvErr := strconv.ParseInt(s, 10, 64)
		switch {
		case err == nil && (!got.Valid() || got.String() != s || int64(got) != n):
			t.Errorf("Parse(%q) = %d", s, got)
		case err != nil && (!errors.Is(err, tokens.ErrInvalid) || got != 0):
			t.Errorf("Parse(%q) = %d, %v; want 0 and ErrInvalid", s, got, err)
		case err != nil && strconvErr == nil && tokens.Token(n).Valid() && strconv.FormatInt(n, 10) == s:
			t.Errorf("Parse(%q) refuses a token: %v", s, err)
		}
	})
}

// JSON and text take the same tokens, but JSON takes them only bare.
func FuzzToken_UnmarshalJSON(f *testing.F) {
	for _, s := range []string{"1", "0", "1.5", "1e3", `"7"`, "null", "-1", " 7 ", "9007199254740992"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var got tokens.Token
		err := json.Unmarshal(b, &got)
		if err != nil {
			if got != 0 {
				t.Errorf("Unmarshal(%q) failed and left %d", b, got)
			}
			return
		}
		if again, err := json.Marshal(got); err != nil || string(again) != strings.TrimSpace(string(b)) {
			t.Errorf("Unmarshal(%q) = %d, which is written %s, %v", b, got, again, err)
		}
	})
}
