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

// ownsTerminal reports whether fd is a terminal in whose foreground group runs.
func ownsTerminal(fd, group int) bool {
	foreground, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && foreground == group
}

// giveTerminal brings group to the foreground.
func giveTerminal(fd, group int) {
	signal.Ignore(syscall.SIGTTOU) // we are in the background, and may still do this
	unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, group)
}
