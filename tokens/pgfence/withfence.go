package pgfence

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/internal/unit"
)

const (
	// DefaultLimit bounds a [WithFence] whose claim and context have no deadline.
	DefaultLimit = 15 * time.Second

	// CommitLimit is how long [Commit] and WithFence wait for the answer to COMMIT. It is long
	// and its own, because giving up on a COMMIT does not stop it: with synchronous
	// replication it even makes a write visible that no standby has.
	CommitLimit = 30 * time.Second

	// rollbackLimit is short: a rollback that gets no answer closes the
	// connection, and the server rolls back by itself.
	rollbackLimit = 5 * time.Second
)

// WithFence runs fn in a transaction on db that has advanced c.Resource to
// c.Token, and commits it. It begins (READ COMMITTED), advances, calls fn,
// commits, in this order, and repeats the whole where PostgreSQL undid it for
// reasons of its own, so fn may be called several times; only the effects in tx
// of the last call count.
//
// fn must use the context and the transaction that it is given, and return the
// errors it meets. It cannot commit or roll back tx; it may nest with tx.Begin. One
// that ends the transaction by SQL of its own is found out before COMMIT, and the
// rest is rolled back; what it wrote up to its own COMMIT, and what it wrote between
// that and a BEGIN of its own, stays. Where fn panics the transaction is rolled back
// at once.
// Where it returns an error the transaction is rolled back, and the error comes
// back as it is unless [Classify] knows it.
//
// # Time
//
// Everything up to COMMIT is bound to the lease: c.Deadline, or the deadline of
// ctx where that is earlier, or [DefaultLimit] from now where there is neither.
// Beyond it the server frees the row locks of a client that has stalled, by
// timeouts that are set in the transaction: exactly at the deadline from
// PostgreSQL 17 on; before, within 0.3 s of it after a stall between two
// statements, and later by the length of the statement after a stall during one.
// COMMIT has [CommitLimit] of its own and ends neither with ctx nor with the
// lease: a transaction whose fence was advanced is safe to commit however late.
//
// # Errors
//
//   - *[tokens.StaleError]: a newer holder has written. Never repeated.
//   - [tokens.ErrDuplicate]: one-shot, and this token was used before.
//   - [tokens.ErrInvalid]: the claim is out of bounds, or this is a WithFence
//     inside fn of another, or on a connection with an open transaction. The
//     database was not asked.
//   - [tokens.ErrBusy], [tokens.ErrRetryable]: the time was over before a try got
//     through, or db is a single connection and was lost; the last try's error is
//     wrapped. Nothing was written.
//   - [tokens.ErrUnknownOutcome]: COMMIT got no answer. Repeat with the same
//     token, if fn can tell that it has been here; with a one-shot claim a
//     Duplicate then says that the first COMMIT took effect.
//   - [tokens.ErrUnfenced]: fn wrote to a protected table outside c.Resource, has
//     ended the transaction, or the role may not advance.
//   - [context.Canceled], [context.DeadlineExceeded]: ctx has ended or the lease is
//     over. Nothing was written.
func WithFence(ctx context.Context, db Beginner, c tokens.Claim, fn func(ctx context.Context, tx pgx.Tx) error) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := refuseNesting(ctx, db); err != nil {
		return fmt.Errorf("with fence %q: %w", c.Resource, err)
	}
	w := unit.Work{Claim: c, Limit: DefaultLimit, InVain: func() bool { return connClosed(db) }}
	w.Once = func(ctx context.Context, c tokens.Claim) error { return once(ctx, db, c, fn) }
	return w.Run(ctx)
}

// refuseNesting keeps one fence out of another's transaction: the inner COMMIT
// would commit the outer work, or the two would wait for each other.
func refuseNesting(ctx context.Context, db Beginner) error {
	if unit.Inside(ctx) {
		return fmt.Errorf("inside another WithFence; use Guard.Advance on its transaction: %w", tokens.ErrInvalid)
	}
	const idle = 'I'
	if conn := connOf(db); conn != nil && !conn.IsClosed() && conn.PgConn().TxStatus() != idle {
		return fmt.Errorf("the connection has an open transaction: %w", tokens.ErrInvalid)
	}
	return nil
}

// connOf returns the one connection that db is, nil where it is a pool.
func connOf(db Beginner) *pgx.Conn {
	switch db := db.(type) {
	case *pgx.Conn:
		return db
	case *pgxpool.Conn:
		return db.Conn()
	default:
		return nil
	}
}

// connClosed reports whether a repeat is in vain: a pool finds another
// connection, a single one stays closed.
func connClosed(db Beginner) bool {
	conn := connOf(db)
	return conn != nil && conn.IsClosed()
}

// once is one try. Its error is classified.
func once(ctx context.Context, db Beginner, c tokens.Claim, fn func(ctx context.Context, tx pgx.Tx) error) error {
	inner, err := db.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginSQL(c.Deadline)})
	if err != nil {
		return Classify(unit.NotThrough(ctx, err))
	}
	tx := &boundTx{Tx: inner, limits: &limits{deadline: c.Deadline, set: time.Now()}}
	// Deferred, because fn may panic or end its goroutine. It does nothing after a COMMIT.
	defer rollback(ctx, inner)
	if err := run(ctx, tx, c, fn); err != nil {
		return err
	}
	return Commit(ctx, inner)
}

func run(ctx context.Context, tx *boundTx, c tokens.Claim, fn func(ctx context.Context, tx pgx.Tx) error) error {
	if _, err := (&Guard{}).Advance(ctx, tx.Tx, c); err != nil {
		return unit.NotThrough(ctx, err)
	}
	if err := fn(ctx, tx); err != nil {
		if tx.limits.err != nil {
			err = tx.limits.err // the first failure; fn saw only what it led to
		}
		return Classify(err)
	}
	if err := unit.Ended(ctx); err != nil {
		return err
	}
	return prove(ctx, tx.Tx, c)
}

// prove sees that the transaction is still the one that has advanced. Without it, what
// fn wrote after a COMMIT of its own would be committed outside of the fence.
func prove(ctx context.Context, tx pgx.Tx, c tokens.Claim) error {
	const failed = 'E'
	if tx.Conn().PgConn().TxStatus() == failed {
		return nil // COMMIT says so, and writes nothing
	}
	if tx.Conn().PgConn().IsBusy() {
		return fmt.Errorf("with fence %q: the function has left rows or a batch open", c.Resource)
	}
	var proof *tokens.Token
	if err := tx.QueryRow(ctx, "SELECT fence.proof($1::text)", c.Resource).Scan(&proof); err != nil {
		return Classify(unit.NotThrough(ctx, err))
	}
	if proof == nil || *proof != c.Token {
		return fmt.Errorf("with fence %q: the function has ended the transaction that advanced to %d: %w",
			c.Resource, int64(c.Token), tokens.ErrUnfenced)
	}
	return nil
}

// Commit commits tx as [WithFence] does, for those who use a [Guard] in their own
// transactions: it waits up to [CommitLimit], whatever becomes of ctx, and a lost
// answer comes back as [tokens.ErrUnknownOutcome]. Where a statement had failed
// and tx was rolled back instead, the error wraps pgx.ErrTxCommitRollback; where tx had
// ended already, pgx.ErrTxClosed.
func Commit(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CommitLimit)
	defer cancel()
	return classifyCommit(tx.Commit(ctx))
}

// rollback gives the connection back clean. That it fails adds nothing: the
// connection is then closed, and the server has rolled back or will.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer cancel()
	_ = tx.Rollback(ctx)
}
