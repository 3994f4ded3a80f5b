package pgtest

import "syscall"

// dieWithParent has the kernel shut the server down at once when the thread that
// started it is gone; spawn keeps that thread for as long as the server runs.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }
