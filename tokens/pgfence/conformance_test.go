package pgfence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/fencetest"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(t *testing.T) fencetest.Harness[pgx.Tx] {
		pool := installData(t)
		proxy := newCutter(t, "COMMIT")
		behind := pgtest.NewPool(t, through(t, pool, proxy.addr()))
		return breakable{harness{direct: pool, pool: behind, guard: pgfence.New(behind)}, proxy}
	})
}

// installData returns a pool on a fresh database whose table data is protected.
func installData(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.New(t)
	if err := pgfence.Install(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, `CREATE TABLE data (resource text COLLATE "C" PRIMARY KEY, value text NOT NULL)`)
	if err := pgfence.Protect(t.Context(), pool, pgx.Identifier{"data"}, "resource", ""); err != nil {
		t.Fatal(err)
	}
	return pool
}

// harness shows PostgreSQL to the suite: a protected table, and the guard.
type harness struct {
	direct *pgxpool.Pool // for what looks at the server
	pool   *pgxpool.Pool
	guard  *pgfence.Guard
}

func (h harness) Guard() tokens.Guard[pgx.Tx] { return h.guard }

func (h harness) Begin(ctx context.Context) (pgx.Tx, error) { return h.pool.Begin(ctx) }

func (h harness) Commit(ctx context.Context, tx pgx.Tx) error { return pgfence.Commit(ctx, tx) }

func (h harness) Rollback(ctx context.Context, tx pgx.Tx) error {
	lost := tx.Conn().IsClosed() // a wait that was cancelled has closed it
	err := tx.Rollback(context.WithoutCancel(ctx))
	if lost || errors.Is(err, pgx.ErrTxClosed) {
		return nil
	}
	return err
}

func (h harness) Write(ctx context.Context, tx pgx.Tx, resource, value string) error {
	_, err := tx.Exec(ctx, `INSERT INTO data (resource, value) VALUES ($1, $2)
		ON CONFLICT (resource) DO UPDATE SET value = EXCLUDED.value`, resource, value)
	return pgfence.Classify(err)
}

func (h harness) Read(ctx context.Context, tx pgx.Tx, resource string) (value string, err error) {
	err = tx.QueryRow(ctx, "SELECT value FROM data WHERE resource = $1", resource).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return value, pgfence.Classify(err)
}

func (h harness) Delete(ctx context.Context, tx pgx.Tx, resource string) error {
	_, err := tx.Exec(ctx, "DELETE FROM data WHERE resource = $1", resource)
	return pgfence.Classify(err)
}

func (h harness) Savepoint(ctx context.Context, tx pgx.Tx) (pgx.Tx, error) { return tx.Begin(ctx) }

func (h harness) Enforces() bool { return true }

func (h harness) Waiting(ctx context.Context) (int, error) { return waiting(ctx, h.direct) }

// breakable is a harness whose answers can be lost.
type breakable struct {
	harness
	proxy *cutter
}

func (h breakable) CommitUnanswered(ctx context.Context, tx pgx.Tx) error {
	h.proxy.lose.Store(true)
	defer h.proxy.lose.Store(false)
	return pgfence.Commit(ctx, tx)
}

func (h breakable) Break(ctx context.Context, tx pgx.Tx) error {
	var gone bool
	err := h.direct.QueryRow(ctx, "SELECT pg_terminate_backend($1, 10000)", tx.Conn().PgConn().PID()).Scan(&gone)
	if err == nil && !gone {
		err = fmt.Errorf("backend %d is still there", tx.Conn().PgConn().PID())
	}
	_ = tx.Rollback(ctx) // fails, and gives the dead connection back
	return err
}
