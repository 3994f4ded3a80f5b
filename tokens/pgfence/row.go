package pgfence

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fenced/fenced/tokens"
)

// ErrNoRow: the row to update does not exist.
var ErrNoRow = errors.New("no such row")

// Row is the fence in a column of your own table: one row guards itself. The
// column is a bigint NOT NULL, by habit
//
//	ALTER TABLE account ADD fence_token bigint NOT NULL DEFAULT 0
//	  CHECK (fence_token BETWEEN 0 AND 9007199254740991)
//
// It guards that row alone: a stale holder can still write the row's siblings.
// Deleting the row forgets the token; keep a tombstone, or use the guard table.
type Row struct {
	// Table is the table's name, with or without its schema.
	Table pgx.Identifier
	// KeyColumn is the column that tells the row, one with a unique index.
	KeyColumn string
	// Key is its value.
	Key any
	// TokenColumn is the fence. Defaults to fence_token.
	TokenColumn string

	_ struct{}
}

// Update runs
//
//	UPDATE table SET <set>, fence_token = <token> WHERE key = <key> AND fence_token < <token>
//
// (<= for a [tokens.Renewable] claim), and looks only after 0 rows why. The text
// of set is SQL of the programmer's and may use $1, $2 and so on for args; values
// from outside belong in args.
//
// It is one statement, so outside a transaction a client that stalls holds no row
// lock. db may be a pool or a transaction; in a transaction of REPEATABLE READ or
// higher a stale writer may get [tokens.ErrRetryable] first.
//
// Errors: *[tokens.StaleError] with the claim's resource, [tokens.ErrDuplicate],
// [ErrNoRow], [tokens.ErrInvalid] for the claim or a Row with fields missing, and
// [tokens.ErrRetryable] where a rival changed the row between the statements; the
// rest as in [Classify] where db is a pgx.Tx, and as in [ClassifyAlone] where it is
// not: then the end of ctx, or of the claim's deadline, which bounds the call, may
// leave the outcome unknown.
func (r Row) Update(ctx context.Context, db Querier, c tokens.Claim, set string, args ...any) (tokens.Decision, error) {
	if err := errors.Join(c.Validate(), r.validate(set)); err != nil {
		return tokens.Decision{}, err
	}
	if !c.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.Deadline)
		defer cancel()
	}
	tag, err := db.Exec(ctx, r.updateSQL(c, set, len(args)), append(args[:len(args):len(args)], r.Key, int64(c.Token))...)
	if err != nil {
		if _, within := db.(pgx.Tx); !within {
			err = ClassifyAlone(err)
		}
		return tokens.Decision{}, fmt.Errorf("update %q: %w", c.Resource, Classify(err))
	}
	if tag.RowsAffected() == 0 {
		return r.refused(ctx, db, c)
	}
	return tokens.Decision{Outcome: tokens.Accepted, Current: c.Token}, nil
}

func (r Row) validate(set string) error {
	switch {
	case len(r.Table) == 0:
		return fmt.Errorf("row: Table is empty: %w", tokens.ErrInvalid)
	case r.KeyColumn == "":
		return fmt.Errorf("row: KeyColumn is empty: %w", tokens.ErrInvalid)
	case r.Key == nil:
		return fmt.Errorf("row: Key is nil: %w", tokens.ErrInvalid)
	case strings.TrimSpace(set) == "":
		return fmt.Errorf("row: nothing to set: %w", tokens.ErrInvalid)
	}
	return nil
}

func (r Row) tokenColumn() string {
	if r.TokenColumn == "" {
		return pgx.Identifier{"fence_token"}.Sanitize()
	}
	return pgx.Identifier{r.TokenColumn}.Sanitize()
}

func (r Row) updateSQL(c tokens.Claim, set string, nargs int) string {
	column, below := r.tokenColumn(), "<"
	if c.Mode == tokens.Renewable {
		below = "<="
	}
	return fmt.Sprintf("UPDATE %s SET %s, %s = $%d::bigint WHERE %s = $%d AND %s %s $%d::bigint",
		r.Table.Sanitize(), set, column, nargs+2,
		pgx.Identifier{r.KeyColumn}.Sanitize(), nargs+1, column, below, nargs+2)
}

// refused says why no row was updated. It is a second statement on purpose: one
// statement would report what the row was before the update waited for it.
func (r Row) refused(ctx context.Context, db Querier, c tokens.Claim) (tokens.Decision, error) {
	var current *int64
	sql := fmt.Sprintf("SELECT %s FROM %s WHERE %s = $1", r.tokenColumn(), r.Table.Sanitize(), pgx.Identifier{r.KeyColumn}.Sanitize())
	err := db.QueryRow(ctx, sql, r.Key).Scan(&current)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return tokens.Decision{}, fmt.Errorf("update %q: %w", c.Resource, ErrNoRow)
	case err != nil:
		return tokens.Decision{}, fmt.Errorf("update %q: %w", c.Resource, Classify(err))
	case current == nil:
		return tokens.Decision{}, fmt.Errorf("update %q: column %s is NULL: %w", c.Resource, r.tokenColumn(), tokens.ErrUnfenced)
	}
	d := tokens.Decide(tokens.Token(*current), c.Token, c.Mode)
	if d.Outcome == tokens.Accepted {
		// A rival that was in the way has rolled back or gone since.
		return tokens.Decision{}, fmt.Errorf("update %q: the row changed meanwhile: %w", c.Resource, tokens.ErrRetryable)
	}
	return d, d.Err(c)
}
