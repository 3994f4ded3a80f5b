//go:build unix

package main

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, ioctlReadTermios)
	return err == nil
}

// ownsTerminal reports whether fd is a terminal in whose foreground we run.
func ownsTerminal(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// takeTerminal brings us back to the foreground, so that what follows us in a script
// can read.
func takeTerminal(fd int) {
	signal.Ignore(syscall.SIGTTOU) // we are in the background now, and may still do this
	unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, unix.Getpgrp())
}
