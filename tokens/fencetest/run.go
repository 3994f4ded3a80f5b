package fencetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fenced/fenced/tokens"
)

// caseLimit bounds one case. It is far above what any takes, so that a guard that
// waits for ever fails instead of hanging the run.
const caseLimit = time.Minute

// Run runs every case that applies as a subtest, each on a Harness of its own from
// open, which may register clean-up on the subtest.
func Run[U any](t *testing.T, open func(t *testing.T) Harness[U]) {
	t.Helper()
	for _, c := range Cases[U]() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			if c.Needs != nil && !c.Needs(h) {
				t.Skip("the store cannot do this")
			}
			ctx, cancel := context.WithTimeout(t.Context(), caseLimit)
			defer cancel()
			if err := c.Check(ctx, h); err != nil {
				t.Error(err)
			}
		})
	}
}

// claim is the usual claim of the suite.
func claim(resource string, t tokens.Token, m tokens.Mode) tokens.Claim {
	return tokens.Claim{Resource: resource, Token: t, Mode: m}
}

// do is one whole unit of work: advance, write the value, commit.
func do[U any](ctx context.Context, h Harness[U], c tokens.Claim, value string) (d tokens.Decision, err error) {
	u, err := h.Begin(ctx)
	if err != nil {
		return d, fmt.Errorf("begin: %w", err)
	}
	d, err = h.Guard().Advance(ctx, u, c)
	if err == nil && d.Outcome != tokens.Accepted {
		err = fmt.Errorf("the outcome is %v and there is no error", d.Outcome)
	}
	if err == nil {
		err = h.Write(ctx, u, c.Resource, value)
	}
	if err != nil {
		return d, errors.Join(err, h.Rollback(ctx, u))
	}
	return d, h.Commit(ctx, u)
}

// accept is do for a claim that must be accepted.
func accept[U any](ctx context.Context, h Harness[U], c tokens.Claim) error {
	d, err := do(ctx, h, c, c.Token.String())
	return wantAccepted(c, d, err)
}

// refuse is do for a claim that must be refused.
func refuse[U any](ctx context.Context, h Harness[U], c tokens.Claim, want tokens.Decision) error {
	d, err := do(ctx, h, c, "must not be seen")
	return wantRefused(c, d, err, want)
}

func wantAccepted(c tokens.Claim, d tokens.Decision, err error) error {
	want := tokens.Decision{Outcome: tokens.Accepted, Current: c.Token}
	if err != nil || d != want {
		return fmt.Errorf("%s claim of %d on %q: got %+v, error %w; want accepted", c.Mode, c.Token, c.Resource, d, orNil(err))
	}
	return nil
}

// wantRefused checks both voices of a refusal: the decision and the error.
func wantRefused(c tokens.Claim, d tokens.Decision, err error, want tokens.Decision) error {
	if d != want {
		return fmt.Errorf("%s claim of %d on %q: got %+v, error %w; want %+v", c.Mode, c.Token, c.Resource, d, orNil(err), want)
	}
	if want.Outcome == tokens.Duplicate {
		if !errors.Is(err, tokens.ErrDuplicate) || errors.Is(err, tokens.ErrStale) {
			return fmt.Errorf("duplicate claim of %d on %q: error %w; want ErrDuplicate", c.Token, c.Resource, orNil(err))
		}
		return nil
	}
	stale, ok := errors.AsType[*tokens.StaleError](err)
	wanted := tokens.StaleError{Resource: c.Resource, Presented: c.Token, Current: want.Current}
	if !ok || *stale != wanted {
		return fmt.Errorf("stale claim of %d on %q: error %w; want %v", c.Token, c.Resource, orNil(err), &wanted)
	}
	return nil
}

func stale(current tokens.Token) tokens.Decision {
	return tokens.Decision{Outcome: tokens.Stale, Current: current}
}

func duplicate(current tokens.Token) tokens.Decision {
	return tokens.Decision{Outcome: tokens.Duplicate, Current: current}
}

// wantFence checks what Peek says.
func wantFence[U any](ctx context.Context, h Harness[U], resource string, want tokens.Token) error {
	got, err := h.Guard().Peek(ctx, resource)
	if err != nil || got != want {
		return fmt.Errorf("fence of %q: got %d, error %w; want %d", resource, got, orNil(err), want)
	}
	return nil
}

// wantValue checks the committed value, in a unit of its own.
func wantValue[U any](ctx context.Context, h Harness[U], resource, want string) error {
	u, err := h.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	got, err := h.Read(ctx, u, resource)
	if err = errors.Join(err, h.Rollback(ctx, u)); err != nil {
		return fmt.Errorf("read %q: %w", resource, err)
	}
	if got != want {
		return fmt.Errorf("value of %q: got %q, want %q", resource, got, want)
	}
	return nil
}

// errNone stands in messages for the error that did not come.
var errNone = errors.New("none")

func orNil(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

// inOrder runs steps until one fails.
func inOrder(steps ...func() error) error {
	for n, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", n+1, err)
		}
	}
	return nil
}

// awaitWaiting returns when n claims wait in the store, or at once where the
// store cannot tell.
func awaitWaiting[U any](ctx context.Context, h Harness[U], n int) error {
	w, ok := h.(Waiter)
	if !ok {
		return nil
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		got, err := w.Waiting(ctx)
		if err != nil || got == n {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d claims wait, want %d: %w", got, n, ctx.Err())
		}
	}
}
