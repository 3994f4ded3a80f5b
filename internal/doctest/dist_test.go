package doctest_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

var sourceLink = regexp.MustCompile(`\]\(https://github\.com/fenced/fenced/blob/[0-9a-z]+/([^)#]*)`)

// TestDist_Links wants what the documents of a release archive link to in the archive, or
// on the web at a path that is in the repository.
func TestDist_Links(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the archives are made on Linux")
	}
	dir := t.TempDir()
	if out, err := exec.Command(filepath.Join(root, ".ci/dist-text"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pages := 0
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			pages++
			distLinks(t, dir, path)
		}
		return err
	})
	if err != nil || pages < len(allPages(t)) {
		t.Errorf("%d pages, want %d at least: %v", pages, len(allPages(t)), err)
	}
}

func distLinks(t *testing.T, dir, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range link.FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); m[1] != "" && err != nil {
			t.Errorf("%s: %v", strings.TrimPrefix(path, dir), err)
		}
	}
	for _, m := range sourceLink.FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("%s: %v", strings.TrimPrefix(path, dir), err)
		}
	}
}
