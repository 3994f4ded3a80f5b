//go:build unix && !linux

package main

import (
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	ioctlReadTermios  = unix.TIOCGETA
	ioctlWriteTermios = unix.TIOCSETA
)

// bootTime is the wall clock: the one clock of these systems that is the same in all
// processes and goes on while the machine sleeps. A step of it moves the deadline.
func bootTime() instant { return instant(time.Now().UnixNano()) }

// groupAttr gives the command a process group of its own, which is the terminal's where
// foreground is set. Only Linux can tie its life to that of the supervisor.
func groupAttr(foreground bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Foreground: foreground}
}

// awaitExit returns when cmd has ended.
func awaitExit(cmd *exec.Cmd) { cmd.Wait() }
