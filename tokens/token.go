package tokens

import (
	"database/sql"
	"database/sql/driver"
	"encoding"
	"encoding/json"
	"fmt"
	"strconv"
)

// A Token is a fencing token: the number of one grant of one lock. It is between
// 1 and [Max] and rises strictly from grant to grant of that lock, with gaps. The
// zero value is no token, and no decoder and no encoder of this package lets it
// through.
type Token int64

// Max is the highest token: 2^53-1, the highest integer that is exact in a JSON
// number in every language.
const Max Token = 1<<53 - 1

// Each way a token travels is one of these.
var (
	_ fmt.Stringer             = Token(0)
	_ json.Marshaler           = Token(0)
	_ json.Unmarshaler         = (*Token)(nil)
	_ encoding.TextMarshaler   = Token(0)
	_ encoding.TextUnmarshaler = (*Token)(nil)
	_ driver.Valuer            = Token(0)
	_ sql.Scanner              = (*Token)(nil)
)

// Parse reads a token written as a decimal integer from 1 to [Max]: digits only,
// without sign, leading zero or space. Anything else gives an error that wraps
// [ErrInvalid].
func Parse(s string) (Token, error) {
	// ParseUint alone would let leading zeros in, and two spellings of one token
	// invite comparing tokens as text.
	if s == "" || s[0] == '0' || !allDigits(s) {
		return 0, invalidText(s)
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || Token(n) > Max {
		return 0, invalidText(s)
	}
	return Token(n), nil
}

// Valid reports whether t is between 1 and [Max].
func (t Token) Valid() bool { return t >= 1 && t <= Max }

// String returns t in decimal, also where it is not valid.
func (t Token) String() string { return strconv.FormatInt(int64(t), 10) }

// MarshalJSON writes t as a JSON integer. A token that is not valid gives an
// error that wraps [ErrInvalid]; give fields that may have none `omitempty`.
func (t Token) MarshalJSON() ([]byte, error) { return t.MarshalText() }

// UnmarshalJSON reads a JSON integer from 1 to [Max]. A fraction, an exponent, a
// string, null and numbers out of range give an error that wraps [ErrInvalid]
// and leave t as it was. For the same reason a Token cannot be the key of a JSON
// object that is read: keys are strings.
func (t *Token) UnmarshalJSON(b []byte) error { return t.UnmarshalText(b) }

// MarshalText writes t in decimal. A token that is not valid gives an error that
// wraps [ErrInvalid].
func (t Token) MarshalText() ([]byte, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	return strconv.AppendInt(nil, int64(t), 10), nil
}

// UnmarshalText reads what [Parse] reads. After an error t is as it was.
func (t *Token) UnmarshalText(b []byte) error {
	n, err := Parse(string(b))
	if err != nil {
		return err
	}
	*t = n
	return nil
}

// Value gives t to database/sql as an int64. A token that is not valid gives an
// error that wraps [ErrInvalid], so that it never reaches the database.
func (t Token) Value() (driver.Value, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	return int64(t), nil
}

// Scan reads a column of database/sql: an integer from 1 to [Max], or its decimal
// text as some drivers send it. NULL and everything else gives an error that
// wraps [ErrInvalid] and leaves t as it was.
func (t *Token) Scan(src any) error {
	switch v := src.(type) {
	case int64:
		if err := Token(v).check(); err != nil {
			return err
		}
		*t = Token(v)
		return nil
	case []byte:
		return t.UnmarshalText(v)
	case string:
		return t.UnmarshalText([]byte(v))
	default:
		return fmt.Errorf("token: a column of type %T: %w", src, ErrInvalid)
	}
}

func (t Token) check() error {
	if !t.Valid() {
		return fmt.Errorf("token %d: not between 1 and %d: %w", int64(t), int64(Max), ErrInvalid)
	}
	return nil
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// invalidText quotes what was given, cut short: it may be a whole request header.
func invalidText(s string) error {
	const shown = 32
	if len(s) > shown {
		return fmt.Errorf("token %.*q...: not a decimal integer from 1 to %d: %w", shown, s, int64(Max), ErrInvalid)
	}
	return fmt.Errorf("token %q: not a decimal integer from 1 to %d: %w", s, int64(Max), ErrInvalid)
}
