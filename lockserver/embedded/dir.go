package embedded

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// Canonical returns the one name of a data directory, which need not exist yet:
// absolute and without symbolic links. The lock of the directory and the files beside
// it go by that name, or one directory would have two of each.
func Canonical(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	parent, err := Canonical(filepath.Dir(dir))
	return filepath.Join(parent, filepath.Base(dir)), err
}
