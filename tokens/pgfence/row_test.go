package pgfence_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

var account42 = pgfence.Row{Table: pgx.Identifier{"account"}, KeyColumn: "id", Key: 42}

// withColumn adds the column form's fence to the table account. No schema is
// needed for it.
func withColumn(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := install(t)
	mustExec(t, pool, pgfence.SchemaDown())
	mustExec(t, pool, `ALTER TABLE account ADD fence_token bigint NOT NULL DEFAULT 0 CHECK (fence_token BETWEEN 0 AND 9007199254740991)`)
	return pool
}

func TestRow_Update(t *testing.T) {
	t.Parallel()
	pool := withColumn(t)
	for _, tt := range []struct {
		name    string
		token   tokens.Token
		mode    tokens.Mode
		want    tokens.Decision
		err     error
		balance int64
	}{
		{"first", 5, tokens.OneShot, tokens.Decision{Outcome: tokens.Accepted, Current: 5}, nil, 101},
		{"equal, one-shot", 5, tokens.OneShot, tokens.Decision{Outcome: tokens.Duplicate, Current: 5}, tokens.ErrDuplicate, 101},
		{"equal, renewable", 5, tokens.Renewable, tokens.Decision{Outcome: tokens.Accepted, Current: 5}, nil, 102},
		{"higher", 7, tokens.OneShot, tokens.Decision{Outcome: tokens.Accepted, Current: 7}, nil, 103},
		{"lower, one-shot", 6, tokens.OneShot, tokens.Decision{Outcome: tokens.Stale, Current: 7}, tokens.ErrStale, 103},
		{"lower, renewable", 6, tokens.Renewable, tokens.Decision{Outcome: tokens.Stale, Current: 7}, tokens.ErrStale, 103},
		{"out of bounds", tokens.Max + 1, tokens.OneShot, tokens.Decision{}, tokens.ErrInvalid, 103},
		{"zero", 0, tokens.Renewable, tokens.Decision{}, tokens.ErrInvalid, 103},
		{"highest", tokens.Max, tokens.OneShot, tokens.Decision{Outcome: tokens.Accepted, Current: tokens.Max}, nil, 104},
	} {
		d, err := account42.Update(t.Context(), pool, claim("account/42", tt.token, tt.mode), "balance = balance + $1", 1)
		if d != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %+v, %v; want %+v, %v", tt.name, d, err, tt.want, tt.err)
		}
		if got := balance(t, pool); got != tt.balance {
			t.Errorf("%s: balance %d, want %d", tt.name, got, tt.balance)
		}
	}
	_, err := account42.Update(t.Context(), pool, claim("account/42", 6, 0), "balance = 0")
	stale, ok := errors.AsType[*tokens.StaleError](err)
	if want := (tokens.StaleError{Resource: "account/42", Presented: 6, Current: tokens.Max}); !ok || *stale != want {
		t.Errorf("stale: %v, want %v", err, &want)
	}
}

func TestRow_Update_NotFoundIsNotStale(t *testing.T) {
	t.Parallel()
	pool := withColumn(t)
	row := account42
	row.Key = 43
	if _, err := row.Update(t.Context(), pool, claim("account/43", 5, 0), "balance = 0"); !errors.Is(err, pgfence.ErrNoRow) || errors.Is(err, tokens.ErrStale) {
		t.Errorf("missing row: %v, want ErrNoRow", err)
	}
	mustExec(t, pool, "ALTER TABLE account ALTER fence_token DROP NOT NULL; UPDATE account SET fence_token = NULL")
	if _, err := account42.Update(t.Context(), pool, claim("account/42", 5, 0), "balance = 0"); !errors.Is(err, tokens.ErrUnfenced) {
		t.Errorf("column NULL: %v, want ErrUnfenced", err)
	}
}

func TestRow_Update_Invalid(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*pgfence.Row){
		"no table": func(r *pgfence.Row) { r.Table = nil },
		"no key column": func(r *pgfence.Row) {
			r.KeyColumn = ""
		},
		"no key": func(r *pgfence.Row) { r.Key = nil },
	} {
		row := account42
		edit(&row)
		if _, err := row.Update(t.Context(), nil, claim("a", 1, 0), "balance = 0"); !errors.Is(err, tokens.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if _, err := account42.Update(t.Context(), nil, claim("a", 1, 0), " "); !errors.Is(err, tokens.ErrInvalid) {
		t.Errorf("nothing to set: %v, want ErrInvalid", err)
	}
}

func TestRow_Update_OddNames(t *testing.T) {
	t.Parallel()
	pool := withColumn(t)
	mustExec(t, pool, `CREATE TABLE "T'a;b" ("Key""1" text PRIMARY KEY, v text, "Fence 1" bigint NOT NULL DEFAULT 0)`)
	mustExec(t, pool, `INSERT INTO "T'a;b" VALUES ('k', 'old')`)
	row := pgfence.Row{Table: pgx.Identifier{"T'a;b"}, KeyColumn: `Key"1`, Key: "k", TokenColumn: "Fence 1"}
	args := make([]any, 1, 8) // room that the call must not write into
	args[0] = "it's"
	if _, err := row.Update(t.Context(), pool, claim("k", 5, 0), "v = $1", args...); err != nil {
		t.Fatal(err)
	}
	if n := queryInt(t, pool, `SELECT "Fence 1" FROM "T'a;b" WHERE v = 'it''s'`); n != 5 {
		t.Errorf("fence %d, want 5", n)
	}
	if args[:2][1] != nil {
		t.Errorf("the caller's slice was written into: %v", args[:2])
	}
}

// An older writer that waits for a newer one is refused by what it finds after
// the wait.
func TestRow_Update_OlderWaits(t *testing.T) {
	t.Parallel()
	pool := withColumn(t)
	newer := begin(t, pool, pgx.ReadCommitted)
	if _, err := account42.Update(t.Context(), newer, claim("account/42", 6, 0), "balance = 6"); err != nil {
		t.Fatal(err)
	}
	older := make(chan error, 1)
	go func() {
		_, err := account42.Update(t.Context(), pool, claim("account/42", 5, 0), "balance = 5")
		older <- err
	}()
	eventually(t, func() bool { n, err := waiting(t.Context(), pool); return err == nil && n == 1 })
	if err := newer.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-older; !errors.Is(err, tokens.ErrStale) || balance(t, pool) != 6 {
		t.Errorf("%v, balance %d; want ErrStale and 6", err, balance(t, pool))
	}
}

func TestRow_Update_Deadline(t *testing.T) {
	t.Parallel()
	pool := withColumn(t)
	holder := begin(t, pool, pgx.ReadCommitted)
	mustExec(t, holder, "UPDATE account SET balance = 0 WHERE id = 42")
	c := claim("account/42", 5, 0)
	c.Deadline = time.Now().Add(200 * time.Millisecond)
	_, err := account42.Update(t.Context(), pool, c, "balance = 5")
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, tokens.ErrUnknownOutcome) {
		t.Errorf("behind an open transaction: %v, want DeadlineExceeded and ErrUnknownOutcome", err)
	}
	_, err = account42.Update(t.Context(), begin(t, pool, pgx.ReadCommitted), c, "balance = 5")
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, tokens.ErrUnknownOutcome) {
		t.Errorf("in a transaction that cannot commit any more: %v, want DeadlineExceeded alone", err)
	}
}

// Outside of a transaction the server commits before it answers. An answer that is lost
// is no word that nothing was written, neither for a row nor for a batch.
func TestAlone_LostAnswer(t *testing.T) {
	t.Parallel()
	for name, add := range map[string]func(context.Context, *pgxpool.Pool, tokens.Claim) error{
		"Row.Update": func(ctx context.Context, pool *pgxpool.Pool, c tokens.Claim) error {
			_, err := account42.Update(ctx, pool, c, "balance = balance + 5")
			return err
		},
		"Queue": func(ctx context.Context, pool *pgxpool.Pool, c tokens.Claim) error {
			var b pgx.Batch
			if err := pgfence.Queue(&b, c); err != nil {
				return err
			}
			b.Queue("UPDATE account SET balance = balance + 5 WHERE id = 42")
			return pgfence.ClassifyAlone(pool.SendBatch(ctx, &b).Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := install(t)
			mustExec(t, pool, "ALTER TABLE account ADD fence_token bigint NOT NULL DEFAULT 0")
			proxy := newCutter(t, "UPDATE 1")
			behind := pgtest.NewPool(t, through(t, pool, proxy.addr()))
			c := claim("account/42", 7, tokens.OneShot)
			proxy.lose.Store(true)
			err := add(t.Context(), behind, c)
			if !errors.Is(err, tokens.ErrUnknownOutcome) || errors.Is(err, tokens.ErrRetryable) {
				t.Errorf("%v, want ErrUnknownOutcome", err)
			}
			eventually(t, func() bool { return balance(t, pool) == 105 })
			proxy.lose.Store(false)
			if err := add(t.Context(), behind, c); !errors.Is(err, tokens.ErrDuplicate) || balance(t, pool) != 105 {
				t.Errorf("repeat: %v, balance %d; want ErrDuplicate and 105", err, balance(t, pool))
			}
		})
	}
}

// In a transaction what was lost before COMMIT was not written.
func TestRow_Update_LostInTransaction(t *testing.T) {
	t.Parallel()
	pool := withColumn(t)
	tx := begin(t, pool, pgx.ReadCommitted)
	mustExec(t, pool, "SELECT pg_terminate_backend($1, 10000)", tx.Conn().PgConn().PID())
	_, err := account42.Update(t.Context(), tx, claim("account/42", 7, 0), "balance = 0")
	if !errors.Is(err, tokens.ErrRetryable) || errors.Is(err, tokens.ErrUnknownOutcome) {
		t.Errorf("%v, want ErrRetryable", err)
	}
}

// The highest of many racing tokens is what remains, and nobody is told wrong.
func TestRow_Update_Race(t *testing.T) {
	t.Parallel()
	pool := withColumn(t)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for step := range 40 {
				token := tokens.Token(1 + step*8 + worker)
				d, err := account42.Update(t.Context(), pool, claim("account/42", token, 0), "balance = $1", int64(token))
				if d.Outcome == tokens.Stale && d.Current <= token || err != nil && !errors.Is(err, tokens.ErrStale) {
					t.Errorf("token %d: %+v, %v; want accepted, or stale with a higher one", token, d, err)
				}
			}
		})
	}
	wg.Wait()
	if got := balance(t, pool); got != 320 {
		t.Errorf("balance %s, want the highest token's 320", strconv.FormatInt(got, 10))
	}
}
