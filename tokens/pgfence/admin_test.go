package pgfence_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
)

func TestRepair(t *testing.T) {
	t.Parallel()
	pool := install(t)
	app := protectAccount(t, pool)
	// A caller with a token that its lock will not reach for years.
	advance(t, app, claim("account/42", tokens.Max, tokens.OneShot))
	if _, err := pgfence.Repair(t.Context(), app, "account/42", 7); !errors.Is(err, tokens.ErrUnfenced) {
		t.Errorf("by the application: %v, want ErrUnfenced", err)
	}
	if was, err := pgfence.Repair(t.Context(), pool, "account/42", 7); was != tokens.Max || err != nil {
		t.Errorf("Repair = %d, %v; want Max", was, err)
	}
	advance(t, app, claim("account/42", 8, tokens.OneShot))
	if _, err := pgfence.Repair(t.Context(), pool, "never used", 7); !errors.Is(err, tokens.ErrInvalid) {
		t.Errorf("of a resource without a fence: %v, want ErrInvalid", err)
	}
	for _, bad := range []tokens.Token{0, tokens.Max + 1} {
		if _, err := pgfence.Repair(t.Context(), pool, "account/42", bad); !errors.Is(err, tokens.ErrInvalid) {
			t.Errorf("to %d: %v, want ErrInvalid", bad, err)
		}
	}
}

// Case 28: PostgreSQL has lost the commit that raised a fence from 6 to 7. With
// the floor above all tokens granted, neither the old 6 nor a resource that was
// never seen lets an old holder in.
func TestRaiseFloor_AfterALostCommit(t *testing.T) {
	t.Parallel()
	pool := install(t)
	advance(t, pool, claim("account/42", 6, tokens.OneShot))
	floor, err := pgfence.RaiseFloor(t.Context(), pool, 1000)
	if floor != 1000 || err != nil {
		t.Fatalf("RaiseFloor = %d, %v; want 1000", floor, err)
	}
	for _, c := range []tokens.Claim{claim("account/42", 6, tokens.Renewable), claim("account/42", 7, 0), claim("new", 999, 0)} {
		err := pgfence.WithFence(t.Context(), pool, c, add(1))
		stale, ok := errors.AsType[*tokens.StaleError](err)
		if want := (tokens.StaleError{Resource: c.Resource, Presented: c.Token, Current: 1000}); !ok || *stale != want {
			t.Errorf("%+v: %v, want %v", c, err, &want)
		}
	}
	for resource, want := range map[string]tokens.Token{"account/42": 1000, "new": 1000} {
		if got, err := pgfence.New(pool).Peek(t.Context(), resource); got != want || err != nil {
			t.Errorf("Peek(%q) = %d, %v; want %d", resource, got, err, want)
		}
	}
	advance(t, pool, claim("account/42", 1000, tokens.OneShot))
	advance(t, pool, claim("new", 1001, tokens.OneShot))
	if got, _ := pgfence.New(pool).Peek(t.Context(), "new"); got != 1001 {
		t.Errorf("fence %d above the floor, want 1001", got)
	}
	if floor, err := pgfence.RaiseFloor(t.Context(), pool, 5); floor != 1000 || err != nil {
		t.Errorf("a lower floor: %d, %v; want 1000 as before", floor, err)
	}
	if _, err := pgfence.RaiseFloor(t.Context(), pool, 0); !errors.Is(err, tokens.ErrInvalid) {
		t.Errorf("floor 0: %v, want ErrInvalid", err)
	}
}

// Raised while the application runs, the floor waits for the units that are open,
// and no unit that saw the old floor commits after it, at any isolation level.
func TestRaiseFloor_Online(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			pool := install(t)
			guard := pgfence.New(pool)
			open := begin(t, pool, level)
			if _, err := guard.Advance(t.Context(), open, claim("a", 5, 0)); err != nil {
				t.Fatal(err)
			}
			raised := make(chan error, 1)
			go func() {
				_, err := pgfence.RaiseFloor(t.Context(), pool, 1000)
				raised <- err
			}()
			eventually(t, func() bool { n, err := waiting(t.Context(), pool); return err == nil && n == 1 })

			// This one has read the old floor, and waits behind the raise.
			late := begin(t, pool, level)
			mustExec(t, late, "SELECT fence.peek('b')")
			answer := make(chan error, 1)
			go func() {
				_, err := guard.Advance(t.Context(), late, claim("b", 6, 0))
				answer <- err
			}()
			eventually(t, func() bool { n, err := waiting(t.Context(), pool); return err == nil && n == 2 })

			if err := open.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-raised; err != nil {
				t.Fatal(err)
			}
			err := <-answer
			if level == pgx.ReadCommitted && !errors.Is(err, tokens.ErrStale) {
				t.Errorf("late unit: %v, want ErrStale", err)
			}
			if level != pgx.ReadCommitted && !errors.Is(err, tokens.ErrRetryable) {
				t.Errorf("late unit: %v, want ErrRetryable", err)
			}
		})
	}
}
