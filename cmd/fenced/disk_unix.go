//go:build linux || darwin

package main

import "golang.org/x/sys/unix"

// diskFree is the room that this user has left on the disk of dir, nil where nobody
// can tell.
func diskFree(dir string) *int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return nil
	}
	free := int64(st.Bavail) * int64(st.Bsize)
	return &free
}
