package embedded

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
)

// ErrBadSnapshot: the file is no whole snapshot. The error that comes says what is
// wrong with it. Take another snapshot, or restore an older one.
var ErrBadSnapshot = errors.New("not a whole snapshot")

// checkSnapshot refuses a file that is no whole snapshot, and derives the id of its
// restore from its bytes: members that restore the same file agree on it, and no
// snapshot can hold its own.
func checkSnapshot(file string, logger *slog.Logger) (id string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	if id, err = checkHash(f); err != nil {
		return "", err
	}
	// The hash only says that the bytes are the ones that somebody has hashed.
	if _, err := snapshot.NewV3(zapTo(logger)).Status(file); err != nil {
		return "", fmt.Errorf("%w: its SHA-256 is right, but the store in it cannot be read: %v", ErrBadSnapshot, err)
	}
	return id, nil
}

// checkHash compares f with the SHA-256 that a snapshot ends with.
func checkHash(f *os.File) (id string, err error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%w: it is not a regular file", ErrBadSnapshot)
	}
	// A store is whole pages, and the hash stands behind the last.
	const page = 512
	stored := info.Size() - sha256.Size
	if stored <= 0 || stored%page != 0 {
		return "", fmt.Errorf("%w: its %d bytes do not end with the SHA-256 of a snapshot; it was cut short, "+
			"or was copied from a data directory instead of taken with fencectl snapshot save", ErrBadSnapshot, info.Size())
	}
	data, whole := sha256.New(), sha256.New()
	if _, err := io.CopyN(io.MultiWriter(data, whole), f, stored); err != nil {
		return "", err
	}
	want, err := io.ReadAll(io.TeeReader(f, whole))
	if err != nil {
		return "", err
	}
	if !bytes.Equal(data.Sum(nil), want) {
		return "", fmt.Errorf("%w: its content does not match the SHA-256 at its end; it was damaged or cut short", ErrBadSnapshot)
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(whole.Sum(nil)[:15])), nil
}
