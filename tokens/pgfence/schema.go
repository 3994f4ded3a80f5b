package pgfence

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

//go:embed migration/001_guard.up.sql
var schemaUp string

//go:embed migration/001_guard.down.sql
var schemaDown string

const (
	// OwnerRole is the role that owns the schema. It cannot log in; its members
	// may use [Repair] and [RaiseFloor].
	OwnerRole = "fence_owner"
	// WriterRole is the role that may advance and peek. Make the application's
	// role a member of it: GRANT fence_writer TO app.
	WriterRole = "fence_writer"
)

// schemaComment marks a schema of ours and its version.
const schemaComment = "fenced schema version 1"

// Schema returns the SQL that [Install] runs, for those who review it or keep
// their migrations elsewhere. Run it in one transaction.
func Schema() string { return schemaUp }

// SchemaDown returns the SQL that undoes [Schema]. With it every fence is
// forgotten, and protected tables take unfenced writes again.
func SchemaDown() string { return schemaDown }

// Beginner starts transactions: a *pgxpool.Pool, *pgxpool.Conn or *pgx.Conn. A
// pgx.Tx is none on purpose, because a fence inside a savepoint can be undone
// while the transaction goes on.
type Beginner interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// Install creates the schema fence with its tables, functions and roles, in one
// transaction. Where it is there already, nothing changes; where a schema of that
// name is not ours, it fails. It needs a superuser, or a role with CREATEROLE and
// CREATE on the database; that role becomes a member of [OwnerRole]. From PostgreSQL 16
// on it must be one already, or have its ADMIN option, where another has made the roles.
//
// Callers that install at the same time wait for each other.
func Install(ctx context.Context, db Beginner) error {
	err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error {
		// Any constant will do, so long as it is the same for all who install.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext('fenced/pgfence/install'))"); err != nil {
			return err
		}
		there, err := installed(ctx, tx)
		if err != nil || there {
			return err
		}
		_, err = tx.Exec(ctx, schemaUp)
		return err
	})
	if err != nil {
		return fmt.Errorf("install schema fence: %w", err)
	}
	return nil
}

func installed(ctx context.Context, tx pgx.Tx) (bool, error) {
	var comment string
	err := tx.QueryRow(ctx, `SELECT coalesce(obj_description(oid, 'pg_namespace'), '')
		FROM pg_namespace WHERE nspname = 'fence'`).Scan(&comment)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	case comment != schemaComment:
		return false, fmt.Errorf("the database has another schema of that name (its comment is %q, not %q)", comment, schemaComment)
	default:
		return true, nil
	}
}
