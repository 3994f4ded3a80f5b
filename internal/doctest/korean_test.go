//go:build unix

package doctest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// korean names the English page that each Korean one follows.
var korean = map[string]string{
	"docs/ko/quickstart.md": "README.md",
	"docs/ko/race.md":       "docs/race.md",
	"docs/ko/rewards.md":    "docs/rewards.md",
}

// TestKorean wants the blocks of a Korean page to be those of its English one, which
// are run, so that the two do not drift apart, and the page to say which one it follows.
func TestKorean(t *testing.T) {
	t.Parallel()
	for page, source := range korean {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			english, here := printed(t, source), printed(t, page)
			if diff := cmp.Diff(english, here); diff != "" {
				t.Errorf("blocks of %s (-) and of %s (+):\n%s", source, page, diff)
			}
			if note := "> [" + source[strings.LastIndex(source, "/")+1:] + "]("; !strings.Contains(read(t, page), "\n"+note) {
				t.Errorf("no line of %s begins with %q: it must say which page it follows", page, note)
			}
		})
	}
}

// printed returns what readers see of the blocks of a page.
func printed(t *testing.T, page string) (seen []string) {
	t.Helper()
	for _, b := range blocks(t, page) {
		seen = append(seen, b.lang+"\n"+b.text)
	}
	return seen
}
