//go:build unix

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fenced/fenced/examples/racelab/internal/lab"
	"github.com/fenced/fenced/examples/racelab/internal/stage"
)

// roles are what a copy of this program can be instead of the lab.
var roles = map[string]func() error{lab.WorkerRole: lab.WorkerMain}

func main() {
	stage.ChildMain(roles)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
