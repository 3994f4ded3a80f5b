package pgfence

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fenced/fenced/tokens"
)

// Protect has PostgreSQL refuse every INSERT, UPDATE, DELETE, MERGE, COPY and
// TRUNCATE on a table by a transaction that has not advanced the row's resource
// ([tokens.ErrUnfenced], SQLSTATE LF002). The resource of a row is prefix
// followed by the text of its key column, which must be NOT NULL: with prefix
// "account/" and key 42, "account/42". A row's move to another key needs both.
//
// The key's type must have one text in every session: an integer, numeric, a string, an
// enum, uuid, date, timestamp or boolean. Others, such as timestamptz and bytea, and a
// generated column, are [tokens.ErrInvalid], and so is a table from which one inherits
// that is not protected. Partitions are covered; call it again when one has been added,
// which TRUNCATE of that partition could empty otherwise.
//
// The table gets a column fence_token, stamped by the database with the token of
// the last write, 0 on older rows. Calling it again replaces prefix and key. It
// must be run by the table's owner, who can undo it; so the application should
// not own the table, nor be granted TRUNCATE or the column fence_token, nor TRIGGER:
// a trigger of its own that runs last changes what the fence has let through.
func Protect(ctx context.Context, db Querier, table pgx.Identifier, key, prefix string) error {
	_, err := db.Exec(ctx, "SELECT fence.protect($1::text::regclass, $2::text::name, $3::text)", table.Sanitize(), key, prefix)
	if err != nil {
		return fmt.Errorf("protect %s: %w", table.Sanitize(), Classify(err))
	}
	return nil
}

// Repair sets the fence of resource to t, also downwards, and returns what it
// was. It is for a fence that was advanced by mistake beyond all tokens of its
// lock, which locks every writer out. First see that no holder of a token above t
// still runs: it would be accepted. It needs a member of [OwnerRole]; an error
// wraps [tokens.ErrUnfenced] where the caller is none, and [tokens.ErrInvalid]
// where the resource has no fence.
func Repair(ctx context.Context, db Querier, resource string, t tokens.Token) (was tokens.Token, err error) {
	c := tokens.Claim{Resource: resource, Token: t}
	if err := c.Validate(); err != nil {
		return 0, err
	}
	var old *int64
	if err := db.QueryRow(ctx, "SELECT fence.repair($1::text, $2::bigint)", resource, int64(t)).Scan(&old); err != nil {
		return 0, fmt.Errorf("repair %q: %w", resource, Classify(err))
	}
	if old == nil {
		return 0, fmt.Errorf("repair %q: it has no fence: %w", resource, tokens.ErrInvalid)
	}
	return tokens.Token(*old), nil
}

// RaiseFloor has every resource refuse tokens below t from now on, those that
// have no fence yet too, and returns the floor that stands; it never falls. Use
// it after PostgreSQL was restored or failed over and may have lost commits, with
// a token above all that were granted, before the application may connect.
//
// It waits for every transaction that has advanced a fence, so that none with a
// lower token commits after it; set a lock_timeout or a deadline to bound that.
// It needs a member of [OwnerRole].
func RaiseFloor(ctx context.Context, db Querier, t tokens.Token) (tokens.Token, error) {
	if !t.Valid() {
		return 0, fmt.Errorf("raise floor to %d: %w", int64(t), tokens.ErrInvalid)
	}
	var floor int64
	if err := db.QueryRow(ctx, "SELECT fence.raise_floor($1::bigint)", int64(t)).Scan(&floor); err != nil {
		return 0, fmt.Errorf("raise floor to %d: %w", int64(t), Classify(err))
	}
	return tokens.Token(floor), nil
}
