//go:build unix

package mysqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/mysqlfence"
	"github.com/fenced/fenced/tokens/mysqlfence/mysqltest"
)

func TestWithFence(t *testing.T) {
	t.Parallel()
	db := install(t)
	if err := mysqlfence.WithFence(t.Context(), db, claim("account/42", 34, tokens.Renewable), add(10)); err != nil {
		t.Fatal(err)
	}
	err := mysqlfence.WithFence(t.Context(), db, claim("account/42", 33, tokens.Renewable), add(1000))
	want := tokens.StaleError{Resource: "account/42", Presented: 33, Current: 34}
	if stale, ok := errors.AsType[*tokens.StaleError](err); !ok || *stale != want {
		t.Errorf("an older token: %v, want %v", err, &want)
	}
	err = mysqlfence.WithFence(t.Context(), db, claim("account/42", 34, tokens.OneShot), add(1000))
	if !errors.Is(err, tokens.ErrDuplicate) {
		t.Errorf("the same token, one-shot: %v, want ErrDuplicate", err)
	}
	if err := mysqlfence.WithFence(t.Context(), db, claim("account/42", 0, tokens.OneShot), add(1000)); !errors.Is(err, tokens.ErrInvalid) {
		t.Errorf("token 0: %v, want ErrInvalid", err)
	}
	if got := balance(t, db); got != 110 {
		t.Errorf("balance %d, want 110", got)
	}
}

// What MySQL undid for reasons of its own is done again, as a whole, with the same
// token in one-shot mode, also where fn drops the error.
func TestWithFence_RepeatsWhatTheServerUndid(t *testing.T) {
	t.Parallel()
	for _, number := range []int{1213, 1205, 1020, 1317} {
		for _, dropped := range []bool{false, true} {
			t.Run(fmt.Sprint(number, " dropped ", dropped), func(t *testing.T) {
				t.Parallel()
				db := install(t)
				calls := 0
				err := mysqlfence.WithFence(t.Context(), db, claim("account/42", 7, tokens.OneShot), func(ctx context.Context, tx *mysqlfence.Tx) error {
					calls++
					if err := add(5)(ctx, tx); err != nil || calls > 2 {
						return err
					}
					_, err := tx.ExecContext(ctx, fmt.Sprintf("SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = %d, MESSAGE_TEXT = 'by the test'", number))
					if dropped {
						return nil
					}
					return err
				})
				if err != nil || calls != 3 || balance(t, db) != 105 {
					t.Errorf("%v after %d calls, balance %d; want success after 3 and 105", err, calls, balance(t, db))
				}
			})
		}
	}
}

// A real deadlock ends the transaction on the server. What fn writes after it,
// having dropped the error, must not be committed.
func TestWithFence_Deadlock(t *testing.T) {
	t.Parallel()
	db := install(t)
	mustExec(t, db, "INSERT INTO account VALUES (1, 0), (2, 0)")
	// InnoDB undoes the one of the two that has written less.
	mustExec(t, db, "CREATE TABLE ballast (n INT) ENGINE=InnoDB")
	rival := begin(t, db, sql.LevelReadCommitted)
	mustExec(t, rival, "INSERT INTO ballast VALUES (1),(2),(3),(4),(5),(6),(7),(8),(9)")
	mustExec(t, rival, "UPDATE account SET balance = 1 WHERE id = 2")
	calls := 0
	err := mysqlfence.WithFence(t.Context(), db, claim("account/42", 7, tokens.OneShot), func(ctx context.Context, tx *mysqlfence.Tx) error {
		calls++
		if calls > 1 {
			return add(5)(ctx, tx)
		}
		if _, err := tx.ExecContext(ctx, "UPDATE account SET balance = 1 WHERE id = 1"); err != nil {
			return err
		}
		done := make(chan error, 1)
		go func() {
			_, err := rival.ExecContext(ctx, "UPDATE account SET balance = 1 WHERE id = 1")
			done <- err
		}()
		eventually(t, func() bool { n, err := waiting(ctx, db); return err == nil && n == 1 })
		var b int64
		err := tx.QueryRowContext(ctx, "SELECT balance FROM account WHERE id = 2 FOR UPDATE").Scan(&b)
		if number := numberOf(err); number != 1213 {
			t.Errorf("error %v, want 1213", err)
		}
		if err := add(1000)(ctx, tx); !errors.Is(err, tokens.ErrRetryable) {
			t.Errorf("a statement after the deadlock: %v, want the deadlock again", err)
		}
		return errors.Join(<-done, rival.Rollback())
	})
	if err != nil || calls != 2 || balance(t, db) != 105 {
		t.Errorf("%v after %d calls, balance %d; want success after 2 and 105", err, calls, balance(t, db))
	}
}

func numberOf(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// 1062 and the like are the application's to understand, and do not end the unit.
func TestWithFence_LeavesOtherErrorsAlone(t *testing.T) {
	t.Parallel()
	db := install(t)
	calls := 0
	insert := func(ctx context.Context, tx *mysqlfence.Tx) error {
		calls++
		_, err := tx.ExecContext(ctx, "INSERT INTO account VALUES (42, 0)")
		return err
	}
	err := mysqlfence.WithFence(t.Context(), db, claim("account/42", 7, tokens.OneShot), insert)
	if numberOf(err) != 1062 || calls != 1 || errors.Is(err, tokens.ErrRetryable) {
		t.Errorf("%v after %d calls, want 1062 after one", err, calls)
	}
	err = mysqlfence.WithFence(t.Context(), db, claim("account/42", 7, tokens.OneShot), func(ctx context.Context, tx *mysqlfence.Tx) error {
		if err := insert(ctx, tx); numberOf(err) != 1062 {
			return err
		}
		return add(5)(ctx, tx)
	})
	if err != nil || balance(t, db) != 105 {
		t.Errorf("handled inside: %v, balance %d; want success and 105", err, balance(t, db))
	}
}

// The budget is the lease. Case 17: when it runs out, the answer is not Stale.
func TestWithFence_BudgetRunsOut(t *testing.T) {
	t.Parallel()
	db := install(t)
	holder := begin(t, db, sql.LevelReadCommitted)
	if _, err := mysqlfence.New(db).Advance(t.Context(), holder, claim("account/42", 5, tokens.OneShot)); err != nil {
		t.Fatal(err)
	}
	for _, left := range []time.Duration{300 * time.Millisecond, 1500 * time.Millisecond} {
		c := claim("account/42", 7, tokens.OneShot)
		c.Deadline = time.Now().Add(left)
		err := mysqlfence.WithFence(t.Context(), db, c, add(5))
		if !errors.Is(err, tokens.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, tokens.ErrStale) {
			t.Errorf("behind an open unit with %v left: %v, want ErrBusy and DeadlineExceeded", left, err)
		}
	}
	c := claim("account/43", 7, tokens.OneShot)
	c.Deadline = time.Now().Add(time.Second)
	err := mysqlfence.WithFence(t.Context(), db, c, func(ctx context.Context, tx *mysqlfence.Tx) error {
		_, err := tx.ExecContext(ctx, "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'by the test'")
		return err
	})
	// The last try is cut wherever the time ran out: undone, or before its turn.
	undone := errors.Is(err, tokens.ErrRetryable) || errors.Is(err, tokens.ErrBusy)
	if !undone || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, tokens.ErrStale) {
		t.Errorf("always undone: %v, want ErrRetryable or ErrBusy, and DeadlineExceeded", err)
	}
}

// A claim waits longer than the server's piece of waiting, and gets its turn.
func TestGuard_Advance_WaitsOn(t *testing.T) {
	t.Parallel()
	db := install(t)
	guard := mysqlfence.New(db)
	holder := begin(t, db, sql.LevelReadCommitted)
	if _, err := guard.Advance(t.Context(), holder, claim("account/42", 5, tokens.OneShot)); err != nil {
		t.Fatal(err)
	}
	release := time.AfterFunc(2500*time.Millisecond, func() { _ = mysqlfence.Commit(context.Background(), holder) })
	defer release.Stop()
	next := begin(t, db, sql.LevelReadCommitted)
	mustExec(t, next, "INSERT INTO account VALUES (1, 1)") // is still there after the waits
	if _, err := guard.Advance(t.Context(), next, claim("account/42", 6, tokens.OneShot)); err != nil {
		t.Fatal(err)
	}
	if err := mysqlfence.Commit(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if got := queryInt(t, db, "SELECT COUNT(*) FROM account"); got != 2 {
		t.Errorf("%d accounts, want 2", got)
	}
}

func TestWithFence_LeaseOver(t *testing.T) {
	t.Parallel()
	db := install(t)
	c := claim("account/42", 7, tokens.OneShot)
	c.Deadline = time.Now().Add(-time.Second)
	if err := mysqlfence.WithFence(t.Context(), db, c, add(5)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("lease over before: %v, want DeadlineExceeded", err)
	}
	c.Deadline = time.Now().Add(300 * time.Millisecond)
	err := mysqlfence.WithFence(t.Context(), db, c, func(ctx context.Context, tx *mysqlfence.Tx) error {
		if err := add(5)(ctx, tx); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, context.DeadlineExceeded) || balance(t, db) != 100 {
		t.Errorf("lease over meanwhile: %v, balance %d; want DeadlineExceeded and 100", err, balance(t, db))
	}
}

func TestWithFence_ContextEnds(t *testing.T) {
	t.Parallel()
	db := install(t)
	lost := errors.New("the hold is lost")
	for _, look := range []bool{false, true} {
		ctx, cancel := context.WithCancelCause(t.Context())
		err := mysqlfence.WithFence(ctx, db, claim("account/42", 7, tokens.OneShot), func(ctx context.Context, tx *mysqlfence.Tx) error {
			if err := add(5)(ctx, tx); err != nil {
				return err
			}
			cancel(lost)
			if look {
				return add(5)(ctx, tx)
			}
			return nil // as code that does not look
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, lost) || balance(t, db) != 100 {
			t.Errorf("look %t: %v, balance %d; want Canceled with its cause, and 100", look, err, balance(t, db))
		}
	}
}

// An error of the application's is not lost behind the end of ctx.
func TestWithFence_FunctionFailsAsContextEnds(t *testing.T) {
	t.Parallel()
	db := install(t)
	odd := errors.New("odd")
	ctx, cancel := context.WithCancel(t.Context())
	err := mysqlfence.WithFence(ctx, db, claim("account/42", 7, tokens.OneShot), func(context.Context, *mysqlfence.Tx) error {
		cancel()
		return odd
	})
	if !errors.Is(err, odd) {
		t.Errorf("%v, want the function's error", err)
	}
}

// A deadline beyond what the server can count to is as good as one far away, also where
// its sql_mode makes an error of each warning.
func TestWithFence_DeadlineFarAway(t *testing.T) {
	t.Parallel()
	_, config := installAt(t)
	config = config.Clone()
	config.Params = map[string]string{"sql_mode": "'TRADITIONAL'"}
	db := mysqltest.Open(t, config)
	for _, years := range []int{2, 100, 1000} {
		c := claim("account/42", tokens.Token(years), tokens.OneShot)
		c.Deadline = time.Now().AddDate(years, 0, 0)
		if err := mysqlfence.WithFence(t.Context(), db, c, add(5)); err != nil {
			t.Errorf("%d years: %v", years, err)
		}
	}
}

func TestWithFence_RefusesToNest(t *testing.T) {
	t.Parallel()
	db := install(t)
	err := mysqlfence.WithFence(t.Context(), db, claim("account/42", 7, tokens.OneShot), func(ctx context.Context, _ *mysqlfence.Tx) error {
		return mysqlfence.WithFence(ctx, db, claim("account/43", 7, tokens.OneShot), add(1))
	})
	if !errors.Is(err, tokens.ErrInvalid) {
		t.Errorf("inside another: %v, want ErrInvalid", err)
	}
}

// Case 18 for WithFence: the answer to COMMIT is lost. The outcome is unknown, it
// is not repeated, and a repeat by the caller finds what happened.
func TestWithFence_UnknownOutcome(t *testing.T) {
	t.Parallel()
	db, config := installAt(t)
	cut := &cutter{}
	behind := cut.behind(t, config)
	c := claim("account/42", 7, tokens.OneShot)
	calls := 0
	write := func(ctx context.Context, tx *mysqlfence.Tx) error {
		calls++
		return add(5)(ctx, tx)
	}
	// fn cannot lose the answer of COMMIT alone: there is a statement in between.
	tx := begin(t, behind, sql.LevelReadCommitted)
	if _, err := mysqlfence.New(behind).Advance(t.Context(), tx, c); err != nil {
		t.Fatal(err)
	}
	mustExec(t, tx, "UPDATE account SET balance = balance + 5 WHERE id = 42")
	cut.lose.Store(true)
	if err := mysqlfence.Commit(t.Context(), tx); !errors.Is(err, tokens.ErrUnknownOutcome) {
		t.Fatalf("%v, want ErrUnknownOutcome", err)
	}
	cut.lose.Store(false)
	if err := mysqlfence.WithFence(t.Context(), behind, c, write); !errors.Is(err, tokens.ErrDuplicate) || calls != 0 {
		t.Errorf("repeat: %v after %d calls, want ErrDuplicate: the first COMMIT took effect", err, calls)
	}
	if balance(t, db) != 105 {
		t.Errorf("balance %d, want 105", balance(t, db))
	}
}

// The connection goes back to the pool as it came, after success and after failure.
func TestWithFence_PutsTheSessionBack(t *testing.T) {
	t.Parallel()
	db := install(t)
	db.SetMaxOpenConns(1)
	mustExec(t, db, "SET SESSION wait_timeout = 777, SESSION net_write_timeout = 77, SESSION innodb_lock_wait_timeout = 7")
	id := queryInt(t, db, "SELECT CONNECTION_ID()")
	odd := errors.New("odd")
	for _, want := range []error{nil, odd} {
		c := claim("account/42", 7, tokens.Renewable)
		c.Deadline = time.Now().Add(20 * time.Second)
		err := mysqlfence.WithFence(t.Context(), db, c, func(ctx context.Context, tx *mysqlfence.Tx) error {
			var wait, write, lock, auto int64
			err := tx.QueryRowContext(ctx, "SELECT @@wait_timeout, @@net_write_timeout, @@innodb_lock_wait_timeout, @@autocommit").
				Scan(&wait, &write, &lock, &auto)
			if wait < 10 || wait > 20 || write != wait || lock != wait || auto != 0 {
				t.Errorf("inside: %d, %d, %d, %d; want what is left of 20 s, and 0", wait, write, lock, auto)
			}
			return errors.Join(err, want)
		})
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if n := queryInt(t, db, "SELECT @@wait_timeout * 1000000 + @@net_write_timeout * 1000 + @@innodb_lock_wait_timeout * 10 + @@autocommit"); n != 777_077_071 {
			t.Errorf("after %v the settings are %d, want 777077071", want, n)
		}
		if now := queryInt(t, db, "SELECT CONNECTION_ID()"); now != id {
			t.Errorf("after %v it is another connection", want)
		}
	}
}

// Many workers with tokens of their own add to one account. Whatever was accepted
// is in the balance once, and nothing else is.
func TestWithFence_NoLostUpdate(t *testing.T) {
	t.Parallel()
	db := install(t)
	var accepted atomic.Int64
	errs := make(chan error, 8)
	for worker := range 8 {
		go func() {
			for step := range 25 {
				c := claim("account/42", tokens.Token(1+step*8+worker), tokens.OneShot)
				err := mysqlfence.WithFence(t.Context(), db, c, func(ctx context.Context, tx *mysqlfence.Tx) error {
					var b int64 // read, then write: it would lose updates without the fence's lock
					if err := tx.QueryRowContext(ctx, "SELECT balance FROM account WHERE id = 42").Scan(&b); err != nil {
						return err
					}
					_, err := tx.ExecContext(ctx, "UPDATE account SET balance = ? WHERE id = 42", b+1)
					return err
				})
				if err == nil {
					accepted.Add(1)
				} else if !errors.Is(err, tokens.ErrStale) {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := balance(t, db); accepted.Load() == 0 || got != 100+accepted.Load() {
		t.Errorf("balance %d after %d accepted writes", got, accepted.Load())
	}
}
