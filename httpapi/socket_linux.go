package httpapi

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// peek looks at what the socket would read next, without taking it.
func peek(fd uintptr) streamState {
	var b [1]byte
	n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return streamSilent
	case err != nil, n == 0:
		return streamEnded
	}
	return streamUnread
}

// setUserTimeout bounds how long sent data may stay unacknowledged. Accepted
// connections inherit it.
func setUserTimeout(fd uintptr, d time.Duration) error {
	return unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
}
