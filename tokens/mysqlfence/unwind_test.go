//go:build unix

package mysqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/mysqlfence"
)

// A function that does not return, because it panics or because its goroutine
// ends in it as t.FailNow has it, ends the unit at once and not with the lease:
// nothing of it stays, the next holder gets in, and the pool is as it was.
func TestWithFence_FunctionThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	odd := errors.New("odd")
	for name, leave := range map[string]struct {
		how   func(ctx context.Context, tx *mysqlfence.Tx)
		panic any
	}{
		"panic":                {func(context.Context, *mysqlfence.Tx) { panic(odd) }, odd},
		"panic in a statement": {func(ctx context.Context, tx *mysqlfence.Tx) { halfRead(ctx, tx); panic(odd) }, odd},
		"goexit":               {func(context.Context, *mysqlfence.Tx) { runtime.Goexit() }, nil},
		"goexit in a statement": {func(ctx context.Context, tx *mysqlfence.Tx) {
			halfRead(ctx, tx)
			runtime.Goexit()
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := install(t)
			db.SetMaxOpenConns(1)
			mustExec(t, db, "SET SESSION wait_timeout = 777")
			c := claim("account/42", 7, tokens.OneShot)
			c.Deadline = time.Now().Add(20 * time.Second)
			got, returned := unwind(db, c, leave.how)
			if returned || got != leave.panic {
				t.Errorf("returned %t, recovered %v; want false and %v", returned, got, leave.panic)
			}
			if time.Until(c.Deadline) < 0 {
				t.Error("it went on only when the lease was over")
			}
			if n := db.Stats().InUse; n != 0 {
				t.Errorf("%d connections are out of the pool, want 0", n)
			}
			// A connection whose answer was left half read may have been replaced.
			if wait := queryInt(t, db, "SELECT @@wait_timeout * @@autocommit"); wait < 777 {
				t.Errorf("afterwards autocommit is off, or wait_timeout %d; want 777 or the server's", wait)
			}
			// One-shot, with the same token: the fence was not advanced.
			if err := mysqlfence.WithFence(t.Context(), db, c, add(5)); err != nil || balance(t, db) != 105 {
				t.Errorf("the same unit again: %v, balance %d; want success and 105", err, balance(t, db))
			}
		})
	}
}

// unwind runs a unit that writes and then leaves its function by how, in a
// goroutine of its own.
func unwind(db *sql.DB, c tokens.Claim, how func(context.Context, *mysqlfence.Tx)) (recovered any, returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { recovered = recover() }()
		_ = mysqlfence.WithFence(context.Background(), db, c, func(ctx context.Context, tx *mysqlfence.Tx) error {
			if err := add(1000)(ctx, tx); err != nil {
				return err
			}
			how(ctx, tx)
			return nil
		})
		returned = true
	}()
	<-done
	return recovered, returned
}

// halfRead leaves a result open that is too long for the buffers.
func halfRead(ctx context.Context, tx *mysqlfence.Tx) {
	rows, err := tx.QueryContext(ctx, "SELECT REPEAT('x', 100000) FROM information_schema.COLLATIONS LIMIT 50")
	if err == nil {
		rows.Next()
	}
}
