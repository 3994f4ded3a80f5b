//go:build unix

package doctest_test

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// metrics returns what a server of its own says at /metrics.
func metrics(t *testing.T) string {
	t.Helper()
	resp, err := http.Get(serve(t, "--listen", "127.0.0.1:0") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestOperations_Metrics wants each metric of a running server in the table of
// operations.md, and none that it does not have.
func TestOperations_Metrics(t *testing.T) {
	t.Parallel()
	text := metrics(t)
	has := found(regexp.MustCompile(`(?m)^# TYPE (fenced_\w+) `), text)
	documented := found(regexp.MustCompile("(?m)^\\| `(fenced_\\w+)` \\|"), read(t, "docs/operations.md"))
	for name := range has {
		if !documented[name] {
			t.Errorf("docs/operations.md: the table of metrics lacks %s", name)
		}
	}
	for name := range documented {
		if !has[name] {
			t.Errorf("docs/operations.md: the server has no metric %s", name)
		}
	}
	for name := range found(regexp.MustCompile(`\b(fenced_\w+?)(?:_bucket|_sum|_count)?\b`), alertRules(t)) {
		if !has[name] {
			t.Errorf("docs/operations.md: an alert asks for %s, which the server has not", name)
		}
	}
}

// found returns the first groups of all matches.
func found(re *regexp.Regexp, text string) map[string]bool {
	names := map[string]bool{}
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		names[m[1]] = true
	}
	return names
}

var alert = regexp.MustCompile("(?m)^\\| (Fenced\\w+) \\| `(.+?)` \\| (\\d+[smh]) \\|")

// alertRules makes a file of rules from the table of alerts.
func alertRules(t *testing.T) string {
	t.Helper()
	rules := "groups:\n- name: fenced\n  rules:\n"
	rows := alert.FindAllStringSubmatch(read(t, "docs/operations.md"), -1)
	if len(rows) < 10 {
		t.Fatalf("docs/operations.md: only %d alerts can be read", len(rows))
	}
	for _, row := range rows {
		expr := strings.ReplaceAll(row[2], `\|`, "|")
		rules += fmt.Sprintf("  - alert: %s\n    expr: %q\n    for: %s\n", row[1], expr, row[3])
	}
	return rules
}

// TestOperations_Alerts has Prometheus's own tool read the expressions.
func TestOperations_Alerts(t *testing.T) {
	t.Parallel()
	promtool(t, alertRules(t), "check", "rules")
}

var (
	namedTest = regexp.MustCompile("`(\\w+)\\.(Test\\w+)`")
	isTest    = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	isPackage = regexp.MustCompile(`(?m)^package (\w+?)(?:_test)?$`)
)

// TestPages_NamedTestsExist wants each test that a page names as proof.
func TestPages_NamedTestsExist(t *testing.T) {
	t.Parallel()
	exist := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if m := isPackage.FindSubmatch(text); m != nil {
			for _, test := range isTest.FindAllSubmatch(text, -1) {
				exist[string(m[1])+"."+string(test[1])] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range allPages(t) {
		for _, m := range namedTest.FindAllStringSubmatch(read(t, path), -1) {
			if name := m[1] + "." + m[2]; !exist[name] {
				t.Errorf("%s: there is no test %s", path, name)
			}
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// TestPages_KeyFilesAreOwn: fencectl refuses a key file that others may read, and by
// itself a shell makes such.
func TestPages_KeyFilesAreOwn(t *testing.T) {
	t.Parallel()
	toFile := regexp.MustCompile(`key new .*> `)
	for _, path := range allPages(t) {
		for _, b := range blocks(t, path) {
			if at := toFile.FindStringIndex(b.text); at != nil && !strings.Contains(b.text[:at[0]], "umask 077") {
				t.Errorf("%s:%d: an API key goes to a file and no umask stands before", path, b.line)
			}
		}
	}
}

// TestPages_Links wants what a page links to in the repository to be there, and the
// heading too.
func TestPages_Links(t *testing.T) {
	t.Parallel()
	for _, path := range append(allPages(t), "ARCHITECTURE.md", "CONTRIBUTING.md") {
		for _, m := range link.FindAllStringSubmatch(read(t, path), -1) {
			target := path
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(path), m[1])
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			if strings.HasSuffix(target, ".md") && m[2] != "" && !anchors(read(t, target))[m[2]] {
				t.Errorf("%s: %s has no heading for %s", path, target, m[2])
			}
		}
	}
}

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(text string) map[string]bool {
	made := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		made["#"+strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])] = true
	}
	return made
}
