package stage

import "syscall"

// attributes keep a Ctrl-C of the terminal from the children, whose end is ours to
// order, and end them with us.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
