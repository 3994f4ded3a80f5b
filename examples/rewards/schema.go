package rewards

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Schema is the SQL that makes the tables. It may be run again.
//
//go:embed schema.sql
var Schema string

// schemaLock makes installers take turns: two CREATE TABLE IF NOT EXISTS at once
// can collide in the catalogue. The number is arbitrary.
const schemaLock = 0x72657761

// Install makes the tables in the first schema of the pool's search_path where
// they do not exist, all or none. Any number of processes may call it at once. It
// blocks until PostgreSQL has answered or ctx ends.
func Install(ctx context.Context, pool *pgxpool.Pool) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", schemaLock); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, Schema)
		return err
	})
	if err != nil {
		return fmt.Errorf("reward schema: %w", err)
	}
	return nil
}
