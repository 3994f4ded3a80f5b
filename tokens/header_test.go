package tokens_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/fenced/fenced/tokens"
)

// A header has one token in one spelling, or none.
func FuzzFromHeader(f *testing.F) {
	for _, s := range []string{"", "7", "7\n7", "07", " 7", "7 ", "+7", "7, 7", "9007199254740992", "0x7"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		h := http.Header{}
		if lines != "" {
			h[tokens.Header] = strings.Split(lines, "\n")
		}
		got, err := tokens.FromHeader(h)
		switch {
		case err == nil && (got.String() != lines || !got.Valid()):
			t.Errorf("%q was read as %d", lines, got)
		case err != nil && (got != 0 || errors.Is(err, tokens.ErrMissing) != (lines == "") || errors.Is(err, tokens.ErrInvalid) == (lines == "")):
			t.Errorf("%q: %d, %v", lines, got, err)
		}
	})
}
