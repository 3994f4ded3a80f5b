// Package names says which text may name something: a lock, an owner, a reason. The
// engine asks it, and so does the SDK's fake server.
package names

import (
	"fmt"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/fenced/fenced/internal/apierr"
)

// invisible are the categories that no name may hold: what cannot be seen, or is
// seen differently from what is stored.
var invisible = []*unicode.RangeTable{unicode.Cc, unicode.Cf, unicode.Cs, unicode.Co, unicode.Cn, unicode.Zl, unicode.Zp}

// Check returns an out_of_bounds error of that field unless text is low to high bytes
// of UTF-8 in NFC without characters of the categories Cc, Cf, Cs, Co, Cn, Zl and Zp.
func Check(field, text string, low, high int) error {
	if len(text) < low || len(text) > high {
		return apierr.Bounds(field, fmt.Sprintf("%d to %d bytes of UTF-8", low, high))
	}
	for i, r := range text {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return apierr.Bounds(field, "valid UTF-8")
			}
		}
		if r >= 0x7f || r < ' ' {
			if unicode.IsOneOf(invisible, r) {
				return apierr.Bounds(field, fmt.Sprintf("free of control, format, private-use, unassigned and line separator characters; U+%04X is one", r))
			}
		}
	}
	if !norm.NFC.IsNormalString(text) {
		return apierr.Bounds(field, "in Unicode normalization form NFC")
	}
	return nil
}
