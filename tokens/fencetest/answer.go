package fencetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenced/fenced/tokens"
)

func answerCases[U any]() []Case[U] {
	breaks := func(h Harness[U]) bool {
		_, ok := h.(Breaker[U])
		return ok
	}
	return []Case[U]{
		{Name: "18 the answer to a commit is lost: a repeat finds it", Check: lostAnswer[U], Needs: breaks},
		{Name: "19 a unit is lost before it commits: a repeat does it", Check: lostUnit[U], Needs: breaks},
	}
}

// open returns a unit that has advanced and written, not committed.
func open[U any](ctx context.Context, h Harness[U], c tokens.Claim) (U, error) {
	u, err := h.Begin(ctx)
	if err != nil {
		return u, err
	}
	if _, err = h.Guard().Advance(ctx, u, c); err == nil {
		err = h.Write(ctx, u, c.Resource, c.Token.String())
	}
	return u, err
}

func lostAnswer[U any](ctx context.Context, h Harness[U]) error {
	c := claim("a", 5, tokens.OneShot)
	u, err := open(ctx, h, c)
	if err != nil {
		return err
	}
	if err := h.(Breaker[U]).CommitUnanswered(ctx, u); !errors.Is(err, tokens.ErrUnknownOutcome) {
		return fmt.Errorf("a commit without answer: error %w; want ErrUnknownOutcome", orNil(err))
	}
	return inOrder(
		func() error { return refuse(ctx, h, c, duplicate(5)) },
		func() error { return wantValue(ctx, h, "a", "5") },
	)
}

func lostUnit[U any](ctx context.Context, h Harness[U]) error {
	c := claim("a", 5, tokens.OneShot)
	u, err := open(ctx, h, c)
	if err != nil {
		return err
	}
	return inOrder(
		func() error { return h.(Breaker[U]).Break(ctx, u) },
		func() error { return wantFence(ctx, h, "a", 0) },
		func() error { return wantValue(ctx, h, "a", "") },
		func() error { return accept(ctx, h, c) },
	)
}
