package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// bootTime is CLOCK_BOOTTIME, which package syscall does not name.
const bootTime = 7

// System reads CLOCK_BOOTTIME, or Go's two clocks where a sandbox forbids it.
func System() Instant {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, bootTime, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return Go()
	}
	d := time.Duration(ts.Nano())
	return Instant{mono: d, wall: d}
}
