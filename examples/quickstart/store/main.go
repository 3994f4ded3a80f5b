// Command store is an HTTP service whose writes need a fencing token:
//
//	PUT /orders/{id}    with the header Fencing-Token: 200, 428 without, 412 if stale
//
// Programs of any language write through it. Run it with
//
//	DATABASE_URL=postgres://... go run ./examples/quickstart/store
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/httpfence"
	"github.com/fenced/fenced/tokens/pgfence"
)

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	check(err)
	check(pgfence.Install(ctx, pool)) // once, with a role that may create a schema
	_, err = pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY, paid_by bigint NOT NULL)")
	check(err)
	fence, err := httpfence.New(httpfence.Config{Lock: lockOf})
	check(err)
	http.Handle("PUT /orders/{id}", fence.Handle(func(w http.ResponseWriter, r *http.Request) error {
		return pay(r, pool)
	}))
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("STORE_LISTEN"), "127.0.0.1:7440"))
	check(err)
	fmt.Printf("store listens on http://%s\n", listener.Addr())
	check(http.Serve(listener, nil))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// lockOf names the lock that guards the order of a request. It reads the number, so
// that /orders/42 and /orders/042, which are one row, have one lock.
func lockOf(r *http.Request) (string, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	return fmt.Sprintf("orders/%d", id), err
}

// pay marks the order as paid, unless a newer holder of its lock was here. The token
// is compared here, in the transaction that writes, and nowhere else.
func pay(r *http.Request, pool *pgxpool.Pool) error {
	lock, err := lockOf(r)
	if err != nil {
		return err
	}
	token, _ := tokens.FromContext(r.Context(), lock)
	claim := tokens.Claim{Resource: lock, Token: token, Mode: tokens.Renewable}
	return pgfence.WithFence(r.Context(), pool, claim, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO orders (id, paid_by) VALUES ($1, $2)
			ON CONFLICT (id) DO UPDATE SET paid_by = EXCLUDED.paid_by`, r.PathValue("id"), int64(token))
		return err
	})
}
