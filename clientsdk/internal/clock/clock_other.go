//go:build !linux

package clock

// System reads Go's monotonic and wall clock.
func System() Instant { return Go() }
