package pgfence_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

func TestWithFence_CommitsFenceAndWriteTogether(t *testing.T) {
	t.Parallel()
	pool := install(t)
	if err := pgfence.WithFence(t.Context(), pool, claim("account/42", 7, tokens.OneShot), add(5)); err != nil {
		t.Fatal(err)
	}
	fence, err := pgfence.New(pool).Peek(t.Context(), "account/42")
	if err != nil || fence != 7 || balance(t, pool) != 105 {
		t.Errorf("fence %d, balance %d, %v; want 7 and 105", fence, balance(t, pool), err)
	}
}

func TestWithFence_Refusals(t *testing.T) {
	t.Parallel()
	pool := install(t)
	advance(t, pool, claim("account/42", 7, tokens.OneShot))
	var calls int
	fn := func(ctx context.Context, tx pgx.Tx) error {
		calls++
		return add(5)(ctx, tx)
	}
	err := pgfence.WithFence(t.Context(), pool, claim("account/42", 6, tokens.Renewable), fn)
	stale, ok := errors.AsType[*tokens.StaleError](err)
	if want := (tokens.StaleError{Resource: "account/42", Presented: 6, Current: 7}); !ok || *stale != want {
		t.Errorf("stale: %v, want %v", err, &want)
	}
	if err := pgfence.WithFence(t.Context(), pool, claim("account/42", 7, tokens.OneShot), fn); !errors.Is(err, tokens.ErrDuplicate) {
		t.Errorf("duplicate: %v, want ErrDuplicate", err)
	}
	for _, bad := range []tokens.Claim{claim("account/42", 0, 0), claim("account/42", tokens.Max+1, 0), claim("", 8, 0)} {
		// A pool that is never asked may be nil.
		if err := pgfence.WithFence(t.Context(), nil, bad, fn); !errors.Is(err, tokens.ErrInvalid) {
			t.Errorf("claim %+v: %v, want ErrInvalid", bad, err)
		}
	}
	if calls != 0 || balance(t, pool) != 100 {
		t.Errorf("the function of a refused claim was called %d times, balance %d", calls, balance(t, pool))
	}
}

func TestWithFence_FunctionFails(t *testing.T) {
	t.Parallel()
	pool := install(t)
	odd := errors.New("odd")
	calls := 0
	err := pgfence.WithFence(t.Context(), pool, claim("account/42", 7, tokens.OneShot), func(ctx context.Context, tx pgx.Tx) error {
		calls++
		if err := add(5)(ctx, tx); err != nil {
			return err
		}
		return odd
	})
	if !errors.Is(err, odd) || calls != 1 {
		t.Errorf("%v after %d calls, want the function's error after one", err, calls)
	}
	if fence, _ := pgfence.New(pool).Peek(t.Context(), "account/42"); fence != 0 || balance(t, pool) != 100 {
		t.Errorf("fence %d, balance %d; want both as before", fence, balance(t, pool))
	}
}

// What PostgreSQL undid for reasons of its own is done again, as a whole, with
// the same token in one-shot mode.
func TestWithFence_RepeatsWhatTheServerUndid(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"40001", "40P01", "55P03", "57014", "killed"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			pool := install(t)
			calls := 0
			err := pgfence.WithFence(t.Context(), pool, claim("account/42", 7, tokens.OneShot), func(ctx context.Context, tx pgx.Tx) error {
				calls++
				if err := add(5)(ctx, tx); err != nil || calls > 2 {
					return err
				}
				if code == "killed" {
					_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
					return err
				}
				_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE EXCEPTION 'by the test' USING ERRCODE = "+quote(code)+"; END $$")
				return err
			})
			if err != nil || calls != 3 || balance(t, pool) != 105 {
				t.Errorf("%v after %d calls, balance %d; want success after 3 and 105", err, calls, balance(t, pool))
			}
		})
	}
}

// A pool finds another connection; a single one that is lost stays so, and the
// caller hears of it at once.
func TestWithFence_SingleConnectionLost(t *testing.T) {
	t.Parallel()
	pool := install(t)
	conn, err := pgx.Connect(t.Context(), pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	c := claim("account/42", 7, tokens.OneShot)
	c.Deadline = time.Now().Add(time.Hour)
	err = pgfence.WithFence(t.Context(), conn, c, func(ctx context.Context, tx pgx.Tx) error {
		calls++
		_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
		return err
	})
	if !errors.Is(err, tokens.ErrRetryable) || calls != 1 {
		t.Errorf("%v after %d calls, want ErrRetryable after one", err, calls)
	}
}

// 23505 and the like are the application's to understand.
func TestWithFence_LeavesOtherErrorsAlone(t *testing.T) {
	t.Parallel()
	pool := install(t)
	calls := 0
	err := pgfence.WithFence(t.Context(), pool, claim("account/42", 7, tokens.OneShot), func(ctx context.Context, tx pgx.Tx) error {
		calls++
		_, err := tx.Exec(ctx, "INSERT INTO account VALUES (42, 0)")
		return err
	})
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Code != "23505" || calls != 1 || errors.Is(err, tokens.ErrRetryable) {
		t.Errorf("%v after %d calls, want 23505 after one", err, calls)
	}
}

// Out of time for want of a connection: nothing was written, so it is busy too.
func TestWithFence_NoConnection(t *testing.T) {
	t.Parallel()
	pool := install(t)
	narrow := pgtest.NewPool(t, pool.Config().ConnString()+"&pool_max_conns=1")
	begin(t, narrow, pgx.ReadCommitted)
	c := claim("account/42", 7, tokens.OneShot)
	c.Deadline = time.Now().Add(200 * time.Millisecond)
	if err := pgfence.WithFence(t.Context(), narrow, c, add(5)); !errors.Is(err, tokens.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want ErrBusy and DeadlineExceeded", err)
	}
}

// The budget is the lease. Case 17: when it runs out, the answer is not Stale.
func TestWithFence_BudgetRunsOut(t *testing.T) {
	t.Parallel()
	pool := install(t)
	holder := begin(t, pool, pgx.ReadCommitted)
	if _, err := pgfence.New(pool).Advance(t.Context(), holder, claim("account/42", 5, tokens.OneShot)); err != nil {
		t.Fatal(err)
	}
	c := claim("account/42", 7, tokens.OneShot)
	c.Deadline = time.Now().Add(400 * time.Millisecond)
	err := pgfence.WithFence(t.Context(), pool, c, add(5))
	if !errors.Is(err, tokens.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, tokens.ErrStale) {
		t.Errorf("behind an open unit: %v, want ErrBusy and DeadlineExceeded", err)
	}

	c = claim("account/43", 7, tokens.OneShot)
	c.Deadline = time.Now().Add(2 * time.Second)
	err = pgfence.WithFence(t.Context(), pool, c, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE EXCEPTION 'by the test' USING ERRCODE = '40001'; END $$")
		return err
	})
	// The last try is cut wherever the time ran out: undone, or before its turn.
	undone := errors.Is(err, tokens.ErrRetryable) || errors.Is(err, tokens.ErrBusy)
	if !undone || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, tokens.ErrStale) {
		t.Errorf("always undone: %v, want ErrRetryable or ErrBusy, and DeadlineExceeded", err)
	}
}

func TestWithFence_LeaseOver(t *testing.T) {
	t.Parallel()
	pool := install(t)
	c := claim("account/42", 7, tokens.OneShot)
	c.Deadline = time.Now().Add(-time.Second)
	if err := pgfence.WithFence(t.Context(), pool, c, add(5)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("lease over before: %v, want DeadlineExceeded", err)
	}
	c.Deadline = time.Now().Add(300 * time.Millisecond)
	err := pgfence.WithFence(t.Context(), pool, c, func(ctx context.Context, tx pgx.Tx) error {
		if err := add(5)(ctx, tx); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, context.DeadlineExceeded) || balance(t, pool) != 100 {
		t.Errorf("lease over meanwhile: %v, balance %d; want DeadlineExceeded and 100", err, balance(t, pool))
	}
}

func TestWithFence_ContextEnds(t *testing.T) {
	t.Parallel()
	pool := install(t)
	lost := errors.New("the hold is lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := pgfence.WithFence(ctx, pool, claim("account/42", 7, tokens.OneShot), func(ctx context.Context, tx pgx.Tx) error {
		if err := add(5)(ctx, tx); err != nil {
			return err
		}
		cancel(lost)
		return nil // as code that does not look
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, lost) || balance(t, pool) != 100 {
		t.Errorf("%v, balance %d; want Canceled with its cause, and 100", err, balance(t, pool))
	}
}

func TestWithFence_RefusesToNest(t *testing.T) {
	t.Parallel()
	pool := install(t)
	nothing := func(context.Context, pgx.Tx) error { return nil }
	err := pgfence.WithFence(t.Context(), pool, claim("account/42", 7, tokens.OneShot), func(ctx context.Context, tx pgx.Tx) error {
		return pgfence.WithFence(ctx, pool, claim("account/43", 7, tokens.OneShot), nothing)
	})
	if !errors.Is(err, tokens.ErrInvalid) {
		t.Errorf("inside another: %v, want ErrInvalid", err)
	}

	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	tx := begin(t, conn, pgx.ReadCommitted)
	for name, db := range map[string]pgfence.Beginner{"conn": conn.Conn(), "pool's conn": conn} {
		if err := pgfence.WithFence(t.Context(), db, claim("account/42", 8, tokens.OneShot), nothing); !errors.Is(err, tokens.ErrInvalid) {
			t.Errorf("on a %s with an open transaction: %v, want ErrInvalid", name, err)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Errorf("the outer transaction was ended: %v", err)
	}
	if err := pgfence.WithFence(t.Context(), conn.Conn(), claim("account/42", 8, tokens.OneShot), nothing); err != nil {
		t.Errorf("on an idle connection: %v", err)
	}
}

// The function cannot end the transaction, and savepoints in it work.
func TestWithFence_Transaction(t *testing.T) {
	t.Parallel()
	pool := install(t)
	err := pgfence.WithFence(t.Context(), pool, claim("account/42", 7, tokens.OneShot), func(ctx context.Context, tx pgx.Tx) error {
		if err := tx.Commit(ctx); !errors.Is(err, tokens.ErrInvalid) {
			t.Errorf("Commit inside: %v, want ErrInvalid", err)
		}
		if err := tx.Rollback(ctx); !errors.Is(err, tokens.ErrInvalid) {
			t.Errorf("Rollback inside: %v, want ErrInvalid", err)
		}
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return add(1)(ctx, tx) })
		if err != nil {
			return err
		}
		odd := errors.New("odd")
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return errors.Join(add(10)(ctx, tx), odd) })
		if !errors.Is(err, odd) {
			return err
		}
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO account VALUES (42, 0)")
			return err
		})
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "23505" {
			return err
		}
		return everyKindOfStatement(ctx, tx)
	})
	if err != nil || balance(t, pool) != 100+1+100+1000 {
		t.Errorf("%v, balance %d; want 1201", err, balance(t, pool))
	}
}

func everyKindOfStatement(ctx context.Context, tx pgx.Tx) error {
	var b pgx.Batch
	b.Queue("UPDATE account SET balance = balance + 100 WHERE id = 42")
	b.Queue("UPDATE account SET balance = balance + 1000 WHERE id = 42")
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	rows := [][]any{{int64(1), int64(0)}, {int64(2), int64(0)}}
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"account"}, []string{"id", "balance"}, pgx.CopyFromRows(rows)); err != nil {
		return err
	}
	ids, err := tx.Query(ctx, "SELECT id FROM account ORDER BY id")
	if err != nil {
		return err
	}
	got, err := pgx.CollectRows(ids, pgx.RowTo[int64])
	if err == nil && fmt.Sprint(got) != "[1 2 42]" {
		err = fmt.Errorf("ids %v", got)
	}
	return err
}

// A failed statement whose error fn drops must not pass for success.
func TestWithFence_IgnoredError(t *testing.T) {
	t.Parallel()
	pool := install(t)
	err := pgfence.WithFence(t.Context(), pool, claim("account/42", 7, tokens.OneShot), func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, "SELECT 1/0")
		return nil
	})
	if !errors.Is(err, pgx.ErrTxCommitRollback) {
		t.Errorf("%v, want ErrTxCommitRollback", err)
	}
}

// Case 18 for WithFence: the answer to COMMIT is lost. The outcome is unknown, it
// is not repeated, and a repeat by the caller finds what happened.
func TestWithFence_UnknownOutcome(t *testing.T) {
	t.Parallel()
	pool := install(t)
	proxy := newCutter(t, "COMMIT")
	behind := pgtest.NewPool(t, through(t, pool, proxy.addr()))
	c := claim("account/42", 7, tokens.OneShot)
	calls := 0
	write := func(ctx context.Context, tx pgx.Tx) error {
		calls++
		err := add(5)(ctx, tx)
		proxy.lose.Store(true)
		return err
	}
	if err := pgfence.WithFence(t.Context(), behind, c, write); !errors.Is(err, tokens.ErrUnknownOutcome) || calls != 1 {
		t.Fatalf("%v after %d calls, want ErrUnknownOutcome after one", err, calls)
	}
	proxy.lose.Store(false)
	if err := pgfence.WithFence(t.Context(), behind, c, write); !errors.Is(err, tokens.ErrDuplicate) {
		t.Errorf("repeat: %v, want ErrDuplicate: the first COMMIT took effect", err)
	}
	if balance(t, pool) != 105 {
		t.Errorf("balance %d, want 105", balance(t, pool))
	}
}

// COMMIT goes on when the caller's context ends.
func TestWithFence_CommitOutlivesTheContext(t *testing.T) {
	t.Parallel()
	pool := install(t)
	// A deferred trigger makes COMMIT take long enough to cancel it.
	mustExec(t, pool, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_notify('committing', ''); PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$`)
	mustExec(t, pool, `CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON account DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION slow()`)
	gate := begin(t, pool, pgx.ReadCommitted)
	mustExec(t, gate, "SELECT pg_advisory_xact_lock(1)")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() { done <- pgfence.WithFence(ctx, pool, claim("account/42", 7, tokens.OneShot), add(5)) }()
	eventually(t, func() bool { n, err := waiting(t.Context(), pool); return err == nil && n == 1 })
	cancel()
	if err := gate.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || balance(t, pool) != 105 {
		t.Errorf("%v, balance %d; want success and 105", err, balance(t, pool))
	}
}

// eventually returns when cond holds; that it never does fails the test.
func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("it never came about")
		}
	}
}

// The server's timeouts shrink with the lease, also after a savepoint in which
// they were set was undone, and with it the setting.
func TestWithFence_TimeoutsFollowTheLease(t *testing.T) {
	t.Parallel()
	pool := install(t)
	c := claim("account/42", 7, tokens.OneShot)
	c.Deadline = time.Now().Add(20 * time.Second)
	check := func(ctx context.Context, db pgfence.Querier, when string) error {
		left := time.Until(c.Deadline).Milliseconds()
		for _, name := range []string{"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"} {
			var ms int64
			err := db.QueryRow(ctx, "SELECT setting::bigint FROM pg_settings WHERE name = $1", name).Scan(&ms)
			if err != nil {
				return err
			}
			if ms > left+250 || ms < 1000 {
				t.Errorf("%s: %s is %d ms with %d ms left", when, name, ms, left)
			}
		}
		return nil
	}
	err := pgfence.WithFence(t.Context(), pool, c, func(ctx context.Context, tx pgx.Tx) error {
		if err := check(ctx, tx, "at the begin"); err != nil {
			return err
		}
		odd := errors.New("odd")
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			for range 2 { // the second statement finds the limits old, and sets them inside
				if _, err := tx.Exec(ctx, "SELECT pg_sleep(0.6)"); err != nil {
					return err
				}
			}
			return errors.Join(check(ctx, tx, "in the savepoint"), odd)
		})
		if !errors.Is(err, odd) {
			return err
		}
		// By its connection, because a statement of tx may set them first.
		return check(ctx, tx.Conn(), "after the savepoint")
	})
	if err != nil {
		t.Error(err)
	}
}

// A statement that is never sent, for a context of its own, fails alone: it neither
// decides what the function's error is, nor do the timeouts stand still behind it.
func TestWithFence_StatementNeverSent(t *testing.T) {
	t.Parallel()
	pool := install(t)
	c := claim("account/42", 7, tokens.OneShot)
	c.Deadline = time.Now().Add(20 * time.Second)
	odd := errors.New("odd")
	err := pgfence.WithFence(t.Context(), pool, c, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_sleep(1)"); err != nil { // the limits are old
			return err
		}
		over, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := tx.Exec(over, "SELECT 1"); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that is over: %v, want Canceled", err)
		}
		left := time.Until(c.Deadline).Milliseconds()
		if ms := queryInt(t, tx, "SELECT setting::bigint FROM pg_settings WHERE name = 'statement_timeout'"); ms > left+250 {
			t.Errorf("statement_timeout is %d ms with %d ms left", ms, left)
		}
		return odd
	})
	if !errors.Is(err, odd) {
		t.Errorf("%v, want the function's own error", err)
	}
}

// A claim's deadline bounds the wait for its own fence and nothing after it.
func TestGuard_Advance_LeavesLockTimeout(t *testing.T) {
	t.Parallel()
	pool := install(t)
	tx := begin(t, pool, pgx.ReadCommitted)
	mustExec(t, tx, "SET LOCAL lock_timeout = 12345")
	c := claim("account/42", 7, tokens.OneShot)
	c.Deadline = time.Now().Add(time.Minute)
	if _, err := pgfence.New(pool).Advance(t.Context(), tx, c); err != nil {
		t.Fatal(err)
	}
	if got := queryInt(t, tx, "SELECT setting::bigint FROM pg_settings WHERE name = 'lock_timeout'"); got != 12345 {
		t.Errorf("lock_timeout is %d ms after Advance, want 12345 as before", got)
	}
}

// Many workers with tokens of their own add to one account. Whatever was accepted
// is in the balance once, and nothing else is.
func TestWithFence_NoLostUpdate(t *testing.T) {
	t.Parallel()
	pool := install(t)
	var accepted atomic.Int64
	errs := make(chan error, 8)
	for worker := range 8 {
		go func() {
			for step := range 25 {
				c := claim("account/42", tokens.Token(1+step*8+worker), tokens.OneShot)
				err := pgfence.WithFence(t.Context(), pool, c, func(ctx context.Context, tx pgx.Tx) error {
					var b int64 // read, then write: it would lose updates without the fence's lock
					if err := tx.QueryRow(ctx, "SELECT balance FROM account WHERE id = 42").Scan(&b); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, "UPDATE account SET balance = $1 WHERE id = 42", b+1)
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
	if got := balance(t, pool); got != 100+accepted.Load() {
		t.Errorf("balance %d after %d accepted writes, want %d", got, accepted.Load(), 100+accepted.Load())
	}
	if accepted.Load() == 0 {
		t.Error("nothing was accepted")
	}
}
