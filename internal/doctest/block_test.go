//go:build unix

package doctest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// block is one fenced block of a page.
type block struct {
	lang, text string
	line       int    // of its fence, for people
	skip       string // why it is not run, "" where it is
	file       string // the file that it is the content of
	promtool   bool
}

var (
	notRun = regexp.MustCompile(`^<!-- not run: (.{10,}) -->$`)
	isFile = regexp.MustCompile(`^<!-- file (\S+) -->$`)
)

const isPromtool = "<!-- promtool check config -->"

// blocks takes a page apart. Fences that the parts of it would miss are errors.
func blocks(t *testing.T, path string) []block {
	t.Helper()
	var found []block
	open, above := false, ""
	for i, line := range strings.Split(read(t, path), "\n") {
		fence := strings.HasPrefix(line, "```")
		switch trimmed := strings.TrimSpace(line); {
		case !open && (strings.HasPrefix(trimmed, "~~~") || !fence && strings.HasPrefix(trimmed, "```")):
			t.Errorf("%s:%d: a block must be fenced by ``` at the start of the line", path, i+1)
		case fence && open:
			open = false
		case fence:
			open = true
			found = append(found, marked(block{lang: strings.TrimPrefix(line, "```"), line: i + 1}, above))
		case open:
			found[len(found)-1].text += line + "\n"
		}
		above = line
	}
	if open {
		t.Errorf("%s: the last block does not end", path)
	}
	return found
}

// marked reads the mark above a block.
func marked(b block, mark string) block {
	if m := notRun.FindStringSubmatch(mark); m != nil {
		b.skip = m[1]
	}
	if m := isFile.FindStringSubmatch(mark); m != nil {
		b.file = m[1]
	}
	b.promtool = mark == isPromtool
	return b
}

// read returns the text of a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// allPages returns every page that the rules are for.
func allPages(t *testing.T) []string {
	t.Helper()
	found := []string{"README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			name, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, filepath.ToSlash(name))
		}
	}
	return found
}
