package fencetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/fenced/fenced/tokens"
)

func valueCases[U any]() []Case[U] {
	return []Case[U]{
		{Name: "06 claims out of bounds are invalid and write nothing", Check: invalidClaims[U]},
		{Name: "07 tokens up to Max compare exactly", Check: exactTokens[U]},
		{Name: "29 resource names are compared byte by byte", Check: resourceNames[U]},
	}
}

func invalidClaims[U any](ctx context.Context, h Harness[U]) error {
	if err := accept(ctx, h, claim("a", 5, tokens.OneShot)); err != nil {
		return err
	}
	for _, c := range []tokens.Claim{
		claim("a", 0, tokens.Renewable),
		claim("a", -1, tokens.Renewable),
		claim("a", math.MinInt64, tokens.Renewable),
		claim("a", tokens.Max+1, tokens.Renewable),
		claim("a", tokens.Max+2, tokens.Renewable),
		claim("a", math.MaxInt64, tokens.Renewable),
		claim("a", 6, tokens.Renewable+1),
		claim("", 6, tokens.Renewable),
		claim(strings.Repeat("x", tokens.MaxResourceLen+1), 6, tokens.Renewable),
		claim("a\x00", 6, tokens.Renewable),
		claim("a\xff", 6, tokens.Renewable),
	} {
		d, err := do(ctx, h, c, "must not be seen")
		if !errors.Is(err, tokens.ErrInvalid) || errors.Is(err, tokens.ErrStale) || d != (tokens.Decision{}) {
			return fmt.Errorf("claim %.40v: got %+v, error %w; want the zero decision and ErrInvalid", c, d, orNil(err))
		}
	}
	return inOrder(
		func() error { return wantFence(ctx, h, "a", 5) },
		func() error { return wantValue(ctx, h, "a", "5") },
	)
}

// exactTokens catches tokens that pass through a float or a shorter integer.
func exactTokens[U any](ctx context.Context, h Harness[U]) error {
	for _, t := range []tokens.Token{1 << 24, 1 << 31, 1 << 32, tokens.Max - 1} {
		err := inOrder(
			func() error { return accept(ctx, h, claim("a", t, tokens.OneShot)) },
			func() error { return refuse(ctx, h, claim("a", t-1, tokens.Renewable), stale(t)) },
			func() error { return accept(ctx, h, claim("a", t+1, tokens.OneShot)) },
			func() error { return refuse(ctx, h, claim("a", t, tokens.Renewable), stale(t+1)) },
			func() error { return refuse(ctx, h, claim("a", t+1, tokens.OneShot), duplicate(t+1)) },
			func() error { return wantFence(ctx, h, "a", t+1) },
		)
		if err != nil {
			return fmt.Errorf("around %d: %w", t, err)
		}
	}
	return nil
}

func resourceNames[U any](ctx context.Context, h Harness[U]) error {
	names := []string{
		"a", "A", "a ", " a", "a\t", "ä", "a\u0308", "ａ", "a%", "a_", "a'; DROP TABLE x; --", `a\`, `"a"`, "a\n",
		strings.Repeat("x", tokens.MaxResourceLen), strings.Repeat("x", tokens.MaxResourceLen-1), strings.Repeat("é", tokens.MaxResourceLen/2),
	}
	for i, name := range names {
		if err := accept(ctx, h, claim(name, tokens.Token(100+i), tokens.OneShot)); err != nil {
			return fmt.Errorf("fresh name: %w", err)
		}
	}
	for i, name := range names {
		t := tokens.Token(100 + i)
		if err := wantFence(ctx, h, name, t); err != nil {
			return err
		}
		if err := refuse(ctx, h, claim(name, t-1, tokens.Renewable), stale(t)); err != nil {
			return err
		}
	}
	return nil
}
