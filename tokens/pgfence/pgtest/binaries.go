//go:build unix

package pgtest

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/fenced/fenced/tokens/internal/daemon"
)

// ErrNotInstalled: no PostgreSQL server binaries were found.
var ErrNotInstalled = errors.New("PostgreSQL server binaries not found on PATH or under /usr/lib/postgresql; " +
	"install them, on Debian and Ubuntu with: apt-get install postgresql")

// debianDirs is where Debian and its relatives keep the server binaries, off PATH.
const debianDirs = "/usr/lib/postgresql/*/bin"

// binDir returns a directory that holds both postgres and initdb: the one on
// PATH, else the newest of Debian's.
func binDir() (string, error) {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		// initdb looks for its files beside the real binary, not beside a link.
		if real, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
	}
	installed, _ := filepath.Glob(debianDirs) // errs only on a bad pattern
	slices.SortFunc(installed, func(a, b string) int { return majorVersion(b) - majorVersion(a) })
	for _, dir := range append(dirs, installed...) {
		if daemon.IsExecutable(filepath.Join(dir, "postgres")) && daemon.IsExecutable(filepath.Join(dir, "initdb")) {
			return dir, nil
		}
	}
	return "", ErrNotInstalled
}

// majorVersion reads 15 from /usr/lib/postgresql/15/bin, and 0 from what is not so.
func majorVersion(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return n
}
