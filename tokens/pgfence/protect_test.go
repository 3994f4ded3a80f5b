package pgfence_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

// protectAccount protects the table account as account/<id>, and returns a pool of
// an application role with the rights that the documentation names, no more.
func protectAccount(t *testing.T, pool *pgxpool.Pool) (app *pgxpool.Pool) {
	t.Helper()
	if err := pgfence.Protect(t.Context(), pool, pgx.Identifier{"account"}, "id", "account/"); err != nil {
		t.Fatal(err)
	}
	role := newRole(t, pool, "LOGIN IN ROLE "+pgfence.WriterRole)
	mustExec(t, pool, "GRANT SELECT, DELETE, INSERT (id, balance), UPDATE (id, balance) ON account TO "+role)
	return pgtest.NewPool(t, as(t, pool, role))
}

// newRole makes a role that ends with the test. Roles belong to the whole server,
// so it is named after the test's database.
func newRole(t *testing.T, pool *pgxpool.Pool, options string) string {
	t.Helper()
	role := "role_" + pool.Config().ConnConfig.Database
	mustExec(t, pool, "CREATE ROLE "+role+" "+options)
	t.Cleanup(func() {
		ctx := context.Background()
		for _, sql := range []string{"REASSIGN OWNED BY " + role + " TO CURRENT_USER", "DROP OWNED BY " + role, "DROP ROLE " + role} {
			_, err := pool.Exec(ctx, sql)
			for errors.Is(pgfence.Classify(err), tokens.ErrRetryable) { // roles are the whole server's, so tests can deadlock over them
				_, err = pool.Exec(ctx, sql)
			}
			if err != nil {
				t.Errorf("%s: %v", sql, err)
			}
		}
	})
	return role
}

// as returns the address of pool's database for another role.
func as(t *testing.T, pool *pgxpool.Pool, role string) string {
	t.Helper()
	u, err := url.Parse(pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("user", role)
	u.RawQuery = q.Encode()
	return u.String()
}

// code returns the SQLSTATE of err, "" where it has none.
func code(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}

// Case 27, for every way to write that SQL has.
func TestProtect_RefusesUnfencedWrites(t *testing.T) {
	t.Parallel()
	pool := install(t)
	mustExec(t, pool, "INSERT INTO account VALUES (43, 100)")
	app := protectAccount(t, pool)
	advanced := func(ctx context.Context, tx pgx.Tx, resource string) error {
		_, err := pgfence.New(tx).Advance(ctx, tx, claim(resource, 5, tokens.Renewable))
		return err
	}
	const merge = `MERGE INTO account a USING (VALUES (42, 1)) AS v (id, balance) ON a.id = v.id
		WHEN MATCHED THEN UPDATE SET balance = v.balance WHEN NOT MATCHED THEN INSERT (id, balance) VALUES (v.id, v.balance)`
	for _, tt := range []struct {
		name     string
		advanced string // the resource that the transaction has advanced
		sql      string
		code     string
	}{
		{"insert", "", "INSERT INTO account (id, balance) VALUES (44, 1)", "LF002"},
		{"update", "", "UPDATE account SET balance = 1 WHERE id = 42", "LF002"},
		{"delete", "", "DELETE FROM account WHERE id = 42", "LF002"},
		{"merge", "", merge, "LF002"},
		{"upsert", "", "INSERT INTO account (id, balance) VALUES (42, 1) ON CONFLICT (id) DO UPDATE SET balance = 1", "LF002"},
		{"wrong resource", "account/43", "UPDATE account SET balance = 1 WHERE id = 42", "LF002"},
		{"prefix of the resource", "account/4", "UPDATE account SET balance = 1 WHERE id = 42", "LF002"},
		{"one row of two", "account/42", "UPDATE account SET balance = 1", "LF002"},
		{"move to a key not advanced", "account/42", "UPDATE account SET id = 44 WHERE id = 42", "LF002"},
		{"move from a key not advanced", "account/44", "UPDATE account SET id = 44 WHERE id = 42", "LF002"},
		{"insert, advanced", "account/44", "INSERT INTO account (id, balance) VALUES (44, 1)", ""},
		{"update, advanced", "account/42", "UPDATE account SET balance = 1 WHERE id = 42", ""},
		{"delete, advanced", "account/42", "DELETE FROM account WHERE id = 42", ""},
		{"merge, advanced", "account/42", merge, ""},
		{"fence column", "account/42", "UPDATE account SET fence_token = 99 WHERE id = 42", "42501"},
		{"fence column at insert", "account/44", "INSERT INTO account (id, balance, fence_token) VALUES (44, 1, 99)", "42501"},
		{"truncate", "account/42", "TRUNCATE account", "42501"},
		{"guard table", "", "INSERT INTO fence.guard VALUES ('account/42', 9, pg_current_xact_id(), now())", "42501"},
		{"guard table, update", "", "UPDATE fence.guard SET token = 1", "42501"},
		{"guard table, delete", "", "DELETE FROM fence.guard", "42501"},
		{"floor", "", "UPDATE fence.floor SET min_token = 99", "42501"},
		{"repair", "", "SELECT fence.repair('account/42', 1)", "42501"},
		{"raise_floor", "", "SELECT fence.raise_floor(99)", "42501"},
		{"replica role", "", "SET session_replication_role = replica", "42501"},
		{"disable trigger", "", "ALTER TABLE account DISABLE TRIGGER ALL", "42501"},
		{"drop trigger", "", "DROP TRIGGER zz_fence ON account", "42501"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tx := begin(t, app, pgx.ReadCommitted)
			if tt.advanced != "" {
				if err := advanced(t.Context(), tx, tt.advanced); err != nil {
					t.Fatal(err)
				}
			}
			_, err := tx.Exec(t.Context(), tt.sql)
			if code(err) != tt.code {
				t.Errorf("%s: %v, want code %q", tt.sql, err, tt.code)
			}
			if tt.code != "" && !errors.Is(pgfence.Classify(err), tokens.ErrUnfenced) {
				t.Errorf("Classify: %v, want ErrUnfenced", pgfence.Classify(err))
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The superuser, who owns the table, is refused as well unless he switches the
// trigger off: migrations and repairs by hand do not slip through.
func TestProtect_RefusesItsOwner(t *testing.T) {
	t.Parallel()
	pool := install(t)
	protectAccount(t, pool)
	mustExec(t, pool, "CREATE TABLE child (account_id bigint REFERENCES account ON DELETE CASCADE, id bigint PRIMARY KEY)")
	mustExec(t, pool, "INSERT INTO child VALUES (42, 1)")
	if err := pgfence.Protect(t.Context(), pool, pgx.Identifier{"public", "child"}, "id", "child/"); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"UPDATE account SET balance = 1 WHERE id = 42",
		"UPDATE account SET fence_token = 99 WHERE id = 42",
		"TRUNCATE account CASCADE",
		"DELETE FROM child",
	} {
		if _, err := pool.Exec(t.Context(), sql); code(err) != pgfence.CodeUnfenced {
			t.Errorf("%s: %v, want LF002", sql, err)
		}
	}
	_, err := pool.CopyFrom(t.Context(), pgx.Identifier{"account"}, []string{"id", "balance"}, pgx.CopyFromRows([][]any{{int64(50), int64(1)}}))
	if code(err) != pgfence.CodeUnfenced {
		t.Errorf("COPY: %v, want LF002", err)
	}
	// A cascade writes to a table that its statement does not name.
	err = pgfence.WithFence(t.Context(), pool, claim("account/42", 5, tokens.OneShot), func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM account WHERE id = 42")
		return err
	})
	if !errors.Is(err, tokens.ErrUnfenced) {
		t.Errorf("cascade into a table not advanced: %v, want ErrUnfenced", err)
	}
}

// The proof is of this transaction: neither the one before nor a rival's counts,
// and the database stamps the token.
func TestProtect_ProofAndStamp(t *testing.T) {
	t.Parallel()
	pool := install(t)
	app := protectAccount(t, pool)
	stamp := func() int64 { return queryInt(t, pool, "SELECT fence_token FROM account WHERE id = 42") }
	if stamp() != 0 {
		t.Errorf("stamp %d of an old row, want 0", stamp())
	}
	if err := pgfence.WithFence(t.Context(), app, claim("account/42", 7, tokens.OneShot), add(1)); err != nil || stamp() != 7 {
		t.Fatalf("%v, stamp %d; want 7", err, stamp())
	}
	if _, err := app.Exec(t.Context(), "UPDATE account SET balance = 1 WHERE id = 42"); code(err) != pgfence.CodeUnfenced {
		t.Errorf("next transaction of the same session: %v, want LF002", err)
	}
	both := []tokens.Claim{claim("account/42", 8, tokens.OneShot), claim("account/44", 3, tokens.OneShot)}
	tx := begin(t, app, pgx.ReadCommitted)
	if _, err := pgfence.New(app).AdvanceAll(t.Context(), tx, both); err != nil {
		t.Fatal(err)
	}
	mustExec(t, tx, "UPDATE account SET id = 44 WHERE id = 42")
	if err := pgfence.Commit(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	if got := queryInt(t, pool, "SELECT fence_token FROM account WHERE id = 44"); got != 3 {
		t.Errorf("stamp %d of a row that moved, want the new key's token 3", got)
	}
}

// A later trigger could change the stamp; ours runs last among ordinary names.
func TestProtect_RunsAfterOtherTriggers(t *testing.T) {
	t.Parallel()
	pool := install(t)
	app := protectAccount(t, pool)
	mustExec(t, pool, `CREATE FUNCTION forge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.fence_token := 99; RETURN NEW; END $$`)
	mustExec(t, pool, `CREATE TRIGGER set_updated BEFORE UPDATE ON account FOR EACH ROW EXECUTE FUNCTION forge()`)
	if err := pgfence.WithFence(t.Context(), app, claim("account/42", 7, tokens.OneShot), add(1)); err != nil {
		t.Fatal(err)
	}
	if got := queryInt(t, pool, "SELECT fence_token FROM account WHERE id = 42"); got != 7 {
		t.Errorf("stamp %d, want 7", got)
	}
}

func TestProtect_Again(t *testing.T) {
	t.Parallel()
	pool := install(t)
	protectAccount(t, pool)
	if err := pgfence.Protect(t.Context(), pool, pgx.Identifier{"account"}, "id", "konto/"); err != nil {
		t.Fatal(err)
	}
	if err := pgfence.WithFence(t.Context(), pool, claim("account/42", 7, tokens.OneShot), add(1)); !errors.Is(err, tokens.ErrUnfenced) {
		t.Errorf("the old prefix: %v, want ErrUnfenced", err)
	}
	if err := pgfence.WithFence(t.Context(), pool, claim("konto/42", 7, tokens.OneShot), add(1)); err != nil {
		t.Errorf("the new prefix: %v", err)
	}
}

func TestProtect_OddNamesAndBadKeys(t *testing.T) {
	t.Parallel()
	pool := install(t)
	mustExec(t, pool, `CREATE SCHEMA "Odd ""x"; CREATE TABLE "Odd ""x"."T'a;b" ("Key'1" text PRIMARY KEY, loose text)`)
	table := pgx.Identifier{`Odd "x`, `T'a;b`}
	if err := pgfence.Protect(t.Context(), pool, table, `Key'1`, `it's/`); err != nil {
		t.Fatal(err)
	}
	err := pgfence.WithFence(t.Context(), pool, claim(`it's/ä "1"`, 7, tokens.OneShot), func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO "+table.Sanitize()+` ("Key'1") VALUES ($1)`, `ä "1"`)
		return err
	})
	if err != nil {
		t.Errorf("a key with quotes: %v", err)
	}
	for _, key := range []string{"loose", "missing", "ctid"} {
		if err := pgfence.Protect(t.Context(), pool, table, key, ""); !errors.Is(err, tokens.ErrInvalid) {
			t.Errorf("key %s, which may be NULL or is none: %v, want ErrInvalid", key, err)
		}
	}
	if err := pgfence.Protect(t.Context(), pool, pgx.Identifier{"missing"}, "id", ""); code(err) != "42P01" {
		t.Errorf("missing table: %v, want 42P01", err)
	}
}

// A partition is a way round the parent's triggers, and is closed.
func TestProtect_Partitions(t *testing.T) {
	t.Parallel()
	pool := install(t)
	mustExec(t, pool, "CREATE TABLE part (id bigint NOT NULL, v int) PARTITION BY HASH (id)")
	mustExec(t, pool, "CREATE TABLE part_0 PARTITION OF part FOR VALUES WITH (MODULUS 2, REMAINDER 0)")
	mustExec(t, pool, "CREATE TABLE part_1 PARTITION OF part FOR VALUES WITH (MODULUS 2, REMAINDER 1)")
	if err := pgfence.Protect(t.Context(), pool, pgx.Identifier{"part"}, "id", ""); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"INSERT INTO part VALUES (1, 1), (2, 1)", "INSERT INTO part_0 VALUES (16, 1)", "INSERT INTO part_1 VALUES (16, 1)"} {
		if _, err := pool.Exec(t.Context(), sql); code(err) != pgfence.CodeUnfenced && !strings.Contains(err.Error(), "partition constraint") {
			t.Errorf("%s: %v, want LF002", sql, err)
		}
	}
	tx := begin(t, pool, pgx.ReadCommitted)
	if _, err := pgfence.New(pool).AdvanceAll(t.Context(), tx, []tokens.Claim{claim("1", 5, 0), claim("2", 5, 0)}); err != nil {
		t.Fatal(err)
	}
	mustExec(t, tx, "INSERT INTO part VALUES (1, 1)")
	mustExec(t, tx, "UPDATE part SET id = 2")
}
