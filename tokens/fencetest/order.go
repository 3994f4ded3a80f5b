package fencetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenced/fenced/tokens"
)

func orderCases[U any]() []Case[U] {
	return []Case[U]{
		{Name: "01 first-ever token is accepted", Check: firstToken[U]},
		{Name: "02 higher token is accepted", Check: higherToken[U]},
		{Name: "03 lower token is refused with the current one", Check: lowerToken[U]},
		{Name: "04 equal token: one-shot is a duplicate, renewable is accepted", Check: equalToken[U]},
		{Name: "05 equal token twice in one unit is accepted", Check: equalInOneUnit[U]},
	}
}

func firstToken[U any](ctx context.Context, h Harness[U]) error {
	return inOrder(
		func() error { return wantFence(ctx, h, "a", 0) },
		func() error { return accept(ctx, h, claim("a", 1, tokens.OneShot)) },
		func() error { return accept(ctx, h, claim("b", 9, tokens.Renewable)) },
		func() error { return wantFence(ctx, h, "a", 1) },
		func() error { return wantFence(ctx, h, "b", 9) },
		func() error { return wantValue(ctx, h, "a", "1") },
	)
}

func higherToken[U any](ctx context.Context, h Harness[U]) error {
	return inOrder(
		func() error { return accept(ctx, h, claim("a", 5, tokens.OneShot)) },
		func() error { return accept(ctx, h, claim("a", 6, tokens.OneShot)) },
		func() error { return accept(ctx, h, claim("a", 1000, tokens.Renewable)) },
		func() error { return wantFence(ctx, h, "a", 1000) },
		func() error { return wantValue(ctx, h, "a", "1000") },
	)
}

func lowerToken[U any](ctx context.Context, h Harness[U]) error {
	return inOrder(
		func() error { return accept(ctx, h, claim("a", 34, tokens.OneShot)) },
		func() error { return refuse(ctx, h, claim("a", 33, tokens.OneShot), stale(34)) },
		func() error { return refuse(ctx, h, claim("a", 33, tokens.Renewable), stale(34)) },
		func() error { return refuse(ctx, h, claim("a", 1, tokens.Renewable), stale(34)) },
		func() error { return wantFence(ctx, h, "a", 34) },
		func() error { return wantValue(ctx, h, "a", "34") },
	)
}

func equalToken[U any](ctx context.Context, h Harness[U]) error {
	return inOrder(
		func() error { return accept(ctx, h, claim("a", 5, tokens.OneShot)) },
		func() error { return refuse(ctx, h, claim("a", 5, tokens.OneShot), duplicate(5)) },
		func() error { return accept(ctx, h, claim("a", 5, tokens.Renewable)) },
		func() error { return refuse(ctx, h, claim("a", 5, tokens.OneShot), duplicate(5)) },
		func() error { return wantFence(ctx, h, "a", 5) },
	)
}

// equalInOneUnit: a helper that advances what its caller has advanced already
// must pass in both modes; a lower token must not.
func equalInOneUnit[U any](ctx context.Context, h Harness[U]) error {
	u, err := h.Begin(ctx)
	if err != nil {
		return err
	}
	for _, c := range []tokens.Claim{
		claim("a", 5, tokens.OneShot), claim("a", 5, tokens.OneShot), claim("a", 5, tokens.Renewable), claim("a", 6, tokens.OneShot),
	} {
		d, err := h.Guard().Advance(ctx, u, c)
		if err := wantAccepted(c, d, err); err != nil {
			return errors.Join(fmt.Errorf("again in one unit: %w", err), h.Rollback(ctx, u))
		}
	}
	lower := claim("a", 5, tokens.Renewable)
	d, err := h.Guard().Advance(ctx, u, lower)
	return errors.Join(wantRefused(lower, d, err, stale(6)), h.Rollback(ctx, u))
}
