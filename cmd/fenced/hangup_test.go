//go:build linux

package main

import (
	"path/filepath"
	"syscall"
	"testing"
)

// TestMain_StaysOnHangup wants a signal that asks other daemons to read their files
// again not to end this one.
func TestMain_StaysOnHangup(t *testing.T) {
	t.Parallel()
	config := defaultConfig()
	u := newUpgraded(t, t.Context(), config)
	u.args = []string{"serve", "--data-dir", filepath.Join(t.TempDir(), "data"), "--listen", u.url[len("http://"):]}
	u.start("")
	u.ready()
	if err := u.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := u.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := u.cmd.Wait(); err != nil {
		t.Errorf("it ended by the hang-up, not in order: %v", err)
	}
}
