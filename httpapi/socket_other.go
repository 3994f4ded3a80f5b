//go:build !linux

package httpapi

import "time"

// endOfStream cannot look here; net/http's own watch remains.
func endOfStream(uintptr) bool { return false }

// setUserTimeout has no portable counterpart; keep-alives remain.
func setUserTimeout(uintptr, time.Duration) error { return nil }
