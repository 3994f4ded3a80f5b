//go:build unix && !linux

package stage

import "syscall"

// attributes keep a Ctrl-C of the terminal from the children, whose end is ours to
// order.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
