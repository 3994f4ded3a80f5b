// Command fenced is the lock server. Run "fenced help" for its commands.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A hang-up asks a daemon to read its files again, and this one follows those that
	// may change by itself. To end on it, without an answer for waiters, helps nobody.
	signal.Ignore(syscall.SIGHUP)
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "fenced:", err)
		stop()
		os.Exit(1)
	}
}
