package pgfence_test

import (
	"context"
	"errors"
	"testing"

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
			t.Run(string(level)+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				pool := install(t)
				if tt.before != 0 {
					advance(t, pool, claim("a", tt.before, 0))
				}
				err := advanceBehind(t, pool, level, tt.other, tt.commit, tt.mine)
				if !errors.Is(err, tt.want) {
					t.Errorf("%v, want %v", err, tt.want)
				}
			})
		}
		t.Run(string(level)+"/snapshot before a committed advance", func(t *testing.T) {
			t.Parallel()
			pool := install(t)
			for mine, rc := range map[tokens.Token]error{7: nil, 5: tokens.ErrStale} {
				resource := "snapshot" + mine.String()
				advance(t, pool, claim(resource, 4, 0))
				tx := begin(t, pool, level)
				mustExec(t, tx, "SELECT fence.peek('a')") // takes the snapshot
				advance(t, pool, claim(resource, 6, 0))
				_, err := pgfence.New(pool).Advance(t.Context(), tx, claim(resource, mine, 0))
				if want := afterWait(rc); !errors.Is(err, want) {
					t.Errorf("token %d: %v, want %v", mine, err, want)
				}
				_ = tx.Rollback(t.Context())
			}
		})
	}
}

// advanceBehind advances "a" in a transaction of level that waits for another,
// and returns its answer or that of its COMMIT.
func advanceBehind(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel, other tokens.Token, commit bool, mine tokens.Token) error {
	t.Helper()
	guard := pgfence.New(pool)
	inTheWay := begin(t, pool, pgx.ReadCommitted)
	if _, err := guard.Advance(t.Context(), inTheWay, claim("a", other, 0)); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, pool, level)
	answer := make(chan error, 1)
	go func() {
		_, err := guard.Advance(t.Context(), tx, claim("a", mine, 0))
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
	if err := end(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	return <-answer
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
