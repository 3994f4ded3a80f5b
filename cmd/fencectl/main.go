package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if isSupervisor(os.Args) {
		os.Exit(superviseMain(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}, os.Getenv)
	stop()
	os.Exit(code)
}
