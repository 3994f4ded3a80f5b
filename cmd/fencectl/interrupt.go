package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// interruption is the signal that has ended a context.
type interruption struct{ signal syscall.Signal }

// Error implements error.
func (i *interruption) Error() string { return "interrupted by signal: " + i.signal.String() }

// Is makes it a cancellation like any other to who asks for no more.
func (i *interruption) Is(target error) bool { return target == context.Canceled }

// interruptible returns a context that SIGINT, SIGTERM and SIGHUP end, with an [*interruption]
// as its cause.
func interruptible() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, heeded(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
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

// heeded leaves out the signals that the caller has us ignore, as nohup does. To ask for
// one would end that, for a command that is run as well.
func heeded(signals ...os.Signal) []os.Signal { return slices.DeleteFunc(signals, signal.Ignored) }

// closedPipeFails makes an error of a write to a reader that has left. It would end this
// process before what it could not tell is taken back.
func closedPipeFails() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// interrupted gives err the exit code of the signal that has ended ctx, where it is the
// end of ctx.
func interrupted(ctx context.Context, err error) error {
	var i *interruption
	if errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &i) {
		return &exitError{128 + int(i.signal), "", err}
	}
	return err
}
