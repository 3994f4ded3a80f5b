package pgfence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
)

// Case 16: what each isolation level answers. READ COMMITTED tells stale from
// fresh after a wait; the others can only say that it must be tried again, and
// never accept what READ COMMITTED refuses.
func TestGuard_IsolationLevels(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			pool := install(t)
			afterWait := func(rc error) error {
				if level == pgx.ReadCommitted {
					return rc
				}
				return tokens.ErrRetryable
			}
			for _, tt := range []struct {
				name   string
				before tokens.Token // the fence, 0 for none
				other  tokens.Token // what the transaction in the way has advanced to
				commit bool         // how it ends
				mine   tokens.Token
				want   error
			}{
				{"older waits, newer commits", 4, 6, true, 5, afterWait(tokens.ErrStale)},
				{"older waits, newer commits, first ever", 0, 6, true, 5, afterWait(tokens.ErrStale)},
				{"older waits, newer rolls back", 4, 6, false, 5, nil},
				{"older waits, newer rolls back, first ever", 0, 6, false, 5, nil},
				{"newer waits, older commits", 4, 5, true, 6, afterWait(nil)},
				{"newer waits, older commits, first ever", 0, 5, true, 6, afterWait(nil)},
				{"equal waits, equal commits", 4, 6, true, 6, afterWait(tokens.ErrDuplicate)},
			} {
				if tt.before != 0 {
					advance(t, pool, claim(tt.name, tt.before, 0))
				}
				other, mine := claim(tt.name, tt.other, 0), claim(tt.name, tt.mine, 0)
				if err := advanceBehind(t, pool, level, other, tt.commit, mine); !errors.Is(err, tt.want) {
					t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
				}
			}
			for mine, rc := range map[tokens.Token]error{7: nil, 5: tokens.ErrStale} {
				err := advanceInOldSnapshot(t, pool, level, claim("snapshot"+mine.String(), mine, 0))
				if want := afterWait(rc); !errors.Is(err, want) {
					t.Errorf("snapshot before a committed 6, token %d: %v, want %v", mine, err, want)
				}
			}
		})
	}
}

// advanceBehind advances mine in a transaction of level that waits for another,
// which has advanced other, and returns its answer or that of its COMMIT.
func advanceBehind(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel, other tokens.Claim, commit bool, mine tokens.Claim) error {
	t.Helper()
	guard := pgfence.New(pool)
	inTheWay := begin(t, pool, pgx.ReadCommitted)
	if _, err := guard.Advance(t.Context(), inTheWay, other); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, pool, level)
	answer := make(chan error, 1)
	go func() {
		_, err := guard.Advance(t.Context(), tx, mine)
		if err == nil {
			err = pgfence.Commit(t.Context(), tx)
		}
		answer <- err
	}()
	eventually(t, func() bool { n, err := waiting(t.Context(), pool); return err == nil && n == 1 })
	end := inTheWay.Rollback
	if commit {
		end = inTheWay.Commit
	}
	if err := end(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := <-answer
	_ = tx.Rollback(t.Context())
	return err
}

// advanceInOldSnapshot advances mine in a transaction that has taken its snapshot
// before another advanced the resource from 4 to 6 and committed.
func advanceInOldSnapshot(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel, mine tokens.Claim) error {
	t.Helper()
	advance(t, pool, claim(mine.Resource, 4, 0))
	tx := begin(t, pool, level)
	mustExec(t, tx, "SELECT fence.peek('a')")
	advance(t, pool, claim(mine.Resource, 6, 0))
	_, err := pgfence.New(pool).Advance(t.Context(), tx, mine)
	_ = tx.Rollback(t.Context())
	return err
}

// The server's lock_timeout begins anew with each lock that a claim waits for, first the
// table's here and then the row's. The claim's deadline does not.
func TestGuard_Advance_DeadlineOverSeveralWaits(t *testing.T) {
	t.Parallel()
	for name, others := range map[string][]tokens.Claim{"one": nil, "several": {claim("z", 1, 0)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := install(t)
			guard := pgfence.New(pool)
			advance(t, pool, claim("a", 4, 0))
			row, table, tx := begin(t, pool, pgx.ReadCommitted), begin(t, pool, pgx.ReadCommitted), begin(t, pool, pgx.ReadCommitted)
			mustExec(t, row, "SELECT FROM fence.guard WHERE resource = 'a' FOR UPDATE")
			mustExec(t, table, "LOCK TABLE fence.guard IN SHARE MODE")
			gone := make(chan error, 1)
			time.AfterFunc(1500*time.Millisecond, func() { gone <- table.Rollback(context.Background()) })
			c := claim("a", 7, 0)
			c.Deadline = time.Now().Add(2 * time.Second)
			var err error
			if others == nil {
				_, err = guard.Advance(t.Context(), tx, c)
			} else {
				_, err = guard.AdvanceAll(t.Context(), tx, append(others, c))
			}
			if late := time.Since(c.Deadline); !errors.Is(err, tokens.ErrBusy) || late > time.Second {
				t.Errorf("%v, %v after the deadline; want ErrBusy at the deadline", err, late)
			}
			if err := <-gone; err != nil {
				t.Error(err)
			}
		})
	}
}

// Guard and write in one round trip. Case 15 for pipelines: a refusal undoes what
// the batch wrote, also where the batch is a transaction of its own.
func TestQueue(t *testing.T) {
	t.Parallel()
	pool := install(t)
	send := func(token tokens.Token) error {
		var b pgx.Batch
		if err := pgfence.Queue(&b, claim("account/42", token, tokens.Renewable)); err != nil {
			return err
		}
		b.Queue("UPDATE account SET balance = balance + 1 WHERE id = 42")
		return pgfence.Classify(pool.SendBatch(t.Context(), &b).Close())
	}
	if err := send(7); err != nil || balance(t, pool) != 101 {
		t.Errorf("accepted: %v, balance %d; want 101", err, balance(t, pool))
	}
	if err := send(6); !errors.Is(err, tokens.ErrStale) || balance(t, pool) != 101 {
		t.Errorf("refused: %v, balance %d; want ErrStale and 101", err, balance(t, pool))
	}
	if err := send(0); !errors.Is(err, tokens.ErrInvalid) {
		t.Errorf("invalid: %v, want ErrInvalid", err)
	}
	var b pgx.Batch
	b.Queue("SELECT 1")
	if err := pgfence.Queue(&b, claim("account/42", 8, 0)); !errors.Is(err, tokens.ErrInvalid) || b.Len() != 1 {
		t.Errorf("behind another statement: %v, want ErrInvalid", err)
	}
}
