//go:build unix && !linux

package daemon

import "syscall"

// dieWithParent does nothing: only Linux can do it.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
