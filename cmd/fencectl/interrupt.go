package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// interruption is the signal that has ended a context.
type interruption struct{ signal syscall.Signal }

// Error implements error.
func (i *interruption) Error() string { return "interrupted by signal: " + i.signal.String() }

// Is makes it a cancellation like any other to who asks for no more.
func (i *interruption) Is(target error) bool { return target == context.Canceled }

// interruptible returns a context that SIGINT and SIGTERM end, with an [*interruption]
// as its cause.
func interruptible() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			n, _ := s.(syscall.Signal) // as all that were asked for
			cancel(&interruption{n})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// interrupted gives err the exit code of the signal that has ended ctx, where it is the
// end of ctx.
func interrupted(ctx context.Context, err error) error {
	var i *interruption
	if errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &i) {
		return &exitError{128 + int(i.signal), "", err}
	}
	return err
}
