//go:build unix

package mysqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/mysqlfence"
)

// ends are statements after which the transaction that advanced is over.
var ends = map[string]string{
	"commit":             "COMMIT",
	"commit and chain":   "COMMIT AND CHAIN",
	"rollback":           "ROLLBACK",
	"rollback and chain": "ROLLBACK AND CHAIN",
	"begin":              "BEGIN",
	"start transaction":  "START TRANSACTION",
	"autocommit":         "SET autocommit = 1",
	"create table":       "CREATE TABLE made (id INT)",
	"create table again": "CREATE TABLE account (id INT)", // commits, and fails
	"alter table":        "ALTER TABLE account ADD COLUMN note INT",
	"truncate table":     "TRUNCATE TABLE other",
	"analyze table":      "ANALYZE TABLE account",
	"procedure":          "CALL commits()",
	"by command":         "EXECUTE IMMEDIATE 'COMMIT'",
}

func installForEnds(t *testing.T) *sql.DB {
	t.Helper()
	db := install(t)
	mustExec(t, db, "CREATE TABLE other (id INT PRIMARY KEY, n INT) ENGINE=InnoDB")
	mustExec(t, db, "CREATE PROCEDURE commits() COMMIT")
	mustExec(t, db, "CREATE PROCEDURE writes() INSERT INTO other VALUES (9, 9)")
	mustExec(t, db, "CREATE TRIGGER follows AFTER UPDATE ON account FOR EACH ROW INSERT INTO other VALUES (NEW.balance, 0)")
	return db
}

// A function that ends the transaction is told so, whether or not a rival came in
// between, and what it writes afterwards is not committed. What was committed with
// the end stays.
func TestWithFence_TransactionEnded(t *testing.T) {
	t.Parallel()
	for name, end := range ends {
		for _, rival := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " rival ", rival), func(t *testing.T) {
				t.Parallel()
				db := installForEnds(t)
				calls := 0
				err := mysqlfence.WithFence(t.Context(), db, claim("account/42", 7, tokens.Renewable), func(ctx context.Context, tx *mysqlfence.Tx) error {
					calls++
					_, err := tx.ExecContext(ctx, end)
					if err != nil && name != "create table again" {
						return err
					}
					if rival && name[:4] != "roll" {
						advance(t, db, claim("account/42", 8, tokens.Renewable))
					}
					if name == "autocommit" {
						return nil
					}
					return add(1000)(ctx, tx)
				})
				if !errors.Is(err, tokens.ErrUnfenced) || calls != 1 || balance(t, db) != 100 {
					t.Errorf("%v after %d calls, balance %d; want ErrUnfenced after one, and 100", err, calls, balance(t, db))
				}
			})
		}
	}
}

// What is written before a statement that commits, or after autocommit is on, is
// committed without the fence. The error says so, and cannot take it back.
func TestWithFence_TransactionEnded_WhatStays(t *testing.T) {
	t.Parallel()
	for name, statements := range map[string][]string{
		"before": {"UPDATE account SET balance = 20 WHERE id = 42", "COMMIT"},
		"after":  {"SET autocommit = 1", "UPDATE account SET balance = 20 WHERE id = 42"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := install(t)
			err := mysqlfence.WithFence(t.Context(), db, claim("account/42", 7, tokens.Renewable), execute(statements...))
			if !errors.Is(err, tokens.ErrUnfenced) || balance(t, db) != 20 {
				t.Errorf("%v, balance %d; want ErrUnfenced and 20", err, balance(t, db))
			}
		})
	}
}

// A deadlock whose error WithFence does not see, because it came from a prepared
// statement and fn dropped it, has ended the transaction as well.
func TestWithFence_TransactionEnded_DeadlockUnseen(t *testing.T) {
	t.Parallel()
	db := install(t)
	mustExec(t, db, "INSERT INTO account VALUES (1, 0), (2, 0)")
	// InnoDB undoes the one of the two that has written less.
	mustExec(t, db, "CREATE TABLE ballast (n INT) ENGINE=InnoDB")
	rival := begin(t, db, sql.LevelReadCommitted)
	mustExec(t, rival, "INSERT INTO ballast VALUES (1),(2),(3),(4),(5),(6),(7),(8),(9)")
	mustExec(t, rival, "UPDATE account SET balance = 1 WHERE id = 2")
	err := mysqlfence.WithFence(t.Context(), db, claim("account/42", 7, tokens.OneShot), func(ctx context.Context, tx *mysqlfence.Tx) error {
		write, err := tx.PrepareContext(ctx, "UPDATE account SET balance = balance + 1000 WHERE id = ?")
		if err != nil {
			return err
		}
		defer write.Close()
		if _, err := write.ExecContext(ctx, 1); err != nil {
			return err
		}
		done := make(chan error, 1)
		go func() {
			_, err := rival.ExecContext(ctx, "UPDATE account SET balance = 1 WHERE id = 1")
			done <- err
		}()
		eventually(t, func() bool { n, err := waiting(ctx, db); return err == nil && n == 1 })
		if _, err := write.ExecContext(ctx, 2); numberOf(err) != 1213 {
			t.Errorf("error %v, want 1213", err)
		}
		_, err = write.ExecContext(ctx, 42)
		return errors.Join(err, <-done)
	})
	if !errors.Is(err, tokens.ErrUnfenced) || balance(t, db) != 100 {
		t.Errorf("%v, balance %d; want ErrUnfenced and 100", err, balance(t, db))
	}
}

// Whatever leaves the transaction open is the function's own affair.
func TestWithFence_TransactionNotEnded(t *testing.T) {
	t.Parallel()
	for name, statements := range map[string][]string{
		"savepoint":            {"SAVEPOINT s", "UPDATE account SET balance = 0 WHERE id = 42", "ROLLBACK TO s"},
		"savepoints released":  {"SAVEPOINT a", "SAVEPOINT b", "RELEASE SAVEPOINT a", "SAVEPOINT a", "RELEASE SAVEPOINT a"},
		"temporary table":      {"CREATE TEMPORARY TABLE scratch (id INT)", "INSERT INTO scratch VALUES (1)", "DROP TEMPORARY TABLE scratch"},
		"autocommit as it was": {"SET autocommit = 0"},
		"procedure":            {"CALL writes()"},
		"nothing":              nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := installForEnds(t)
			err := mysqlfence.WithFence(t.Context(), db, claim("account/42", 7, tokens.Renewable), func(ctx context.Context, tx *mysqlfence.Tx) error {
				if err := execute(statements...)(ctx, tx); err != nil {
					return err
				}
				return add(1)(ctx, tx)
			})
			if err != nil || balance(t, db) != 101 {
				t.Errorf("%v, balance %d; want success and 101", err, balance(t, db))
			}
		})
	}
}

func execute(statements ...string) func(context.Context, *mysqlfence.Tx) error {
	return func(ctx context.Context, tx *mysqlfence.Tx) error {
		for _, statement := range statements {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	}
}

// A function that locks tables ends the transaction, too, and leaves no lock behind,
// however it returns.
func TestWithFence_LeavesNoTableLocked(t *testing.T) {
	t.Parallel()
	odd := errors.New("odd")
	for name, end := range map[string]struct {
		how  func() error
		want error
	}{
		"returns":    {func() error { return nil }, tokens.ErrUnfenced},
		"with error": {func() error { return odd }, odd},
		"panics":     {func() error { panic(odd) }, odd},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := installForEnds(t)
			db.SetMaxOpenConns(1)
			err := recovered(func() error {
				return mysqlfence.WithFence(t.Context(), db, claim("account/42", 7, tokens.Renewable), func(ctx context.Context, tx *mysqlfence.Tx) error {
					if err := execute("LOCK TABLES other WRITE")(ctx, tx); err != nil {
						return err
					}
					return end.how()
				})
			})
			if !errors.Is(err, end.want) {
				t.Errorf("%v, want %v", err, end.want)
			}
			mustExec(t, db, "SET SESSION lock_wait_timeout = 5")
			mustExec(t, db, "INSERT INTO other VALUES (1, 1)")
			mustExec(t, db, "INSERT INTO account VALUES (7, 7)") // refused on a connection that has locked others
		})
	}
}

// recovered returns what f returns, or the error with which it panics.
func recovered(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = p.(error)
		}
	}()
	return f()
}
