//go:build linux

package clock

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The clock is the one that counts a suspend, by the kernel's own number for it.
func TestSystem_IsTheBootClock(t *testing.T) {
	t.Parallel()
	if bootTime != unix.CLOCK_BOOTTIME {
		t.Fatalf("clock %d, want %d", bootTime, unix.CLOCK_BOOTTIME)
	}
	read := func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			t.Fatal(err)
		}
		return time.Duration(ts.Nano())
	}
	before, now, after := read(), System(), read()
	if now.mono < before || now.mono > after || now.wall != now.mono {
		t.Errorf("%+v is not between %s and %s", now, before, after)
	}
}
