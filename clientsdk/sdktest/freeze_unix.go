//go:build unix

package sdktest

import "syscall"

// Freeze stops the server in its tracks, as a stalled machine does, until [Process.Thaw].
func (p *Process) Freeze() { p.tb.Helper(); p.signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (p *Process) Thaw() { p.tb.Helper(); p.signal(syscall.SIGCONT) }
