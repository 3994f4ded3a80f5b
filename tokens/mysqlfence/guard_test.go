//go:build unix

package mysqlfence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/mysqlfence"
	"github.com/fenced/fenced/tokens/mysqlfence/mysqltest"
)

func TestInstall(t *testing.T) {
	t.Parallel()
	db := install(t)
	advance(t, db, claim("a", 5, tokens.OneShot))
	if err := mysqlfence.Install(t.Context(), db); err != nil {
		t.Errorf("again: %v", err)
	}
	if got, err := mysqlfence.New(db).Peek(t.Context(), "a"); got != 5 || err != nil {
		t.Errorf("the fence is %d, %v; want 5 as before", got, err)
	}
	mustExec(t, db, mysqlfence.SchemaDown())
	mustExec(t, db, mysqlfence.Schema())

	other := mysqltest.New(t)
	mustExec(t, other, "CREATE TABLE fence_guard (id INT)")
	if err := mysqlfence.Install(t.Context(), other); err == nil || !strings.Contains(err.Error(), "another table") {
		t.Errorf("over another table: %v, want a refusal", err)
	}
}

// The table itself refuses what no guard would let through.
func TestSchema_ChecksBounds(t *testing.T) {
	t.Parallel()
	db := install(t)
	for _, values := range []string{"('a', 0, '')", "('a', -1, '')", "('a', 9007199254740992, '')", "('', 1, '')"} {
		if _, err := db.ExecContext(t.Context(), "INSERT INTO fence_guard (resource, token, unit) VALUES "+values); err == nil {
			t.Errorf("%s is taken", values)
		}
	}
}

// The application's role can neither forget a fence nor do without the rights.
func TestGuard_Rights(t *testing.T) {
	t.Parallel()
	db, config := installAt(t)
	name := "app_" + config.DBName
	mustExec(t, db, "CREATE USER "+name+"@localhost IDENTIFIED BY 'pw'")
	t.Cleanup(func() { _, _ = db.ExecContext(context.Background(), "DROP USER "+name+"@localhost") })
	mustExec(t, db, "GRANT SELECT, UPDATE ON account TO "+name+"@localhost")
	config = config.Clone()
	config.User, config.Passwd = name, "pw"
	app := mysqltest.Open(t, config)
	err := mysqlfence.WithFence(t.Context(), app, claim("account/42", 5, tokens.OneShot), add(5))
	if !errors.Is(err, tokens.ErrUnfenced) {
		t.Errorf("without rights: %v, want ErrUnfenced", err)
	}
	mustExec(t, db, "GRANT SELECT, INSERT, UPDATE ON fence_guard TO "+name+"@localhost")
	if err := mysqlfence.WithFence(t.Context(), app, claim("account/42", 5, tokens.OneShot), add(5)); err != nil {
		t.Errorf("with the rights of the documentation: %v", err)
	}
	if _, err := app.ExecContext(t.Context(), "DELETE FROM fence_guard"); err == nil {
		t.Error("the application can forget fences")
	}
}

// An error of the guard ends the transaction: neither a write nor a commit follows.
func TestGuard_RefusalEndsTheTransaction(t *testing.T) {
	t.Parallel()
	db := install(t)
	advance(t, db, claim("a", 6, tokens.OneShot))
	guard := mysqlfence.New(db)
	for name, claims := range map[string][]tokens.Claim{
		"one":     {claim("a", 5, tokens.Renewable)},
		"several": {claim("z", 5, tokens.Renewable), claim("a", 5, tokens.Renewable)},
	} {
		tx := begin(t, db, sql.LevelDefault)
		mustExec(t, tx, "UPDATE account SET balance = 0 WHERE id = 42")
		ds, err := guard.AdvanceAll(t.Context(), tx, claims)
		if !errors.Is(err, tokens.ErrStale) || ds[len(ds)-1].Current != 6 || len(ds) > 1 && ds[0] != (tokens.Decision{}) {
			t.Errorf("%s: %+v, %v; want stale at 6 alone", name, ds, err)
		}
		if _, err := tx.ExecContext(t.Context(), "UPDATE account SET balance = 0 WHERE id = 42"); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("%s: a write after it: %v, want ErrTxDone", name, err)
		}
		if err := mysqlfence.Commit(t.Context(), tx); !errors.Is(err, sql.ErrTxDone) || errors.Is(err, tokens.ErrUnknownOutcome) {
			t.Errorf("%s: commit after it: %v, want ErrTxDone", name, err)
		}
	}
	if balance(t, db) != 100 {
		t.Errorf("balance %d, want 100", balance(t, db))
	}
}

// Case 16: what each isolation level answers. The fence is read with a lock, so a
// snapshot from before changes no answer.
func TestGuard_IsolationLevels(t *testing.T) {
	t.Parallel()
	db := install(t)
	guard := mysqlfence.New(db)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		for mine, want := range map[tokens.Token]error{7: nil, 6: tokens.ErrDuplicate, 5: tokens.ErrStale} {
			resource := level.String() + mine.String()
			advance(t, db, claim(resource, 4, tokens.OneShot))
			tx := begin(t, db, level)
			_ = queryInt(t, tx, "SELECT COUNT(*) FROM account WHERE id = 1") // takes the snapshot
			advance(t, db, claim(resource, 6, tokens.OneShot))
			_, err := guard.Advance(t.Context(), tx, claim(resource, mine, tokens.OneShot))
			if !errors.Is(err, want) {
				t.Errorf("%s, snapshot before a committed 6, token %d: %v, want %v", level, mine, err, want)
			}
			_ = tx.Rollback()
		}
	}
}

// The text of statements depends on no setting of the connection.
func TestGuard_DriverSettings(t *testing.T) {
	t.Parallel()
	_, config := installAt(t)
	for name, set := range map[string]func(c *mysql.Config){
		"clientFoundRows":   func(c *mysql.Config) { c.ClientFoundRows = true },
		"interpolateParams": func(c *mysql.Config) { c.InterpolateParams = true },
		"latin1":            func(c *mysql.Config) { c.Collation = "latin1_swedish_ci" },
		"no escapes":        func(c *mysql.Config) { c.Params = map[string]string{"sql_mode": "'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'"} },
	} {
		c := config.Clone()
		set(c)
		db := mysqltest.Open(t, c)
		resource := "ä'\\\"" + name
		advance(t, db, claim(resource, 5, tokens.OneShot))
		for _, again := range []struct {
			t    tokens.Token
			mode tokens.Mode
			want error
		}{{5, tokens.Renewable, nil}, {5, tokens.OneShot, tokens.ErrDuplicate}, {4, tokens.Renewable, tokens.ErrStale}} {
			err := mysqlfence.WithFence(t.Context(), db, claim(resource, again.t, again.mode), func(context.Context, *mysqlfence.Tx) error { return nil })
			if !errors.Is(err, again.want) {
				t.Errorf("%s: %s token %d: %v, want %v", name, again.mode, again.t, err, again.want)
			}
		}
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for number, want := range map[uint16]error{
		1142: tokens.ErrUnfenced, 1205: tokens.ErrBusy, 1969: tokens.ErrBusy, 3024: tokens.ErrBusy,
		1213: tokens.ErrRetryable, 1020: tokens.ErrRetryable, 1290: tokens.ErrRetryable, 4031: tokens.ErrRetryable,
	} {
		in := &mysql.MySQLError{Number: number}
		if err := mysqlfence.Classify(in); !errors.Is(err, want) || !errors.Is(err, in) {
			t.Errorf("%d: %v, want %v around it", number, err, want)
		}
	}
	for _, in := range []error{nil, context.Canceled, &mysql.MySQLError{Number: 1062}, tokens.ErrStale, sql.ErrNoRows} {
		if err := mysqlfence.Classify(in); err != in {
			t.Errorf("%v became %v", in, err)
		}
	}
	for _, in := range []error{mysql.ErrInvalidConn, driver.ErrBadConn} {
		if err := mysqlfence.Classify(in); !errors.Is(err, tokens.ErrRetryable) {
			t.Errorf("%v became %v, want ErrRetryable", in, err)
		}
	}
}
