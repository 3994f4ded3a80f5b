package httpapi

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// endOfStream looks at what the socket would read next, without taking it. Data
// hides an end that is behind it.
func endOfStream(fd uintptr) bool {
	var b [1]byte
	n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if err != nil {
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	}
	return n == 0
}

// setUserTimeout bounds how long sent data may stay unacknowledged. Accepted
// connections inherit it.
func setUserTimeout(fd uintptr, d time.Duration) error {
	return unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
}
