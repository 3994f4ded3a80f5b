// Package clock reads the clock that lease deadlines are counted by.
//
// A lease ends by the server's clock, whatever the holder's machine does in the
// meantime. So the holder needs a clock that never stands still while time passes
// outside: it must count a suspend, and a step of the wall clock must not lengthen
// anything. On Linux that is CLOCK_BOOTTIME. Elsewhere two clocks are read, the
// monotonic and the wall clock, and a deadline counts as passed when either of
// them says so: too early is safe, too late is not.
//
// All functions may be called from any number of goroutines.
package clock

import "time"

// An Instant is one reading. Readings of one process compare with each other and
// with nothing else.
type Instant struct{ mono, wall time.Duration }

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant {
	return Instant{i.mono + d, i.wall + d}
}

// Sub returns the time from j to i, by the clock that counted more of it.
func (i Instant) Sub(j Instant) time.Duration {
	return max(i.mono-j.mono, i.wall-j.wall)
}

// Until returns the time left from i to the deadline j, by the clock that says
// less; 0 or below when it has passed.
func (i Instant) Until(j Instant) time.Duration { return -i.Sub(j) }

// Func is a clock.
type Func func() Instant

// Source is a transport that brings its own clock: an in-process fake server,
// whose time is that of its test and not of the machine.
type Source interface{ LeaseClock() Instant }

// start anchors the readings of Go's own clocks.
var start = time.Now()

// Go reads the monotonic and the wall clock of package time. In a testing/synctest
// bubble both are the bubble's.
func Go() Instant {
	now := time.Now()
	return Instant{mono: now.Sub(start), wall: now.Round(0).Sub(start.Round(0))}
}
