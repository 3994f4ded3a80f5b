package pgfence_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

func TestInstall_AtTheSameTimeAndAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	errs := make(chan error)
	for range 4 {
		go func() { errs <- pgfence.Install(t.Context(), pool) }()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	advance(t, pool, claim("a", 7, tokens.OneShot))
	if err := pgfence.Install(t.Context(), pool); err != nil {
		t.Errorf("again: %v", err)
	}
	if fence, err := pgfence.New(pool).Peek(t.Context(), "a"); err != nil || fence != 7 {
		t.Errorf("after installing again: fence %d, %v; want 7", fence, err)
	}
}

func TestInstall_ForeignSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	mustExec(t, pool, "CREATE SCHEMA fence")
	if err := pgfence.Install(t.Context(), pool); err == nil || !strings.Contains(err.Error(), "another schema of that name") {
		t.Errorf("Install over a schema of somebody else's: %v, want a refusal", err)
	}
}

// A managed database gives no superuser: CREATEROLE and CREATE must do, whether
// or not another database of the server has made the roles.
func TestInstall_WithoutSuperuser(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	role := newRole(t, pool, "LOGIN CREATEROLE")
	mustExec(t, pool, "GRANT CREATE ON DATABASE "+pool.Config().ConnConfig.Database+" TO "+role)
	installer := pgtest.NewPool(t, as(t, pool, role))
	if err := pgfence.Install(t.Context(), installer); err != nil {
		t.Fatal(err)
	}
	owner := ""
	err := pool.QueryRow(t.Context(), "SELECT tableowner FROM pg_tables WHERE schemaname = 'fence' AND tablename = 'guard'").Scan(&owner)
	if err != nil || owner != pgfence.OwnerRole {
		t.Errorf("owner of the guard table %q, %v; want %s", owner, err, pgfence.OwnerRole)
	}
	// The installer has become a member of the owner, so it may advance and repair.
	advance(t, installer, claim("a", 7, tokens.OneShot))
	if was, err := pgfence.Repair(t.Context(), installer, "a", 5); was != 7 || err != nil {
		t.Errorf("repair by the installer: %d, %v; want 7", was, err)
	}
}

func TestSchemaDown(t *testing.T) {
	t.Parallel()
	pool := install(t)
	protectAccount(t, pool)
	mustExec(t, pool, pgfence.SchemaDown())
	mustExec(t, pool, "UPDATE account SET balance = 1 WHERE id = 42")
	if err := pgfence.Install(t.Context(), pool); err != nil {
		t.Errorf("install after down: %v", err)
	}
	if fence, err := pgfence.New(pool).Peek(t.Context(), "account/42"); fence != 0 || err != nil {
		t.Errorf("fence %d, %v; want none", fence, err)
	}
}

// Nobody can lock all writers out with a token that no lock will ever reach, not
// even the owner of the tables, and not past the functions.
func TestSchema_CannotBePoisoned(t *testing.T) {
	t.Parallel()
	pool := install(t)
	protectAccount(t, pool)
	for _, tt := range []struct{ sql, code string }{
		{"SELECT fence.advance('a', 9007199254740992)", "LF003"},
		{"SELECT fence.advance('a', 9223372036854775807, false)", "LF003"},
		{"SELECT fence.advance('a', 0)", "LF003"},
		{"SELECT fence.advance('a', -1)", "LF003"},
		{"SELECT fence.advance('a', NULL)", "LF003"},
		{"SELECT fence.advance(NULL, 1)", "LF003"},
		{"SELECT fence.advance('', 1)", "LF003"},
		{"SELECT fence.advance(repeat('x', 1025), 1)", "LF003"},
		{"SELECT fence.advance('a', 1, NULL)", "LF003"},
		{"SELECT fence.advance_all(ARRAY['a', NULL], ARRAY[1, 1], ARRAY[true, true])", "LF003"},
		{"SELECT fence.advance_all(ARRAY['a', 'b'], ARRAY[1], ARRAY[true, true])", "LF003"},
		{"SELECT fence.advance_all(ARRAY['a', 'a'], ARRAY[1, 2], ARRAY[true, true])", "LF003"},
		{"SELECT fence.repair('a', 9007199254740992)", "LF003"},
		{"SELECT fence.raise_floor(9007199254740992)", "LF003"},
		{"SELECT fence.raise_floor(NULL)", "LF003"},
		{"INSERT INTO fence.guard VALUES ('a', 9007199254740992, '1', now())", "23514"},
		{"INSERT INTO fence.guard VALUES ('a', 0, '1', now())", "23514"},
		{"INSERT INTO fence.guard VALUES ('', 1, '1', now())", "23514"},
		{"UPDATE fence.floor SET min_token = 9007199254740992", "23514"},
		{"INSERT INTO fence.floor VALUES (false, 1)", "23514"},
		{"INSERT INTO fence.floor VALUES (true, 1)", "23505"},
		{"ALTER TABLE account DISABLE TRIGGER ALL; UPDATE account SET fence_token = 9007199254740992", "23514"},
	} {
		if _, err := pool.Exec(t.Context(), tt.sql); code(err) != tt.code {
			t.Errorf("%s: %v, want %s", tt.sql, err, tt.code)
		}
	}
	if n := queryInt(t, pool, "SELECT count(*) FROM fence.guard"); n != 0 {
		t.Errorf("%d fences were made", n)
	}
}

// A floor that is gone must not let everything through.
func TestSchema_WithoutFloorNothingPasses(t *testing.T) {
	t.Parallel()
	pool := install(t)
	mustExec(t, pool, "DELETE FROM fence.floor")
	err := pgfence.WithFence(t.Context(), pool, claim("a", 1, tokens.OneShot), add(1))
	if code(err) != "P0002" || errors.Is(err, tokens.ErrStale) {
		t.Errorf("%v, want P0002", err)
	}
}

// A role that was not granted fence_writer is told so, not called stale.
func TestGuard_WithoutRights(t *testing.T) {
	t.Parallel()
	pool := install(t)
	stranger := pgtest.NewPool(t, as(t, pool, newRole(t, pool, "LOGIN")))
	tx := begin(t, stranger, pgx.ReadCommitted)
	if _, err := pgfence.New(stranger).Advance(t.Context(), tx, claim("a", 1, 0)); !errors.Is(err, tokens.ErrUnfenced) || code(err) != "42501" {
		t.Errorf("Advance: %v, want ErrUnfenced from 42501", err)
	}
	if _, err := pgfence.New(stranger).Peek(t.Context(), "a"); !errors.Is(err, tokens.ErrUnfenced) {
		t.Errorf("Peek: %v, want ErrUnfenced", err)
	}
}
