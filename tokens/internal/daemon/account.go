//go:build unix

package daemon

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// Account is the user that a server runs as; nil means the caller.
type Account struct{ UID, GID uint32 }

// Unprivileged returns whom to run as: the caller itself, or for root the first
// of names that exists.
func Unprivileged(names ...string) (*Account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range names {
		if u, err := user.Lookup(name); err == nil {
			return parseAccount(u)
		}
	}
	return nil, fmt.Errorf("a database server must not run as root, and there is no user %s to run it as", strings.Join(names, " or "))
}

func parseAccount(u *user.User) (*Account, error) {
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: uid %q: %w", u.Username, u.Uid, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: gid %q: %w", u.Username, u.Gid, err)
	}
	return &Account{UID: uint32(uid), GID: uint32(gid)}, nil
}

// Own gives path to the account; nil leaves it to the caller.
func (a *Account) Own(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, int(a.UID), int(a.GID))
}

// MakeDir makes a temporary directory of the account, closed to other users. Its
// name is short, because the path of a unix socket may have 107 bytes at most.
func (a *Account) MakeDir(prefix string) (string, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return "", err
	}
	return filepath.Clean(dir), a.Own(dir)
}

// IsExecutable reports whether path is a program.
func IsExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
