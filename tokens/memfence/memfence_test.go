package memfence_test

import (
	"context"
	"testing"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/fencetest"
	"github.com/fenced/fenced/tokens/memfence"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(*testing.T) fencetest.Harness[*memfence.Tx] { return harness{memfence.New()} })
}

// harness shows a Store to the suite.
type harness struct{ store *memfence.Store }

func (h harness) Guard() tokens.Guard[*memfence.Tx] { return h.store }

func (h harness) Begin(context.Context) (*memfence.Tx, error) { return h.store.Begin(), nil }

func (h harness) Commit(_ context.Context, tx *memfence.Tx) error { return tx.Commit() }

func (h harness) Rollback(_ context.Context, tx *memfence.Tx) error {
	tx.Rollback()
	return nil
}

func (h harness) Write(_ context.Context, tx *memfence.Tx, resource, value string) error {
	return tx.Write(resource, value)
}

func (h harness) Read(_ context.Context, tx *memfence.Tx, resource string) (string, error) {
	v, _ := tx.Read(resource)
	return v, nil
}

func (h harness) Delete(_ context.Context, tx *memfence.Tx, resource string) error {
	return tx.Delete(resource)
}

func (h harness) Waiting(context.Context) (int, error) { return h.store.Waiting(), nil }

func (h harness) Enforces() bool { return true }
