package main

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

var signals = map[string]unix.Signal{"stop": unix.SIGSTOP, "kill": unix.SIGKILL}

// raise sends this process the named signal, and does not return before it has
// taken effect. It is sent to the calling thread: a signal to the process may be
// taken by any thread, and this one would run on for a while and do the very thing
// it was to be kept from.
func raise(name string) error {
	signal, ok := signals[name]
	if !ok {
		return fmt.Errorf("signal %q, must be stop or kill", name)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return unix.Tgkill(os.Getpid(), unix.Gettid(), signal)
}
