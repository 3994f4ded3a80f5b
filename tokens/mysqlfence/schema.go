package mysqlfence

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"strings"
)

//go:embed migration/001_guard.up.sql
var schemaUp string

//go:embed migration/001_guard.down.sql
var schemaDown string

// schemaComment marks a table of ours and its version.
const schemaComment = "fenced schema version 1"

// Schema returns the statement that [Install] runs, for those who review it or
// keep their migrations elsewhere.
func Schema() string { return schemaUp }

// SchemaDown returns the statement that undoes [Schema]. With it every fence is
// forgotten.
func SchemaDown() string { return schemaDown }

// Querier runs statements: a *sql.DB, *sql.Conn or *sql.Tx.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Install creates the table fence_guard in the database of the connection. Where
// it is there already, nothing changes; where a table of that name is not ours, it
// fails. Callers may install at the same time. As DDL it commits a transaction
// that is open on db.
//
// The application's role needs SELECT, INSERT and UPDATE on the table, no DELETE.
func Install(ctx context.Context, db Querier) error {
	create := strings.Replace(schemaUp, "CREATE TABLE fence_guard", "CREATE TABLE IF NOT EXISTS fence_guard", 1)
	if _, err := db.ExecContext(ctx, create); err != nil {
		return fmt.Errorf("install table fence_guard: %w", Classify(err))
	}
	var engine, comment string
	err := db.QueryRowContext(ctx, `SELECT ENGINE, TABLE_COMMENT FROM information_schema.TABLES
		WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'fence_guard'`).Scan(&engine, &comment)
	if err != nil {
		return fmt.Errorf("install table fence_guard: %w", Classify(err))
	}
	if engine != "InnoDB" || comment != schemaComment {
		return fmt.Errorf("install table fence_guard: the database has another table of that name (%s, comment %q, not InnoDB, %q)",
			engine, comment, schemaComment)
	}
	return nil
}
