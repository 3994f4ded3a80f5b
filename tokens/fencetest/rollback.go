package fencetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenced/fenced/tokens"
)

func rollbackCases[U any]() []Case[U] {
	return []Case[U]{
		{Name: "12 a unit that is rolled back leaves the fence", Check: rolledBack[U], Needs: needsRollback[U]},
		{Name: "14 a lower unit that was open before is refused", Check: openLower[U]},
		{Name: "15 a refused unit writes nothing", Check: refusedWrites[U]},
		{Name: "24 a savepoint that undoes the advance undoes the right to write", Check: undoneAdvance[U], Needs: func(h Harness[U]) bool {
			_, ok := h.(Savepointer[U])
			return ok && enforces(h)
		}},
		{Name: "26 data that is deleted and made again keeps its fence", Check: deletedData[U], Needs: func(h Harness[U]) bool {
			_, ok := h.(Deleter[U])
			return ok
		}},
		{Name: "27 an unfenced write is refused", Check: unfencedWrite[U], Needs: enforces[U]},
	}
}

func rolledBack[U any](ctx context.Context, h Harness[U]) error {
	undone := func(c tokens.Claim) error {
		u, err := h.Begin(ctx)
		if err != nil {
			return err
		}
		d, err := h.Guard().Advance(ctx, u, c)
		return errors.Join(wantAccepted(c, d, err), h.Write(ctx, u, c.Resource, "undone"), h.Rollback(ctx, u))
	}
	return inOrder(
		func() error { return undone(claim("a", 9, tokens.OneShot)) },
		func() error { return wantFence(ctx, h, "a", 0) },
		func() error { return accept(ctx, h, claim("a", 5, tokens.OneShot)) },
		func() error { return undone(claim("a", 9, tokens.OneShot)) },
		func() error { return wantFence(ctx, h, "a", 5) },
		func() error { return wantValue(ctx, h, "a", "5") },
		func() error { return accept(ctx, h, claim("a", 6, tokens.OneShot)) },
		func() error { return accept(ctx, h, claim("a", 9, tokens.OneShot)) },
	)
}

// openLower: what a unit has read does not matter, only what it advances.
func openLower[U any](ctx context.Context, h Harness[U]) error {
	if err := accept(ctx, h, claim("a", 4, tokens.OneShot)); err != nil {
		return err
	}
	u, err := h.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := h.Read(ctx, u, "a"); err != nil {
		return errors.Join(err, h.Rollback(ctx, u))
	}
	if err := accept(ctx, h, claim("a", 6, tokens.OneShot)); err != nil {
		return errors.Join(err, h.Rollback(ctx, u))
	}
	lower := claim("a", 5, tokens.Renewable)
	d, err := h.Guard().Advance(ctx, u, lower)
	return errors.Join(wantRefused(lower, d, err, stale(6)), h.Rollback(ctx, u))
}

// refusedWrites plays a caller that ignores every error.
func refusedWrites[U any](ctx context.Context, h Harness[U]) error {
	if err := accept(ctx, h, claim("a", 6, tokens.OneShot)); err != nil {
		return err
	}
	over := claim("a", 7, tokens.OneShot)
	over.Deadline = time.Now().Add(-time.Second)
	refusals := [][]tokens.Claim{
		{claim("a", 5, tokens.Renewable)},
		{claim("a", 6, tokens.OneShot)},
		{claim("a", 0, tokens.Renewable)},
		{over},
	}
	written := []string{"a"}
	if h.Guard().Capabilities().Multi {
		refusals = append(refusals, []tokens.Claim{claim("a", 7, tokens.OneShot), claim("b", 5, tokens.OneShot), claim("a", 8, tokens.OneShot)})
		written = append(written, "own")
	}
	for _, cs := range refusals {
		for _, resource := range written {
			if err := refusedWrite(ctx, h, cs, resource); err != nil {
				return err
			}
		}
	}
	return inOrder(
		func() error { return wantValue(ctx, h, "a", "6") },
		func() error { return wantValue(ctx, h, "own", "") },
	)
}

// refusedWrite writes to resource after cs were refused. Where it is none of theirs,
// the unit has advanced it before.
func refusedWrite[U any](ctx context.Context, h Harness[U], cs []tokens.Claim, resource string) error {
	u, err := h.Begin(ctx)
	if err != nil {
		return err
	}
	if resource != cs[0].Resource {
		if _, err := h.Guard().Advance(ctx, u, claim(resource, 1, tokens.Renewable)); err != nil {
			return errors.Join(err, h.Rollback(ctx, u))
		}
	}
	var refused error
	if len(cs) == 1 {
		_, refused = h.Guard().Advance(ctx, u, cs[0])
	} else {
		_, refused = h.Guard().AdvanceAll(ctx, u, cs)
	}
	_ = h.Write(ctx, u, resource, "written all the same")
	if err := h.Commit(ctx, u); refused == nil || err == nil {
		return fmt.Errorf("advance %+v: error %w, then a write to %q and commit: error %w; want both to fail", cs, orNil(refused), resource, orNil(err))
	}
	return nil
}

func undoneAdvance[U any](ctx context.Context, h Harness[U]) error {
	u, err := h.Begin(ctx)
	if err != nil {
		return err
	}
	nested, err := h.(Savepointer[U]).Savepoint(ctx, u)
	if err != nil {
		return errors.Join(err, h.Rollback(ctx, u))
	}
	_, err = h.Guard().Advance(ctx, nested, claim("a", 5, tokens.OneShot))
	if err = errors.Join(err, h.Rollback(ctx, nested)); err != nil {
		return errors.Join(err, h.Rollback(ctx, u))
	}
	if err := accept(ctx, h, claim("a", 6, tokens.OneShot)); err != nil {
		return errors.Join(err, h.Rollback(ctx, u))
	}
	err = h.Write(ctx, u, "a", "5")
	if !errors.Is(err, tokens.ErrUnfenced) {
		err = fmt.Errorf("write after the advance was undone: error %w; want ErrUnfenced", orNil(err))
		return errors.Join(err, h.Rollback(ctx, u))
	}
	return errors.Join(h.Rollback(ctx, u), wantValue(ctx, h, "a", "6"))
}

func deletedData[U any](ctx context.Context, h Harness[U]) error {
	remove := func() error {
		u, err := h.Begin(ctx)
		if err != nil {
			return err
		}
		_, err = h.Guard().Advance(ctx, u, claim("a", 6, tokens.Renewable))
		if err = errors.Join(err, h.(Deleter[U]).Delete(ctx, u, "a")); err != nil {
			return errors.Join(err, h.Rollback(ctx, u))
		}
		return h.Commit(ctx, u)
	}
	return inOrder(
		func() error { return accept(ctx, h, claim("a", 6, tokens.OneShot)) },
		remove,
		func() error { return wantValue(ctx, h, "a", "") },
		func() error { return refuse(ctx, h, claim("a", 5, tokens.OneShot), stale(6)) },
		func() error { return accept(ctx, h, claim("a", 7, tokens.OneShot)) },
		func() error { return wantValue(ctx, h, "a", "7") },
	)
}

// unfencedWrite: the right to write is that of this unit and this resource.
func unfencedWrite[U any](ctx context.Context, h Harness[U]) error {
	if err := accept(ctx, h, claim("a", 5, tokens.OneShot)); err != nil {
		return err
	}
	for _, advanced := range []string{"", "b", "A", "a "} {
		u, err := h.Begin(ctx)
		if err != nil {
			return err
		}
		if advanced != "" {
			if _, err := h.Guard().Advance(ctx, u, claim(advanced, 9, tokens.Renewable)); err != nil {
				return errors.Join(err, h.Rollback(ctx, u))
			}
		}
		err = h.Write(ctx, u, "a", "unfenced")
		if !errors.Is(err, tokens.ErrUnfenced) {
			err = fmt.Errorf("write to \"a\" by a unit that advanced %q: error %w; want ErrUnfenced", advanced, orNil(err))
			return errors.Join(err, h.Rollback(ctx, u))
		}
		if err := errors.Join(h.Rollback(ctx, u), wantValue(ctx, h, "a", "5")); err != nil {
			return err
		}
	}
	return nil
}
