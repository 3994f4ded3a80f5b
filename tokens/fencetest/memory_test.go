package fencetest_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/fencetest"
	"github.com/fenced/fenced/tokens/memfence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The reference guard passes all that it can be asked.
func TestRun_Memfence(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(*testing.T) fencetest.Harness[*unit] { return newMemory() })
}

// unit is a memfence unit with what some mutants note in it.
type unit struct {
	*memfence.Tx
	noted []tokens.Claim
}

// memory shows a memfence store to the suite. It is its own guard, so that a
// mutant can embed it and plant its fault in one method.
type memory struct{ *memfence.Store }

func newMemory() memory { return memory{memfence.New()} }

func (m memory) Guard() tokens.Guard[*unit] { return m }

func (m memory) Advance(ctx context.Context, u *unit, c tokens.Claim) (tokens.Decision, error) {
	return m.Store.Advance(ctx, u.Tx, c)
}

func (m memory) AdvanceAll(ctx context.Context, u *unit, cs []tokens.Claim) ([]tokens.Decision, error) {
	return m.Store.AdvanceAll(ctx, u.Tx, cs)
}

func (m memory) Begin(context.Context) (*unit, error) { return &unit{Tx: m.Store.Begin()}, nil }

func (m memory) Commit(_ context.Context, u *unit) error { return u.Commit() }

func (m memory) Rollback(_ context.Context, u *unit) error {
	u.Rollback()
	return nil
}

func (m memory) Write(_ context.Context, u *unit, resource, value string) error {
	return u.Write(resource, value)
}

func (m memory) Read(_ context.Context, u *unit, resource string) (string, error) {
	v, _ := u.Read(resource)
	return v, nil
}

func (m memory) Delete(_ context.Context, u *unit, resource string) error { return u.Delete(resource) }

func (m memory) Waiting(context.Context) (int, error) { return m.Store.Waiting(), nil }

func (m memory) Enforces() bool { return true }
