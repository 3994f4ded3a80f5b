//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
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
		if isExecutable(filepath.Join(dir, "postgres")) && isExecutable(filepath.Join(dir, "initdb")) {
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

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// account is the user that a server runs as; nil means the caller.
type account struct{ uid, gid uint32 }

// unprivileged returns whom to run as: the caller itself, or for root the first
// of two users that exist on nearly every system.
func unprivileged() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			return parseAccount(u)
		}
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as")
}

func parseAccount(u *user.User) (*account, error) {
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: uid %q: %w", u.Username, u.Uid, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: gid %q: %w", u.Username, u.Gid, err)
	}
	return &account{uid: uint32(uid), gid: uint32(gid)}, nil
}
