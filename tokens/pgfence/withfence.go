package pgfence

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/tokens"
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

	// Pauses between tries are drawn evenly from 0 to a bound that doubles.
	firstPause = 5 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// WithFence runs fn in a transaction on db that has advanced c.Resource to
// c.Token, and commits it. It begins (READ COMMITTED), advances, calls fn,
// commits, in this order, and repeats the whole where PostgreSQL undid it for
// reasons of its own, so fn may be called several times; only the effects in tx
// of the last call count.
//
// fn must use the context and the transaction that it is given, and return the
// errors it meets. It cannot commit or roll back tx; it may nest with tx.Begin.
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
//   - [tokens.ErrUnfenced]: fn wrote to a protected table outside c.Resource, or
//     the role may not advance.
//   - [context.Canceled], [context.DeadlineExceeded]: ctx has ended or the lease is
//     over. Nothing was written.
func WithFence(ctx context.Context, db Beginner, c tokens.Claim, fn func(ctx context.Context, tx pgx.Tx) error) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := refuseNesting(ctx, db); err != nil {
		return fmt.Errorf("with fence %q: %w", c.Resource, err)
	}
	c.Deadline = deadline(ctx, c)
	bounded, cancel := context.WithDeadlineCause(context.WithValue(ctx, insideKey{}, true), c.Deadline, errLeaseOver)
	defer cancel()

	u := unit{db: db, claim: c, fn: fn}
	var last error
	for try := 0; ; try++ {
		if bounded.Err() != nil {
			return u.timeOver(bounded, last)
		}
		err := u.once(bounded)
		if err == nil || !repeatable(err) || connClosed(db) {
			return u.explain(bounded, err, last)
		}
		last = err
		pause(bounded, try)
	}
}

var errLeaseOver = fmt.Errorf("the lease is over: %w", context.DeadlineExceeded)

// insideKey marks the context of an fn.
type insideKey struct{}

// refuseNesting keeps one fence out of another's transaction: the inner COMMIT
// would commit the outer work, or the two would wait for each other.
func refuseNesting(ctx context.Context, db Beginner) error {
	if ctx.Value(insideKey{}) != nil {
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

func deadline(ctx context.Context, c tokens.Claim) time.Time {
	own, ok := ctx.Deadline()
	switch {
	case c.Deadline.IsZero() && ok:
		return own
	case c.Deadline.IsZero():
		return time.Now().Add(DefaultLimit)
	case ok && own.Before(c.Deadline):
		return own
	default:
		return c.Deadline
	}
}

func repeatable(err error) bool {
	return errors.Is(err, tokens.ErrBusy) || errors.Is(err, tokens.ErrRetryable)
}

// pause waits between two tries, at random so that rivals part.
func pause(ctx context.Context, try int) {
	bound := min(firstPause<<min(try, 10), lastPause)
	timer := time.NewTimer(rand.N(bound))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// unit is one fenced unit of work.
type unit struct {
	db    Beginner
	claim tokens.Claim
	fn    func(ctx context.Context, tx pgx.Tx) error
}

// once is one try. Its error is classified.
func (u unit) once(ctx context.Context) error {
	inner, err := u.db.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginSQL(u.claim.Deadline)})
	if err != nil {
		return notThrough(ctx, Classify(err))
	}
	tx := &boundTx{Tx: inner, limits: &limits{deadline: u.claim.Deadline, set: time.Now()}}
	if err := u.run(ctx, tx); err != nil {
		rollback(ctx, inner)
		return err
	}
	return Commit(ctx, inner)
}

func (u unit) run(ctx context.Context, tx *boundTx) error {
	if _, err := (&Guard{}).Advance(ctx, tx.Tx, u.claim); err != nil {
		return notThrough(ctx, err)
	}
	if err := u.fn(ctx, tx); err != nil {
		if tx.limits.err != nil {
			err = tx.limits.err // the first failure; fn saw only what it led to
		}
		return Classify(err)
	}
	return ended(ctx)
}

// notThrough says of a try that was out of time before fn could be called that it
// was kept waiting: by the fence's holder, or for a connection.
func notThrough(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", tokens.ErrBusy, err)
	}
	return err
}

// Commit commits tx as [WithFence] does, for those who use a [Guard] in their own
// transactions: it waits up to [CommitLimit], whatever becomes of ctx, and a lost
// answer comes back as [tokens.ErrUnknownOutcome]. Where a statement had failed
// and tx was rolled back instead, the error wraps pgx.ErrTxCommitRollback.
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

// explain says of the end of a context what it was that ended, with the error of
// the try before: somebody who waited in vain wants to know for whom.
func (u unit) explain(ctx context.Context, err, last error) error {
	if err != nil && ctx.Err() != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		return u.timeOver(ctx, last)
	}
	return err
}

func (u unit) timeOver(ctx context.Context, last error) error {
	if last == nil {
		return fmt.Errorf("with fence %q: %w", u.claim.Resource, ended(ctx))
	}
	return fmt.Errorf("with fence %q: %w; the last try: %w", u.claim.Resource, ended(ctx), last)
}

// ended returns why ctx has ended, nil where it has not, so that errors.Is finds
// both the cause and the context's own error.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
