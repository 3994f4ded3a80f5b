package ledger

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenced/fenced/tokens"
)

//go:embed sql/count.sql
var countSQL string

//go:embed sql/doubles.sql
var doublesSQL string

//go:embed sql/story.sql
var storySQL string

// Counts are what the tables of one way say.
type Counts struct {
	// Transactions are the steps that were done.
	Transactions int
	// Stalls were injected; LongStalls of them outlasted the TTL.
	Stalls, LongStalls int
	// WritesAfterLease took effect although the writer's lease was over.
	WritesAfterLease int
	// LostUpdates were overwritten by a writer that had not seen them.
	LostUpdates int
	// DoublePayments are payments beyond the first of a reward.
	DoublePayments int
	// WithinLease are those of both for which no writer's lease was over.
	WithinLease int
	// Refused are reads that were meant to be followed by a write and were not.
	Refused int
	// RefusalsLogged is what the workers know of; it must cover Refused.
	RefusalsLogged int
	// Missing is what the accounts lack, PaidTwice what was paid too much.
	Missing, PaidTwice int64
	// Unpaid rewards were forgotten.
	Unpaid int
	// Seconds is how long all of it took.
	Seconds float64
}

// Corrupted is the number of lost updates and double payments.
func (c Counts) Corrupted() int { return c.LostUpdates + c.DoublePayments }

// Count counts. A stall is long when it outlasts ttl. In a way that is exclusive a lease is
// over, at the latest, when the lock is granted to the next.
func (l *Ledger) Count(ctx context.Context, ttl time.Duration, exclusive bool) (Counts, error) {
	rows, err := l.db.Query(ctx, l.sql(countSQL), ttl, exclusive)
	if err != nil {
		return Counts{}, fmt.Errorf("count %s: %w", l.schema, err)
	}
	c, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Counts])
	if err != nil {
		return c, fmt.Errorf("count %s: %w", l.schema, err)
	}
	return c, nil
}

// A Case is a double payment of one reward: Step stalled and paid late.
type Case struct{ Reward, Step int }

// Doubles returns the rewards that a stalled worker paid after another had, the
// one first that is easiest to see.
func (l *Ledger) Doubles(ctx context.Context) ([]Case, error) {
	rows, err := l.db.Query(ctx, l.sql(doublesSQL))
	if err != nil {
		return nil, fmt.Errorf("double payments of %s: %w", l.schema, err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Case])
}

// An Event is one entry of the log.
type Event struct {
	What   string
	Hold   string
	Step   int
	Worker string
	Token  tokens.Token
	// At is when the entry was written: the end of a stall, the moment of a write.
	At, Asked, Granted time.Time
	// Frozen and LeaseEnd are nil where the entry tells nothing about them.
	Frozen, LeaseEnd *time.Time
	// Value is the number of payments that were read or are there now.
	Value, Amount int64
	// Fence is what a refusal named as the highest token seen; else 0.
	Fence tokens.Token
}

// Story returns the entries about one reward in their order.
func (l *Ledger) Story(ctx context.Context, reward int) ([]Event, error) {
	rows, err := l.db.Query(ctx, l.sql(storySQL), reward)
	if err != nil {
		return nil, fmt.Errorf("story of reward %d in %s: %w", reward, l.schema, err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
		// As int64, because a Token scans no 0.
		var token, fence int64
		err = row.Scan(&e.What, &e.Hold, &e.Step, &e.Worker, &token, &e.At, &e.Asked, &e.Granted,
			&e.Frozen, &e.LeaseEnd, &e.Value, &e.Amount, &fence)
		e.Token, e.Fence = tokens.Token(token), tokens.Token(fence)
		return e, err
	})
}

// StalledSteps returns the steps that stalled, in order.
func (l *Ledger) StalledSteps(ctx context.Context) ([]int, error) {
	rows, err := l.db.Query(ctx, l.sql("SELECT DISTINCT step FROM {s}.event WHERE what = 'stall' ORDER BY step"))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

// AsStale returns the refusal that err is, nil where it is another error.
func AsStale(err error) *tokens.StaleError {
	var stale *tokens.StaleError
	errors.As(err, &stale)
	return stale
}
