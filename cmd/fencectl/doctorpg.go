package main

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/tokens"
)

var (
	//go:embed query/unguarded.sql
	unguardedSQL string
	//go:embed query/writable.sql
	writableSQL string
	//go:embed query/long.sql
	longSQL string
)

// checkDatabase looks at the fences of a database, without changing anything.
func (a *app) checkDatabase(ctx context.Context, url string, st *clientsdk.Status, long time.Duration) (found []finding, err error) {
	conn, err := a.database(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		found, err = checkFences(ctx, tx, st, long)
		return err
	})
	if err != nil {
		return nil, pgError("doctor", err)
	}
	return found, nil
}

func checkFences(ctx context.Context, tx pgx.Tx, st *clientsdk.Status, long time.Duration) ([]finding, error) {
	var installed bool
	if err := tx.QueryRow(ctx, "SELECT to_regclass('fence.guard') IS NOT NULL").Scan(&installed); err != nil {
		return nil, err
	}
	if !installed {
		return []finding{{"the database has no schema fence: nothing in it refuses a stale write but columns of your own", "run pgfence.Install, or pgfence.Schema with psql -1 -f"}}, nil
	}
	var found []finding
	for _, check := range []func() ([]finding, error){
		func() ([]finding, error) { return unguarded(ctx, tx) },
		func() ([]finding, error) { return writable(ctx, tx) },
		func() ([]finding, error) { return aheadOf(ctx, tx, st) },
		func() ([]finding, error) { return longHeld(ctx, tx, long) },
	} {
		some, err := check()
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

// findings makes one finding of each row.
func findings(ctx context.Context, tx pgx.Tx, sql string, row pgx.RowToFunc[finding], args ...any) ([]finding, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, row)
}

func unguarded(ctx context.Context, tx pgx.Tx) ([]finding, error) {
	return findings(ctx, tx, unguardedSQL, func(r pgx.CollectableRow) (f finding, err error) {
		var table string
		err = r.Scan(&table)
		return finding{
			fmt.Sprintf("table %s was protected and has no guard trigger that is enabled: it takes unfenced writes", table),
			fmt.Sprintf("as the owner of the table: SELECT fence.protect(%s, KEY_COLUMN, PREFIX)", "'"+strings.ReplaceAll(table, "'", "''")+"'"),
		}, err
	})
}

func writable(ctx context.Context, tx pgx.Tx) ([]finding, error) {
	return findings(ctx, tx, writableSQL, func(r pgx.CollectableRow) (f finding, err error) {
		var table, role string
		err = r.Scan(&table, &role)
		return finding{
			fmt.Sprintf("role %s may write the fence column of table %s", role, table),
			fmt.Sprintf("REVOKE UPDATE ON %s FROM %s, and grant it on the other columns; or let another role own the table", table, pgx.Identifier{role}.Sanitize()),
		}, err
	})
}

// aheadOf compares the highest fence with what the server can have issued.
func aheadOf(ctx context.Context, tx pgx.Tx, st *clientsdk.Status) ([]finding, error) {
	var highest tokens.Token
	err := tx.QueryRow(ctx, "SELECT greatest((SELECT max(token) FROM fence.guard), (SELECT nullif(min_token, 1) FROM fence.floor), 0)").Scan((*int64)(&highest))
	// A floor of pg floor --from-server is one above.
	if err != nil || highest <= st.Highest+1 {
		return nil, err
	}
	return []finding{{
		fmt.Sprintf("the highest fence is %d, and the server has issued %d at most: every write to that resource is refused; was the server's store restored?", highest, st.Highest),
		fmt.Sprintf("fencectl floor raise --above %d", highest),
	}}, nil
}

func longHeld(ctx context.Context, tx pgx.Tx, long time.Duration) ([]finding, error) {
	return findings(ctx, tx, longSQL, func(r pgx.CollectableRow) (f finding, err error) {
		var pid int32
		var role *string
		var seconds int64
		err = r.Scan(&pid, &role, &seconds)
		if role == nil {
			role = new(string)
		}
		return finding{
			fmt.Sprintf("a transaction of %s has held a guard for %s: the next holder of its resource waits", *role, time.Duration(seconds)*time.Second),
			fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid),
		}, err
	}, long.Seconds())
}
