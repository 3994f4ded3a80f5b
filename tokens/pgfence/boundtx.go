package pgfence

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenced/fenced/tokens"
)

// renewLimitsAfter is how old the timeouts of a transaction may be before the
// next statement sets them anew. They count from the last statement, not from the
// begin, so a stall frees its locks later by at most this.
const renewLimitsAfter = 250 * time.Millisecond

// inTransaction is the status of a connection whose transaction is sound.
const inTransaction = 'T'

// limits is the state of a transaction's timeouts, shared with its savepoints.
type limits struct {
	deadline time.Time
	set      time.Time // when they were last set; zero after a savepoint was undone
	err      error     // of setting them, which aborts the transaction
}

// beginSQL begins a transaction that the server ends by itself at the deadline,
// in one round trip. transaction_timeout, which alone is exact, is new in
// PostgreSQL 17 and an error before, so it is set only where it exists.
func beginSQL(deadline time.Time) string {
	return fmt.Sprintf("BEGIN ISOLATION LEVEL READ COMMITTED; %s; "+
		"SELECT set_config('transaction_timeout', '%d', true) WHERE current_setting('transaction_timeout', true) IS NOT NULL",
		limitsSQL(deadline), millisUntil(deadline))
}

func limitsSQL(deadline time.Time) string {
	ms := millisUntil(deadline)
	return fmt.Sprintf("SET LOCAL lock_timeout = %d; SET LOCAL statement_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %d",
		ms, ms, ms)
}

// millisUntil is never 0, which would switch the timeout off.
func millisUntil(deadline time.Time) int64 {
	return min(max(time.Until(deadline).Milliseconds(), 1), math.MaxInt32)
}

// boundTx is the transaction that fn of WithFence sees: it keeps the server's
// timeouts bound to the lease, and the end of the transaction with WithFence.
type boundTx struct {
	pgx.Tx
	limits *limits
	outer  *boundTx // nil for the outermost; else tx is a savepoint in it
}

// bind shrinks the timeouts to what is left of the lease. Its error needs no
// return: it has aborted the transaction, so the statement that follows fails. Or it
// was never sent, for a context that had ended or for rows left open: then the
// statement that follows is not sent either, and the next one sets the timeouts.
func (tx *boundTx) bind(ctx context.Context) {
	l := tx.limits
	if l.err != nil || time.Since(l.set) < renewLimitsAfter {
		return
	}
	_, err := tx.Tx.Exec(ctx, limitsSQL(l.deadline))
	switch conn := tx.Conn().PgConn(); {
	case err == nil:
		l.set = time.Now()
	case conn.IsClosed() || conn.TxStatus() != inTransaction:
		l.err = err
	}
}

// Begin begins a savepoint.
func (tx *boundTx) Begin(ctx context.Context) (pgx.Tx, error) {
	tx.bind(ctx)
	inner, err := tx.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &boundTx{Tx: inner, limits: tx.limits, outer: tx}, nil
}

// Commit ends a savepoint; the outermost transaction is WithFence's to commit.
func (tx *boundTx) Commit(ctx context.Context) error {
	if tx.outer == nil {
		return fmt.Errorf("commit inside WithFence, which commits when the function returns nil: %w", tokens.ErrInvalid)
	}
	return tx.Tx.Commit(ctx)
}

// Rollback undoes a savepoint, and with it the timeouts set since. They are set anew
// at once, because the next statement may never come.
func (tx *boundTx) Rollback(ctx context.Context) error {
	if tx.outer == nil {
		return fmt.Errorf("rollback inside WithFence, which rolls back when the function returns an error: %w", tokens.ErrInvalid)
	}
	if err := tx.Tx.Rollback(ctx); err != nil {
		return err // for example after Commit, where deferred rollbacks end up
	}
	tx.limits.set = time.Time{}
	tx.limits.err = nil // a failure inside the savepoint is undone with it
	tx.outer.bind(ctx)
	return nil
}

func (tx *boundTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tx.bind(ctx)
	return tx.Tx.Exec(ctx, sql, args...)
}

func (tx *boundTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	tx.bind(ctx)
	return tx.Tx.Query(ctx, sql, args...)
}

func (tx *boundTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	tx.bind(ctx)
	return tx.Tx.QueryRow(ctx, sql, args...)
}

func (tx *boundTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	tx.bind(ctx)
	return tx.Tx.SendBatch(ctx, b)
}

func (tx *boundTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	tx.bind(ctx)
	return tx.Tx.CopyFrom(ctx, table, columns, src)
}
