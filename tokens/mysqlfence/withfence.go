package mysqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/internal/unit"
)

const (
	// DefaultLimit bounds a [WithFence] whose claim and context have no deadline.
	DefaultLimit = 15 * time.Second

	// CommitLimit is how long [Commit] and WithFence wait for the answer to COMMIT.
	// It is long and its own, because giving up on a COMMIT does not stop it.
	CommitLimit = 30 * time.Second

	// rollbackLimit is short: a rollback that gets no answer closes the
	// connection, and the server rolls back by itself.
	rollbackLimit = 5 * time.Second
)

// WithFence runs fn in a transaction on db that has advanced c.Resource to
// c.Token, and commits it. It begins (READ COMMITTED), advances, calls fn,
// commits, in this order, and repeats the whole where MySQL undid it for reasons
// of its own, so fn may be called several times; only the effects in tx of the
// last call count.
//
// fn must use the context and the transaction that it is given, and return the
// errors it meets. Where it returns an error the transaction is rolled back, and
// the error comes back as it is unless [Classify] knows it; where ctx has ended
// meanwhile, within the error that says so. Where it drops an error that Classify calls
// busy or retryable, that error is the result all the same: a lock timeout leaves half a
// transaction, and a deadlock none. Errors that come with the rows of a query, to Scan,
// Next or Err, and those of a prepared statement are not seen here: fn must not drop
// them. Where it panics or ends its goroutine, the transaction is rolled back at once.
//
// # Time
//
// Everything up to COMMIT is bound to the lease: c.Deadline, or the deadline of
// ctx where that is earlier, or [DefaultLimit] from now where there is neither.
// Beyond it the server frees the row locks of a client that has stalled, by
// timeouts of the session: within 1 s of the deadline after a stall between two
// statements or while reading rows, and later by the length of the statement after
// a stall during one. (MariaDB's idle_transaction_timeout and its like, where the
// server sets them, count instead.) COMMIT has [CommitLimit] of its own and ends
// neither with ctx nor with the lease: a transaction whose fence was advanced is
// safe to commit however late.
//
// The session's settings are put back before the connection returns to the pool;
// where that fails, or fn may have left more than settings behind, such as locked
// tables, the connection is closed.
//
// # Errors
//
//   - *[tokens.StaleError]: a newer holder has written. Never repeated.
//   - [tokens.ErrDuplicate]: one-shot, and this token was used before.
//   - [tokens.ErrInvalid]: the claim is out of bounds, or this is a WithFence
//     inside fn of another. The database was not asked.
//   - [tokens.ErrBusy], [tokens.ErrRetryable]: the time was over before a try got
//     through; the last try's error is wrapped. Nothing was written.
//   - [tokens.ErrUnknownOutcome]: COMMIT got no answer. Repeat with the same
//     token, if fn can tell that it has been here; with a one-shot claim a
//     Duplicate then says that the first COMMIT took effect.
//   - [tokens.ErrUnfenced]: fn ended the transaction, by COMMIT, ROLLBACK or BEGIN,
//     a statement that commits implicitly such as ALTER TABLE, or SET autocommit =
//     1, whether or not somebody else came in between; or the role may not advance.
//     What such a commit committed stays, and so does everything that was written
//     with autocommit on, also when a newer holder had written by then. What
//     followed in a new transaction is rolled back. fn that returns an error of its
//     own gets that instead.
//   - [context.Canceled], [context.DeadlineExceeded]: ctx has ended or the lease is
//     over. Nothing was written.
func WithFence(ctx context.Context, db *sql.DB, c tokens.Claim, fn func(ctx context.Context, tx *Tx) error) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if unit.Inside(ctx) {
		return fmt.Errorf("with fence %q: inside another WithFence: %w", c.Resource, tokens.ErrInvalid)
	}
	w := unit.Work{Claim: c, Limit: DefaultLimit}
	w.Once = func(ctx context.Context, c tokens.Claim) error { return once(ctx, db, c, fn) }
	return w.Run(ctx)
}

// once is one try. Its error is classified.
func once(ctx context.Context, db *sql.DB, c tokens.Claim, fn func(ctx context.Context, tx *Tx) error) error {
	s, err := openSession(ctx, db, c.Deadline)
	if err != nil {
		return Classify(unit.NotThrough(ctx, err))
	}
	defer s.close(ctx)
	inner, err := s.conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return Classify(unit.NotThrough(ctx, err))
	}
	// Deferred, because fn may panic or end its goroutine, and the connection can
	// be closed only after the transaction. It does nothing after a COMMIT.
	defer rollback(ctx, inner)
	tx := &Tx{tx: inner, deadline: c.Deadline, bound: s.bound}
	if err := run(ctx, s, tx, c, fn); err != nil {
		return whyEnded(ctx, err)
	}
	err = Commit(ctx, inner)
	if errors.Is(err, sql.ErrTxDone) { // ctx ended just before it
		return whyEnded(ctx, err)
	}
	return err
}

func run(ctx context.Context, s *session, tx *Tx, c tokens.Claim, fn func(ctx context.Context, tx *Tx) error) error {
	if _, err := advance(ctx, tx.tx, c); err != nil {
		return unit.NotThrough(ctx, err)
	}
	if _, err := tx.tx.ExecContext(ctx, "SAVEPOINT "+mark(tx.tx)); err != nil {
		return Classify(unit.NotThrough(ctx, err))
	}
	s.spoilt = true // until there is proof of the contrary; fn may not return
	err := fn(ctx, tx)
	if tx.err != nil {
		s.spoilt = false
		return tx.err // the first failure; fn may have seen only what it led to
	}
	proof := prove(ctx, tx.tx, c)
	s.spoilt = proof != nil
	switch {
	case err != nil:
		return Classify(err)
	case ctx.Err() != nil:
		return unit.Ended(ctx)
	default:
		return proof
	}
}

// whyEnded names the end of ctx where err is but its consequence: database/sql
// then rolls back by itself, and says of later statements that there is no
// transaction.
func whyEnded(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && Classify(err) == err && !unit.Classified(err) {
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

// mark is the savepoint that follows the advance. The server forgets it with the
// transaction that it is in, however that ends. It is named after the unit, so that
// fn has none of the same name.
func mark(tx *sql.Tx) string { return fmt.Sprintf("fenced_%x", unitOf(tx)) }

// prove sees that the transaction is still the one that advanced. Without it, what
// fn wrote after a statement that commits implicitly, or after an error that had the
// server roll back, would be committed outside of the fence.
func prove(ctx context.Context, tx *sql.Tx, c tokens.Claim) error {
	_, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT "+mark(tx))
	if codeOf(err) == errNoSavepoint {
		return fmt.Errorf("with fence %q: the transaction that advanced to %d was ended inside the function; what was written before its end, or with autocommit, may have been committed: %w",
			c.Resource, int64(c.Token), tokens.ErrUnfenced)
	}
	return Classify(err)
}

// Commit commits tx as [WithFence] does, for those who use a [Guard] in their own
// transactions: it waits up to [CommitLimit], whatever becomes of ctx, and a lost
// answer comes back as [tokens.ErrUnknownOutcome]. Where tx had ended already the
// error wraps sql.ErrTxDone.
func Commit(ctx context.Context, tx *sql.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CommitLimit)
	defer cancel()
	// The driver's own Commit knows no limit, and then has nothing left to do.
	if _, err := tx.ExecContext(ctx, "COMMIT"); err != nil {
		rollback(ctx, tx)
		return classifyCommit(err)
	}
	_ = tx.Rollback()
	return nil
}
