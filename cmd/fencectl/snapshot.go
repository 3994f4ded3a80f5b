package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
)

func (a *app) snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "snapshot", Short: "Copy the server's store"}
	cmd.AddCommand(&cobra.Command{
		Use:   "save FILE",
		Short: "Copy the server's store to a file, for \"fenced restore\"",
		Long: `Copy the server's whole store to a file. The copy is checked and on disk before the file
gets its name; a regular file of that name is replaced, anything else is refused.

"fenced restore" takes the file, and makes the tokens to come higher than those that were
issued after the copy was made.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(c *clientsdk.Client) error { return a.saveSnapshot(cmd, c, args[0]) })
		},
	})
	return cmd
}

func (a *app) saveSnapshot(cmd *cobra.Command, c *clientsdk.Client, path string) (err error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return usage("snapshot: %s is there and is not a regular file (%s): name a file", path, info.Mode().Type())
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return usage("snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	defer f.Close()
	if err := c.Snapshot(cmd.Context(), f); err != nil {
		return err
	}
	size, err := checkSnapshot(f)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return &exitError{exitInternal, "take it again", fmt.Errorf("snapshot: %w", err)}
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return usage("snapshot: %w", err)
	}
	return a.print(map[string]any{"file": path, "bytes": size}, func(t *table) { t.row("saved", path, fmt.Sprintf("%d bytes", size)) })
}

// checkSnapshot compares a snapshot with the SHA-256 at its end, and returns its size.
func checkSnapshot(f io.ReadSeeker) (size int64, err error) {
	if size, err = f.Seek(0, io.SeekEnd); err != nil {
		return 0, err
	}
	if size <= sha256.Size {
		return 0, fmt.Errorf("%d bytes are no snapshot", size)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	hash := sha256.New()
	if _, err := io.CopyN(hash, f, size-sha256.Size); err != nil {
		return 0, err
	}
	want, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	if !bytes.Equal(hash.Sum(nil), want) {
		return 0, errors.New("it does not match its SHA-256")
	}
	return size, nil
}
