// Package unit repeats a fenced unit of work until it is through, is refused or
// is out of time. It is what WithFence of every adapter for a transactional store
// has in common; what a unit does in its store is the adapter's.
package unit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/fenced/fenced/tokens"
)

// Pauses between tries are drawn evenly from 0 to a bound that doubles.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// Work is one fenced unit of work.
type Work struct {
	// Claim is what it advances. [Work.Run] sets its deadline: the claim's own or
	// that of the context, whichever is earlier, or Limit from now.
	Claim tokens.Claim
	// Limit bounds a unit whose claim and context have no deadline.
	Limit time.Duration
	// Once is one try, from begin to commit. Its error is classified.
	Once func(ctx context.Context, c tokens.Claim) error
	// InVain reports whether another try has no chance. Nil means that it has.
	InVain func() bool
}

var errLeaseOver = fmt.Errorf("the lease is over: %w", context.DeadlineExceeded)

// insideKey marks the context of a unit.
type insideKey struct{}

// Inside reports whether ctx is that of a unit of work: one inside another would
// wait for it, or commit its work.
func Inside(ctx context.Context) bool { return ctx.Value(insideKey{}) != nil }

// Run tries until an error says that it is no use, or the deadline has passed.
func (w Work) Run(ctx context.Context) error {
	w.Claim.Deadline = deadline(ctx, w.Claim, w.Limit)
	ctx, cancel := context.WithDeadlineCause(context.WithValue(ctx, insideKey{}, true), w.Claim.Deadline, errLeaseOver)
	defer cancel()
	var last error
	for try := 0; ; try++ {
		if ctx.Err() != nil {
			return w.timeOver(ctx, last)
		}
		err := w.Once(ctx, w.Claim)
		if err == nil || !repeatable(err) || w.InVain != nil && w.InVain() {
			return w.explain(ctx, err, last)
		}
		last = err
		pause(ctx, try)
	}
}

func deadline(ctx context.Context, c tokens.Claim, limit time.Duration) time.Time {
	own, ok := ctx.Deadline()
	switch {
	case c.Deadline.IsZero() && ok:
		return own
	case c.Deadline.IsZero():
		return time.Now().Add(limit)
	case ok && own.Before(c.Deadline):
		return own
	default:
		return c.Deadline
	}
}

func repeatable(err error) bool {
	return errors.Is(err, tokens.ErrBusy) || errors.Is(err, tokens.ErrRetryable)
}

// pause waits between two tries, at random so that rivals part.
func pause(ctx context.Context, try int) {
	bound := min(firstPause<<min(try, 10), lastPause)
	timer := time.NewTimer(rand.N(bound))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// NotThrough says what a limit of time means for a try that met it before the
// caller's function could be called. Where the unit's time is over, it was kept
// waiting, by the fence's holder or for a connection. Where it is not, the limit was
// the driver's own, as for connecting, and another try has a chance.
func NotThrough(ctx context.Context, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	settle(ctx)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", tokens.ErrBusy, err)
	case ctx.Err() == nil:
		return fmt.Errorf("%w: %w", tokens.ErrRetryable, err)
	default:
		return err
	}
}

// settle waits for ctx to end where the clock says that its time is over: the network
// keeps the same deadline by a timer of its own, which may be the first to ring.
func settle(ctx context.Context) {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
}

// explain says of the end of a context what it was that ended, with the error of
// the try before: somebody who waited in vain wants to know for whom. It keeps what
// else err holds, of the caller's function. What has a meaning already keeps that: a
// COMMIT without an answer in its time ends like a context too, and is not the same as
// nothing written.
func (w Work) explain(ctx context.Context, err, last error) error {
	if Classified(err) || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	settle(ctx)
	switch ctx.Err() {
	case nil:
		return err
	case err: // says no more than that
		return w.timeOver(ctx, last)
	default:
		return fmt.Errorf("%w: %w", w.timeOver(ctx, last), err)
	}
}

func (w Work) timeOver(ctx context.Context, last error) error {
	if last == nil {
		return fmt.Errorf("with fence %q: %w", w.Claim.Resource, Ended(ctx))
	}
	return fmt.Errorf("with fence %q: %w; the last try: %w", w.Claim.Resource, Ended(ctx), last)
}

// Ended returns why ctx has ended, nil where it has not, so that errors.Is finds
// both the cause and the context's own error.
func Ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
