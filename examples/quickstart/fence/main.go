// Command fence writes to PostgreSQL under a fencing token: run it with a token
// that is lower than one that has been there, and the database refuses.
//
//	DATABASE_URL=postgres://... go run ./examples/quickstart/fence 7
package main

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: DATABASE_URL=postgres://... fence TOKEN")
	}
	ctx := context.Background()
	token, err := tokens.Parse(os.Args[1])
	check(err)
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	check(err)
	defer pool.Close()
	check(pgfence.Install(ctx, pool)) // once, with a role that may create a schema
	_, err = pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY, paid_by bigint NOT NULL)")
	check(err)
	check(pay(ctx, pool, token))
	log.Println("paid with token", token)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// pay marks order 42 as paid, unless a newer holder of the lock was here.
func pay(ctx context.Context, pool *pgxpool.Pool, token tokens.Token) error {
	claim := tokens.Claim{Resource: "orders/42", Token: token, Mode: tokens.Renewable}
	return pgfence.WithFence(ctx, pool, claim, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO orders (id, paid_by) VALUES (42, $1)
			ON CONFLICT (id) DO UPDATE SET paid_by = EXCLUDED.paid_by`, int64(token))
		return err
	}) // a lower token than the highest one seen: *tokens.StaleError, nothing is written
}
