package ledger

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/examples/racelab/internal/plan"
	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
)

// A Guard decides which units of work take effect.
type Guard interface {
	// Run runs u as one transaction, or refuses with a *tokens.StaleError.
	Run(ctx context.Context, db *pgxpool.Pool, u Unit) error
}

// A Unit is one statement with what a guard must know about it.
type Unit struct {
	Schema string
	Step   plan.Step
	Claim  tokens.Claim
	// SQL returns one number, which goes to Value.
	SQL   string
	Args  []any
	Value *int64
}

// Unguarded lets everything through.
type Unguarded struct{}

// Run implements Guard.
func (Unguarded) Run(ctx context.Context, db *pgxpool.Pool, u Unit) error {
	return db.QueryRow(ctx, u.SQL, u.Args...).Scan(u.Value)
}

// Central is pgfence's guard table. The holder advances the fence with its read and
// again with its write, each time in the same transaction and round trip. The first
// is what makes the value good that it has read: from then on no earlier holder can
// write. The second tells whether a later holder has read since.
type Central struct{}

// Run implements Guard.
func (Central) Run(ctx context.Context, db *pgxpool.Pool, u Unit) error {
	var b pgx.Batch
	if err := pgfence.Queue(&b, u.Claim); err != nil {
		return err
	}
	return u.Send(ctx, db, &b)
}

// Send sends the statement behind what b holds already, in one round trip.
func (u Unit) Send(ctx context.Context, db *pgxpool.Pool, b *pgx.Batch) error {
	b.Queue(u.SQL, u.Args...).QueryRow(func(row pgx.Row) error { return row.Scan(u.Value) })
	return pgfence.ClassifyAlone(db.SendBatch(ctx, b).Close())
}

// Column is pgfence's column form: the fence stands in the account's or reward's own
// row. It is used at the same two places as the guard table.
type Column struct{}

// Run implements Guard.
func (Column) Run(ctx context.Context, db *pgxpool.Pool, u Unit) error {
	table := "account"
	if u.Step.Kind == plan.Pay {
		table = "reward"
	}
	row := pgfence.Row{Table: pgx.Identifier{u.Schema, table}, KeyColumn: "id", Key: u.Step.Key}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := row.Update(ctx, tx, u.Claim, "fenced_at = clock_timestamp()"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, u.SQL, u.Args...).Scan(u.Value)
	})
}
