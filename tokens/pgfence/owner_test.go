package pgfence_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

// TestSchema_LendsNobodyTheOwnersRights has a role make a table of its own whose types
// run its code, under the trigger of the schema: the code must run with its own rights.
func TestSchema_LendsNobodyTheOwnersRights(t *testing.T) {
	t.Parallel()
	pool := install(t)
	mustExec(t, pool, "SELECT fence.advance('account/42', 34, false)")
	role := newRole(t, pool, "LOGIN IN ROLE "+pgfence.WriterRole)
	app := pgtest.NewPool(t, as(t, pool, role))
	const attack = `
		CREATE FUNCTION pg_temp.attack(text) RETURNS boolean LANGUAGE plpgsql AS $$
		BEGIN PERFORM fence.repair('account/42', 1); RETURN true; END $$;
		CREATE TYPE pg_temp.e AS ENUM ('a');
		CREATE FUNCTION pg_temp.ej(pg_temp.e) RETURNS json LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_temp.attack(''); RETURN '1'; END $$;
		CREATE CAST (pg_temp.e AS json) WITH FUNCTION pg_temp.ej(pg_temp.e);
		CREATE DOMAIN pg_temp.d AS bigint CHECK (pg_temp.attack(VALUE::text));`
	for name, table := range map[string]string{
		"a cast to json":       "(id int NOT NULL, fence_token bigint, x pg_temp.e DEFAULT 'a')",
		"a check of a domain":  "(id int NOT NULL, fence_token pg_temp.d)",
		"a check of the table": "(id int NOT NULL, fence_token bigint CHECK (pg_temp.attack(fence_token::text)))",
	} {
		conn, err := app.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Exec(t.Context(), attack+"CREATE TEMP TABLE t "+table+`;
			CREATE TRIGGER z BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION fence.require_advanced('x/', 'id')`)
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Exec(t.Context(), "BEGIN; SELECT fence.advance('x/1', 1, false); INSERT INTO t (id) VALUES (1); COMMIT")
		if code(err) != "42501" {
			t.Errorf("%s: %v, want insufficient_privilege", name, err)
		}
		_ = conn.Conn().Close(t.Context())
		conn.Release()
	}
	var fence int64
	if err := pool.QueryRow(t.Context(), "SELECT fence.peek('account/42')").Scan(&fence); err != nil || fence != 34 {
		t.Errorf("the fence is %d, %v", fence, err)
	}
}

// TestSchema_DefinersTakePlainValues keeps functions with the owner's rights from
// running code of whoever calls: no triggers, and no arguments but plain values.
func TestSchema_DefinersTakePlainValues(t *testing.T) {
	t.Parallel()
	pool := install(t)
	rows, err := pool.Query(t.Context(), `SELECT p.oid::regprocedure::text FROM pg_proc p
		WHERE p.pronamespace = 'fence'::regnamespace AND p.prosecdef AND (p.prorettype = 'trigger'::regtype
			OR EXISTS (SELECT FROM unnest(p.proargtypes) a WHERE a <> ALL ('{text,int8,int4,bool,text[],int8[],bool[]}'::regtype[])))`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) > 0 {
		t.Errorf("%v run with the owner's rights (%v)", names, err)
	}
}

func TestProtect_RefusesWhatItCannotKeep(t *testing.T) {
	t.Parallel()
	pool := install(t)
	mustExec(t, pool, `
		CREATE DOMAIN raw AS bytea;
		CREATE TABLE zoned (k timestamptz NOT NULL);
		CREATE TABLE bytes (k raw NOT NULL);
		CREATE TABLE floats (k float8 NOT NULL);
		CREATE TABLE made (id int, k text NOT NULL GENERATED ALWAYS AS ('x') STORED);
		CREATE TABLE parent (k int NOT NULL); CREATE TABLE child () INHERITS (parent);
		CREATE TYPE season AS ENUM ('s1'); CREATE DOMAIN code AS text;
		CREATE TABLE enums (k season NOT NULL); CREATE TABLE codes (k code NOT NULL); CREATE TABLE days (k date NOT NULL);
		CREATE TABLE ids (k uuid NOT NULL); CREATE TABLE numbers (k numeric NOT NULL); CREATE TABLE chars (k char(4) NOT NULL)`)
	protect := func(table string) error {
		return pgfence.Protect(t.Context(), pool, pgx.Identifier{table}, "k", "r/")
	}
	for table, why := range map[string]string{
		"zoned": "not the same in every session", "bytes": "not the same in every session", "floats": "not the same in every session",
		"made": "not generated", "parent": "child inherits",
	} {
		if err := protect(table); !errors.Is(err, tokens.ErrInvalid) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want ErrInvalid that says %q", table, err, why)
		}
	}
	for _, table := range []string{"child", "parent", "enums", "codes", "days", "ids", "numbers", "chars"} {
		if err := protect(table); err != nil {
			t.Errorf("%s: %v", table, err)
		}
	}
	if _, err := pool.Exec(t.Context(), "INSERT INTO child VALUES (1)"); code(err) != pgfence.CodeUnfenced {
		t.Errorf("write to a child: %v", err)
	}
	mustExec(t, pool, "ALTER TABLE ids RENAME k TO renamed")
	if _, err := pool.Exec(t.Context(), "INSERT INTO ids VALUES (gen_random_uuid())"); code(err) != pgfence.CodeUnfenced {
		t.Errorf("write under a key that was renamed: %v", err)
	}
}

// TestProtect_TruncateOfAPartition: whoever may empty one partition may not either.
func TestProtect_TruncateOfAPartition(t *testing.T) {
	t.Parallel()
	pool := install(t)
	mustExec(t, pool, `CREATE TABLE parted (id int NOT NULL) PARTITION BY HASH (id);
		CREATE TABLE part_0 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0)`)
	protect := func() {
		t.Helper()
		if err := pgfence.Protect(t.Context(), pool, pgx.Identifier{"parted"}, "id", "r/"); err != nil {
			t.Fatal(err)
		}
	}
	protect()
	mustExec(t, pool, "CREATE TABLE part_1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1)")
	protect() // for the one that came later
	for _, table := range []string{"parted", "part_0", "part_1"} {
		if _, err := pool.Exec(t.Context(), "TRUNCATE "+table); code(err) != pgfence.CodeUnfenced {
			t.Errorf("TRUNCATE %s: %v", table, err)
		}
	}
}

// TestWithFence_FindsATransactionThatWasEnded has the function end the transaction by
// SQL of its own, and a rival come before it writes.
func TestWithFence_FindsATransactionThatWasEnded(t *testing.T) {
	t.Parallel()
	pool := install(t)
	for i, end := range []string{"COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "COMMIT; BEGIN", "ROLLBACK; BEGIN"} {
		c := claim("account/42", tokens.Token(10*i+10), tokens.Renewable)
		err := pgfence.WithFence(t.Context(), pool, c, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, end)
			return err
		})
		if !errors.Is(err, tokens.ErrUnfenced) {
			t.Errorf("%s: %v, want ErrUnfenced", end, err)
		}
	}
	var inTransaction int
	const open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
	if err := pool.QueryRow(t.Context(), open).Scan(&inTransaction); err != nil || inTransaction > 0 {
		t.Errorf("%d transactions are open, %v", inTransaction, err)
	}
}

// TestWithFence_GivesTheConnectionBack whatever becomes of the function.
func TestWithFence_GivesTheConnectionBack(t *testing.T) {
	t.Parallel()
	pool := install(t)
	for name, leave := range map[string]func(){
		"panic": func() { panic("planted") }, "the end of the goroutine": runtime.Goexit,
	} {
		gone := make(chan any)
		go func() {
			defer close(gone)
			defer func() { _ = recover() }()
			_ = pgfence.WithFence(t.Context(), pool, claim("account/42", 5, tokens.Renewable), func(context.Context, pgx.Tx) error {
				leave()
				return nil
			})
		}()
		select {
		case <-gone:
		case <-time.After(pgfence.DefaultLimit / 2):
			t.Fatalf("%s: it waits for the end of the lease", name)
		}
		givenBack(t, pool, name)
	}
	tries := 0
	err := pgfence.WithFence(t.Context(), pool, claim("account/42", 6, tokens.Renewable), func(ctx context.Context, tx pgx.Tx) error {
		tries++
		_, err := tx.Query(ctx, "SELECT generate_series(1, 100000)")
		return err
	})
	// A bug of the function's, and so of no class: ErrInvalid would become the client's fault, 400.
	if err == nil || errors.Is(err, tokens.ErrInvalid) || tries != 1 || !strings.Contains(err.Error(), "rows") {
		t.Errorf("rows left open: %v after %d tries", err, tries)
	}
	givenBack(t, pool, "rows left open")
}

// givenBack waits until no connection is out: the pool closes a broken one behind its
// caller's back.
func givenBack(t *testing.T, pool *pgxpool.Pool, after string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); pool.Stat().AcquiredConns() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %s %d connections are not given back", after, pool.Stat().AcquiredConns())
		}
	}
}
