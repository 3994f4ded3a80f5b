package archtest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// starts is how a package, or its tests, come to have goroutines of their own: go
// statements, WaitGroup.Go, servers, and commands, whose output a goroutine reads.
var starts = regexp.MustCompile(`(?m)^\s*go (func\b|[\w.]+\()|\.Go\(func\b|\bnet\.Listen|\bhttptest\.New(Unstarted)?Server|\bexec\.Command`)

// verifies is what a TestMain ends with that looks for goroutines which are left.
var verifies = regexp.MustCompile(`\b(goleak\.VerifyTestMain|VerifyNoLeaks)\(`)

func TestPackagesWithGoroutinesLookForLeaks(t *testing.T) {
	t.Parallel()
	for dir, files := range goFiles(t) {
		tested, starting, verified := false, false, false
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			test := strings.HasSuffix(name, "_test.go")
			tested = tested || test
			starting = starting || starts.Match(text)
			verified = verified || test && verifies.Match(text)
		}
		if tested && starting && !verified {
			t.Errorf("%s starts goroutines, and its tests do not look for leaks: func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }", dir)
		}
	}
}

// goFiles lists the Go files of the module by directory, whatever they are built for.
func goFiles(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".go" {
			all[filepath.Dir(path)] = append(all[filepath.Dir(path)], path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
