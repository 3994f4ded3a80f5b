//go:build !linux

package httpapi

import "time"

// peek cannot look here; net/http's own watch remains.
func peek(uintptr) streamState { return streamSilent }

// setUserTimeout has no portable counterpart; keep-alives remain.
func setUserTimeout(uintptr, time.Duration) error { return nil }
