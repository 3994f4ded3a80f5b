package pgfence_test

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

func TestMain(m *testing.M) {
	runWorkerIfAsked()
	goleak.VerifyTestMain(pgtest.Main(m))
}

// install returns a pool on a fresh database with the schema and with the table
// account, which is not protected.
func install(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.New(t)
	if err := pgfence.Install(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, "CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL)")
	mustExec(t, pool, "INSERT INTO account VALUES (42, 100)")
	return pool
}

func mustExec(t *testing.T, db pgfence.Querier, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func queryInt(t *testing.T, db pgfence.Querier, sql string, args ...any) int64 {
	t.Helper()
	var n int64
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func balance(t *testing.T, db pgfence.Querier) int64 {
	t.Helper()
	return queryInt(t, db, "SELECT balance FROM account WHERE id = 42")
}

// add returns the function of a unit of work that adds to the account.
func add(amount int64) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE account SET balance = balance + $1 WHERE id = 42", amount)
		return err
	}
}

func claim(resource string, t tokens.Token, m tokens.Mode) tokens.Claim {
	return tokens.Claim{Resource: resource, Token: t, Mode: m}
}

// advance is one committed unit that does nothing but raise the fence.
func advance(t *testing.T, db pgfence.Beginner, c tokens.Claim) {
	t.Helper()
	err := pgfence.WithFence(t.Context(), db, c, func(context.Context, pgx.Tx) error { return nil })
	if err != nil {
		t.Fatalf("advance %+v: %v", c, err)
	}
}

func begin(t *testing.T, db pgfence.Beginner, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// through returns the TCP address of pool's database as seen through addr.
func through(t *testing.T, pool *pgxpool.Pool, addr string) string {
	t.Helper()
	u, err := url.Parse(pgtest.Shared(t).TCPURL(pool.Config().ConnConfig.Database))
	if err != nil {
		t.Fatal(err)
	}
	u.Host = addr
	return u.String()
}

// waiting returns how many sessions of pool's database wait for a lock.
func waiting(ctx context.Context, pool *pgxpool.Pool) (int, error) {
	var n int
	err := pool.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
	return n, err
}

// cutter is a loopback proxy that loses answers on command.
type cutter struct {
	listener net.Listener
	// lose cuts every connection whose server gives the answer while it is set, after
	// it has come and before the client has it.
	lose   atomic.Bool
	answer string // such as COMMIT
}

func newCutter(t *testing.T, answer string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{listener: l, answer: answer}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.serve(pgtest.Shared(t).Addr())
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return c
}

func (c *cutter) addr() string { return c.listener.Addr().String() }

func (c *cutter) serve(server string) {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		backend, err := net.Dial("tcp", server)
		if err != nil {
			client.Close()
			continue
		}
		go copyUntilClosed(backend, client, func([]byte) bool { return false })
		go copyUntilClosed(client, backend, c.loses)
	}
}

func (c *cutter) loses(b []byte) bool {
	return c.lose.Load() && bytes.Contains(b, []byte(c.answer+"\x00"))
}

// copyUntilClosed copies from src to dst, and closes both once src ends or bytes
// come that are to be lost.
func copyUntilClosed(dst, src net.Conn, loses func([]byte) bool) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if err != nil {
			return
		}
		if loses(buf[:n]) {
			return
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return
		}
	}
}

func quote(name string) string { return "'" + strings.ReplaceAll(name, "'", "''") + "'" }
