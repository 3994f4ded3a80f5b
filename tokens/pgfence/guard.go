package pgfence

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/internal/unit"
)

// Querier runs statements: a *pgxpool.Pool, *pgx.Conn or pgx.Tx.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Guard is the guard over the central table fence.guard. Its unit of work is a
// transaction of the caller's; most callers are better served by [WithFence].
//
// Advance must be called on the outermost transaction: one that pgx nests is a
// savepoint, and rolling back to it undoes the fence while the transaction goes
// on. [Protect] makes that loud.
type Guard struct{ db Querier }

var _ tokens.Guard[pgx.Tx] = (*Guard)(nil)

// New returns a guard that peeks through db and otherwise works in the
// transactions that it is given.
func New(db Querier) *Guard { return &Guard{db: db} }

// The casts keep exec mode, which tells the server no types, out of trouble.
const (
	advanceSQL    = "SELECT fence.advance($1::text, $2::bigint, $3::boolean, $4::integer)"
	abortSQL      = "SELECT fence.advance(NULL, NULL)" // LF003
	advanceAllSQL = "SELECT fence.advance_all($1::text[], $2::bigint[], $3::boolean[], $4::integer)"
	peekSQL       = "SELECT fence.peek($1::text)"
)

// Advance does what [tokens.Guard] says, in one round trip. A refusal, like every
// error, leaves tx aborted in the database. A deadline that has passed gives an
// error that wraps context.DeadlineExceeded, and no fence is asked.
func (g *Guard) Advance(ctx context.Context, tx pgx.Tx, c tokens.Claim) (tokens.Decision, error) {
	args, err := advanceArgs(c)
	if err != nil {
		abort(ctx, tx)
		return tokens.Decision{}, err
	}
	if err := bounded(ctx, tx, c.Deadline, advanceSQL, args); err != nil {
		return refusal(c, err)
	}
	return tokens.Decision{Outcome: tokens.Accepted, Current: c.Token}, nil
}

// AdvanceAll does what [tokens.Guard] says, in one round trip. It waits at most
// until the earliest deadline of cs. After a refusal the decisions
// of all other claims are zero.
func (g *Guard) AdvanceAll(ctx context.Context, tx pgx.Tx, cs []tokens.Claim) ([]tokens.Decision, error) {
	if len(cs) == 0 {
		return nil, nil
	}
	args, err := advanceAllArgs(cs)
	if err != nil {
		abort(ctx, tx)
		return nil, err
	}
	decisions := make([]tokens.Decision, len(cs))
	if err := bounded(ctx, tx, earliest(cs), advanceAllSQL, args); err != nil {
		err = Classify(err)
		markRefused(decisions, cs, err)
		return decisions, err
	}
	for i, c := range cs {
		decisions[i] = tokens.Decision{Outcome: tokens.Accepted, Current: c.Token}
	}
	return decisions, nil
}

// Peek returns the fence of resource, 0 where it has none, and at least the floor
// where one was raised (see [RaiseFloor]).
func (g *Guard) Peek(ctx context.Context, resource string) (tokens.Token, error) {
	if err := tokens.ValidateResource(resource); err != nil {
		return 0, err
	}
	var t int64
	if err := g.db.QueryRow(ctx, peekSQL, resource).Scan(&t); err != nil {
		return 0, fmt.Errorf("peek %q: %w", resource, Classify(err))
	}
	return tokens.Token(t), nil
}

// Capabilities says that PostgreSQL can do all of it. Fences are as durable as
// commits are: see [RaiseFloor] for what a lost commit means.
func (g *Guard) Capabilities() tokens.Capabilities {
	return tokens.Capabilities{HoldsUntilEnd: true, Rollback: true, Multi: true, Durable: true}
}

// Queue puts the advance of c at the front of b, so that the fence and the writes
// behind it travel in one round trip:
//
//	var b pgx.Batch
//	err := pgfence.Queue(&b, claim)
//	b.Queue("UPDATE account SET balance = balance + $1 WHERE id = $2", 10, 42)
//	err = pgfence.ClassifyAlone(pool.SendBatch(ctx, &b).Close())
//
// Outside a transaction, as here, such a batch is one of its own: a refusal undoes all
// of it, and an answer that is lost leaves its outcome unknown. Do not read in the
// batch what a write in it depends on. It gives an error that wraps
// [tokens.ErrInvalid] where b is not empty, and otherwise fails as Advance does
// before it asks the database.
func Queue(b *pgx.Batch, c tokens.Claim) error {
	if b.Len() != 0 {
		return fmt.Errorf("queue advance of %q: %d statements stand before it: %w", c.Resource, b.Len(), tokens.ErrInvalid)
	}
	args, err := advanceArgs(c)
	if err != nil {
		return err
	}
	b.Queue(advanceSQL, args...)
	return nil
}

func advanceArgs(c tokens.Claim) ([]any, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	wait, err := waitFor(c)
	if err != nil {
		return nil, err
	}
	return []any{c.Resource, int64(c.Token), c.Mode == tokens.OneShot, wait}, nil
}

func advanceAllArgs(cs []tokens.Claim) ([]any, error) {
	var (
		n         = len(cs)
		resources = make([]string, n)
		ts        = make([]int64, n)
		strict    = make([]bool, n)
		wait      *int32
		seen      = make(map[string]bool, n)
	)
	for i, c := range cs {
		if err := c.Validate(); err != nil {
			return nil, err
		}
		if seen[c.Resource] {
			return nil, fmt.Errorf("resource %q: claimed twice: %w", c.Resource, tokens.ErrInvalid)
		}
		seen[c.Resource] = true
		resources[i], ts[i], strict[i] = c.Resource, int64(c.Token), c.Mode == tokens.OneShot
		w, err := waitFor(c)
		if err != nil {
			return nil, err
		}
		if wait == nil || w != nil && *w < *wait {
			wait = w
		}
	}
	return []any{resources, ts, strict, wait}, nil
}

// waitFor returns for how many milliseconds c may wait, nil where it has no
// deadline. It stops a little early, so that the server's answer, which says for
// what the claim waited, comes before the client's context ends the connection.
func waitFor(c tokens.Claim) (*int32, error) {
	if c.Deadline.IsZero() {
		return nil, nil
	}
	left := time.Until(c.Deadline)
	if left <= 0 {
		return nil, fmt.Errorf("resource %q: the lease is over: %w", c.Resource, context.DeadlineExceeded)
	}
	left -= min(left/10, 100*time.Millisecond)
	ms := int32(min(max(left.Milliseconds(), 1), math.MaxInt32))
	return &ms, nil
}

// bounded runs sql, which waits for fences, at most until deadline. lock_timeout alone
// would not do: it begins anew with each lock, and with each transaction that goes
// before in the queue for one.
func bounded(ctx context.Context, tx pgx.Tx, deadline time.Time, sql string, args []any) error {
	if deadline.IsZero() {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	}
	until, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	_, err := tx.Exec(until, sql, args...)
	if err != nil && ctx.Err() == nil {
		return unit.NotThrough(until, err)
	}
	return err
}

func earliest(cs []tokens.Claim) (deadline time.Time) {
	for _, c := range cs {
		if deadline.IsZero() || !c.Deadline.IsZero() && c.Deadline.Before(deadline) {
			deadline = c.Deadline
		}
	}
	return deadline
}

// abort spoils tx in the database, so that a caller who ignores that its claim was no
// claim, or its lease over, writes no more than one who ignores a refusal.
func abort(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer cancel()
	_, _ = tx.Exec(ctx, abortSQL) // whichever error it is, it aborts
}

// refusal turns an error of the database into the answer to c.
func refusal(c tokens.Claim, err error) (tokens.Decision, error) {
	err = Classify(err)
	d := decisionOf(c, err)
	if d.Outcome == 0 {
		return d, fmt.Errorf("advance %q: %w", c.Resource, err)
	}
	return d, err
}
