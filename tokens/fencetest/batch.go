package fencetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/fenced/fenced/tokens"
)

func batchCases[U any]() []Case[U] {
	return []Case[U]{
		{Name: "25a several resources at once are accepted in the order given", Check: batchAccepted[U], Needs: needsMulti[U]},
		{Name: "25b one stale claim of several: nothing is advanced", Check: batchRefused[U], Needs: needsMulti[U]},
		{Name: "25c a resource claimed twice is invalid", Check: batchTwice[U], Needs: needsMulti[U]},
		{Name: "25d opposite orders do not block each other", Check: batchOpposite[U], Needs: needsMulti[U]},
	}
}

// doAll is one whole unit over several resources.
func doAll[U any](ctx context.Context, h Harness[U], cs []tokens.Claim) ([]tokens.Decision, error) {
	u, err := h.Begin(ctx)
	if err != nil {
		return nil, err
	}
	ds, err := h.Guard().AdvanceAll(ctx, u, cs)
	for _, c := range cs {
		if err == nil {
			err = h.Write(ctx, u, c.Resource, c.Token.String())
		}
	}
	if err != nil {
		return ds, errors.Join(err, h.Rollback(ctx, u))
	}
	return ds, h.Commit(ctx, u)
}

func batchAccepted[U any](ctx context.Context, h Harness[U]) error {
	cs := []tokens.Claim{claim("c", 7, tokens.OneShot), claim("a", 5, tokens.Renewable), claim("b", 6, tokens.OneShot)}
	ds, err := doAll(ctx, h, cs)
	if err != nil || len(ds) != len(cs) {
		return fmt.Errorf("got %+v, error %w; want three acceptances", ds, orNil(err))
	}
	for i, c := range cs {
		if err := errors.Join(wantAccepted(c, ds[i], nil), wantFence(ctx, h, c.Resource, c.Token)); err != nil {
			return err
		}
	}
	_, err = doAll(ctx, h, nil)
	return err
}

func batchRefused[U any](ctx context.Context, h Harness[U]) error {
	if err := accept(ctx, h, claim("m", 9, tokens.OneShot)); err != nil {
		return err
	}
	for _, refused := range []struct {
		c    tokens.Claim
		want tokens.Decision
	}{
		{claim("m", 8, tokens.Renewable), stale(9)},
		{claim("m", 9, tokens.OneShot), duplicate(9)},
	} {
		cs := []tokens.Claim{claim("a", 5, tokens.OneShot), claim("z", 5, tokens.OneShot), refused.c}
		ds, err := doAll(ctx, h, cs)
		if len(ds) != len(cs) {
			return fmt.Errorf("one claim of three is refused: %d decisions, error %w; want 3", len(ds), orNil(err))
		}
		if err := wantRefused(refused.c, ds[2], err, refused.want); err != nil {
			return err
		}
	}
	return inOrder(
		func() error { return wantFence(ctx, h, "a", 0) },
		func() error { return wantFence(ctx, h, "z", 0) },
		func() error { return wantValue(ctx, h, "a", "") },
		func() error { return wantValue(ctx, h, "m", "9") },
	)
}

func batchTwice[U any](ctx context.Context, h Harness[U]) error {
	_, err := doAll(ctx, h, []tokens.Claim{claim("a", 5, tokens.OneShot), claim("b", 5, tokens.OneShot), claim("a", 6, tokens.OneShot)})
	if !errors.Is(err, tokens.ErrInvalid) {
		return fmt.Errorf("a resource claimed twice: error %w; want ErrInvalid", orNil(err))
	}
	return wantFence(ctx, h, "a", 0)
}

// batchOpposite has two clients claim the same resources in opposite orders. A
// guard that locks in the order given lets them wait for each other.
func batchOpposite[U any](ctx context.Context, h Harness[U]) error {
	const rounds = 250
	return each(2, func(i int) error {
		for round := range rounds {
			var cs []tokens.Claim
			for n := range 4 {
				cs = append(cs, claim("r"+strconv.Itoa(n), tokens.Token(1+round), tokens.Renewable))
			}
			if i == 1 {
				slices.Reverse(cs)
			}
			if _, err := doAll(ctx, h, cs); err != nil && !errors.Is(err, tokens.ErrStale) {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		return nil
	})
}
