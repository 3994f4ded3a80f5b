package main

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	ioctlReadTermios  = unix.TCGETS
	ioctlWriteTermios = unix.TCSETS
)

// bootTime reads CLOCK_BOOTTIME, which goes on while the machine sleeps, ignores steps
// and is the same in all processes.
func bootTime() instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // every Linux since 2.6.39 has it
	}
	return instant(ts.Nano())
}

// groupAttr gives the command a process group of its own, which is the terminal's where
// foreground is set, and its death with the thread that starts it.
func groupAttr(foreground bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Foreground: foreground}
}

// awaitExit returns when cmd has ended, and leaves it to be reaped: until then its
// number names its group and nobody else's.
func awaitExit(cmd *exec.Cmd) {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
