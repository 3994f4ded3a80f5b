//go:build !unix

package embedded

import (
	"os"
	"path/filepath"
)

// lockDir takes the directory's lock without waiting: a file that is open here
// cannot be removed by another process.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Clean(dir) + ".lock"
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, ErrInUse
	}
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
}
