package names_test

import (
	"strings"
	"testing"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/names"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "/", "..", "é", "漢字", "a b", strings.Repeat("x", 8)} {
		if err := names.Check("lock", good, 1, 8); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", strings.Repeat("x", 9), "e\u0301", "\u200b", "\u202e", "a\x00", "\r\n", "\xff", "\ue000", "\u2028"} {
		if err := names.Check("lock", bad, 1, 8); apierr.CodeOf(err) != apierr.OutOfBounds {
			t.Errorf("%q: %v, want out_of_bounds", bad, err)
		}
	}
}
