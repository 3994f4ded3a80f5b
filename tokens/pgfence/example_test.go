//go:build unix

package pgfence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

// A holder that was paused writes after its successor, and PostgreSQL refuses.
func ExampleWithFence() {
	ctx := context.Background()
	pool, stop, err := examplePool(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	pay := func(token tokens.Token, amount int) error {
		claim := tokens.Claim{Resource: "account/42", Token: token, Mode: tokens.Renewable}
		return pgfence.WithFence(ctx, pool, claim, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE account SET balance = balance + $1 WHERE id = 42", amount)
			return err
		})
	}
	fmt.Println("successor:", pay(34, 10))
	err = pay(33, 1000)
	var stale *tokens.StaleError
	fmt.Println("paused holder is stale:", errors.As(err, &stale))
	fmt.Println(stale)

	var balance int
	err = pool.QueryRow(ctx, "SELECT balance FROM account WHERE id = 42").Scan(&balance)
	fmt.Println("balance:", balance, err)
	// Output:
	// successor: <nil>
	// paused holder is stale: true
	// resource "account/42": stale token 33, current is 34
	// balance: 10 <nil>
}

// The fence can stand in a column of the table itself.
func ExampleRow_Update() {
	ctx := context.Background()
	pool, stop, err := examplePool(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	row := pgfence.Row{Table: pgx.Identifier{"account"}, KeyColumn: "id", Key: 42}
	for _, token := range []tokens.Token{34, 33} {
		claim := tokens.Claim{Resource: "account/42", Token: token}
		decision, err := row.Update(ctx, pool, claim, "balance = balance + $1", 10)
		fmt.Println(decision.Outcome, err)
	}
	// Output:
	// accepted <nil>
	// stale resource "account/42": stale token 33, current is 34
}

// examplePool returns a database with the schema and a table.
func examplePool(ctx context.Context) (_ *pgxpool.Pool, stop func(), err error) {
	var tb exampleTB
	pool := pgtest.New(&tb)
	if err = pgfence.Install(ctx, pool); err == nil {
		_, err = pool.Exec(ctx, "CREATE TABLE account (id int PRIMARY KEY, balance int, fence_token bigint NOT NULL DEFAULT 0)")
	}
	if err == nil {
		_, err = pool.Exec(ctx, "INSERT INTO account VALUES (42, 0)")
	}
	return pool, tb.end, err
}

// exampleTB lets examples, which have no testing.T, use the shared server.
type exampleTB struct{ cleanups []func() }

func (*exampleTB) Helper() {}

func (*exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (tb *exampleTB) Cleanup(f func()) { tb.cleanups = append(tb.cleanups, f) }

func (tb *exampleTB) end() {
	for _, f := range slices.Backward(tb.cleanups) {
		f()
	}
}
