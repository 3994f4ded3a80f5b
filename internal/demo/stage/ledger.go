//go:build linux

package stage

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/examples/rewards"
)

// A Ledger is a database with the reward tables, on the stage's PostgreSQL.
type Ledger struct {
	// DSN is where processes find it: put a proxy in its place to disturb them.
	DSN string
	// Server is the lock service that workers use: the same goes for it.
	Server string
	// Pool is the caller's own way to it.
	Pool *pgxpool.Pool

	stage *Stage
}

// NewDatabase makes an empty database and returns its address, over TCP so that a
// proxy can stand in front of it.
func (s *Stage) NewDatabase(ctx context.Context) (string, error) {
	name := fmt.Sprintf("stage%d", s.ledgers.Add(1))
	conn, err := pgx.Connect(ctx, s.Postgres.URL("postgres"))
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE DATABASE "+name)
	return s.Postgres.TCPURL(name), err
}

// NewLedger makes a ledger. The caller closes its pool before the stage.
func (s *Stage) NewLedger(ctx context.Context) (*Ledger, error) {
	dsn, err := s.NewDatabase(ctx)
	if err != nil {
		return nil, err
	}
	return s.OpenLedger(ctx, dsn)
}

// OpenLedger makes the reward tables in the database at dsn.
func (s *Stage) OpenLedger(ctx context.Context, dsn string) (*Ledger, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	if err := rewards.Install(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return &Ledger{DSN: dsn, Server: s.Server, Pool: pool, stage: s}, nil
}

// Worker starts a worker process.
func (l *Ledger) Worker(name string, args ...string) (*Process, error) {
	return l.Rewardctl(name, append([]string{"work", "--server", l.Server, "--name", name}, args...)...)
}

// Publisher starts a publisher process that tells the item server at items.
func (l *Ledger) Publisher(name, items string, args ...string) (*Process, error) {
	return l.Rewardctl(name, append([]string{"publish", "--items", items}, args...)...)
}

// Rewardctl starts any command of rewardctl on this ledger.
func (l *Ledger) Rewardctl(name string, args ...string) (*Process, error) {
	return l.stage.Rewardctl(name, append(args, "--dsn", l.DSN)...)
}

// ItemServer starts an item server with a database of its own and returns its base
// URL. It blocks until the server listens.
func (s *Stage) ItemServer(ctx context.Context, args ...string) (string, error) {
	dsn, err := s.NewDatabase(ctx)
	if err != nil {
		return "", err
	}
	_, url, err := s.OpenItemServer(ctx, dsn, args...)
	return url, err
}

// OpenItemServer starts an item server on the database at dsn and returns its base
// URL with it. It blocks until the server listens.
func (s *Stage) OpenItemServer(ctx context.Context, dsn string, args ...string) (*Process, string, error) {
	p, err := s.Rewardctl("item server", append([]string{"serve-items", "--dsn", dsn, "--listen", "127.0.0.1:0"}, args...)...)
	if err != nil {
		return nil, "", err
	}
	ready, err := p.WaitRecord(ctx, func(r rewards.Record) bool { return r.Kind == "ready" })
	return p, ready.Key, err
}
