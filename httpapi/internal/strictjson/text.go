package strictjson

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// str reads a string that starts at pos. Most have no escapes, and their bytes
// are copied as they are.
func (d *decoder) str() (string, error) {
	rest := d.data[d.pos+1:]
	plain := bytes.IndexAny(rest, `"\`)
	if plain < 0 {
		d.pos = len(d.data)
		return "", d.broken()
	}
	if err := d.raw(rest[:plain]); err != nil {
		return "", err
	}
	d.pos += 1 + plain
	if rest[plain] == '"' {
		d.pos++
		return string(rest[:plain]), nil
	}
	return d.escaped(append(make([]byte, 0, 2*plain+16), rest[:plain]...))
}

// raw checks bytes that stand for themselves in a string.
func (d *decoder) raw(b []byte) error {
	for _, c := range b {
		if c < ' ' {
			return d.unreadable(limitEscaped)
		}
	}
	if !utf8.Valid(b) {
		return d.unreadable(limitUTF8)
	}
	return nil
}

// escaped goes on with a string at its first backslash; out has what came before.
func (d *decoder) escaped(out []byte) (string, error) {
	for d.pos < len(d.data) {
		switch d.data[d.pos] {
		case '"':
			d.pos++
			return string(out), nil
		case '\\':
			r, err := d.escape()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
		default:
			end := bytes.IndexAny(d.data[d.pos:], `"\`)
			if end < 0 {
				end = len(d.data) - d.pos
			}
			if err := d.raw(d.data[d.pos : d.pos+end]); err != nil {
				return "", err
			}
			out = append(out, d.data[d.pos:d.pos+end]...)
			d.pos += end
		}
	}
	return "", d.broken()
}

// escape reads one escape, or the two that make up a surrogate pair.
func (d *decoder) escape() (rune, error) {
	if d.pos+1 >= len(d.data) {
		d.pos = len(d.data)
		return 0, d.broken()
	}
	c := d.data[d.pos+1]
	if c == 'u' {
		return d.unicode()
	}
	i := bytes.IndexByte([]byte(`"\/bfnrt`), c)
	if i < 0 {
		return 0, d.broken()
	}
	d.pos += 2
	return rune("\"\\/\b\f\n\r\t"[i]), nil
}

func (d *decoder) unicode() (rune, error) {
	r, err := d.hex()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if rest := d.data[d.pos:]; !bytes.HasPrefix(rest, []byte(`\u`)) && len(rest) > 0 && string(rest) != `\` {
		return 0, d.unreadable(limitPairs)
	}
	low, err := d.hex()
	if err != nil {
		return 0, err
	}
	if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
		return 0, d.unreadable(limitPairs)
	}
	return r, nil
}

// hex reads \uXXXX, whose first two bytes have been seen where there are two.
func (d *decoder) hex() (rune, error) {
	const length = len(`\uXXXX`)
	rest := d.data[d.pos:]
	for _, c := range rest[min(2, len(rest)):min(length, len(rest))] {
		if strings.IndexByte("0123456789abcdefABCDEF", c) < 0 {
			return 0, d.broken()
		}
	}
	if len(rest) < length {
		d.pos = len(d.data)
		return 0, d.broken()
	}
	n, err := strconv.ParseUint(string(rest[2:length]), 16, 16)
	if err != nil {
		return 0, d.broken()
	}
	d.pos += length
	return rune(n), nil
}
