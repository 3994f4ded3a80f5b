package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

// pgConns is the number of connections that apply rewards at once.
const pgConns = 8

const pgSchema = `
CREATE TABLE plain (id int PRIMARY KEY, balance bigint NOT NULL DEFAULT 0);
CREATE TABLE fenced_column (id int PRIMARY KEY, balance bigint NOT NULL DEFAULT 0,
  fence_token bigint NOT NULL DEFAULT 0 CHECK (fence_token BETWEEN 0 AND 9007199254740991));
INSERT INTO plain SELECT generate_series(0, 99);
INSERT INTO fenced_column SELECT generate_series(0, 99);
CREATE TABLE bare_ledger (LIKE reward_ledger INCLUDING ALL);
`

// pgRows is how many rows pgSchema makes.
const pgRows = 100

// postgres measures what a fence costs in PostgreSQL, with fsync as in production.
func (s *suite) postgres(ctx context.Context) error {
	server, err := pgtest.Start(ctx, &pgtest.Options{Settings: map[string]string{"fsync": "on", "full_page_writes": "on"}})
	if errors.Is(err, pgtest.ErrNotInstalled) {
		return missing("postgresql", "its server programs are not installed")
	}
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop() }()
	config, err := pgxpool.ParseConfig(server.URL("postgres"))
	if err != nil {
		return err
	}
	config.MaxConns = pgConns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := installPostgres(ctx, pool); err != nil {
		return err
	}
	if err := s.fences(ctx, pool); err != nil {
		return err
	}
	return s.rewards(ctx, pool)
}

func installPostgres(ctx context.Context, pool *pgxpool.Pool) error {
	if err := pgfence.Install(ctx, pool); err != nil {
		return err
	}
	if err := rewards.Install(ctx, pool); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, pgSchema)
	return err
}

// fences measures one-row updates of one client, each in a transaction from BEGIN to
// COMMIT: plain, with the guard in the same round trip, with the fence in a column.
// Beside them stand the plain UPDATE that is a transaction by itself and the batch of
// guard and UPDATE, one round trip each.
func (s *suite) fences(ctx context.Context, pool *pgxpool.Pool) error {
	var token atomic.Int64
	next := func() (tokens.Claim, int64) {
		t := token.Add(1)
		return tokens.Claim{Resource: fmt.Sprintf("account/%d", t%pgRows), Token: tokens.Token(t)}, t % pgRows
	}
	within := func(update func(context.Context, pgx.Tx) error) func(context.Context) error {
		return func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return update(ctx, tx) })
		}
	}
	plain := func(ctx context.Context, db pgfence.Querier) error {
		_, row := next()
		_, err := db.Exec(ctx, "UPDATE plain SET balance = balance + 1 WHERE id = $1", row)
		return err
	}
	guard := func(ctx context.Context, db interface {
		SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
	}) error {
		var b pgx.Batch
		claim, row := next()
		if err := pgfence.Queue(&b, claim); err != nil {
			return err
		}
		b.Queue("UPDATE plain SET balance = balance + 1 WHERE id = $1", row)
		return pgfence.Classify(db.SendBatch(ctx, &b).Close())
	}
	column := func(ctx context.Context, db pgfence.Querier) error {
		claim, key := next()
		row := pgfence.Row{Table: pgx.Identifier{"fenced_column"}, KeyColumn: "id", Key: key}
		_, err := row.Update(ctx, db, claim, "balance = balance + 1")
		return err
	}
	got, err := s.measureAll(ctx, []measure{
		p50Of("pg_update_plain_us", within(func(ctx context.Context, tx pgx.Tx) error { return plain(ctx, tx) })),
		p50Of("pg_update_guard_us", within(func(ctx context.Context, tx pgx.Tx) error { return guard(ctx, tx) })),
		p50Of("pg_update_column_us", within(func(ctx context.Context, tx pgx.Tx) error { return column(ctx, tx) })),
		p50Of("pg_autocommit_plain_us", func(ctx context.Context) error { return plain(ctx, pool) }),
		p50Of("pg_autocommit_guard_us", func(ctx context.Context) error { return guard(ctx, pool) }),
		p50Of("pg_autocommit_column_us", func(ctx context.Context) error { return column(ctx, pool) }),
	})
	if err != nil {
		return err
	}
	s.report.ratio("pgfence_update", got["pg_update_guard_us"], got["pg_update_plain_us"])
	s.report.ratio("pgfence_column", got["pg_update_column_us"], got["pg_update_plain_us"])
	return nil
}

func p50Of(name string, call func(context.Context) error) measure {
	return measure{name, func(ctx context.Context, d time.Duration) (float64, error) {
		l, err := drive(ctx, d, []func(context.Context) error{call})
		return l.p50(), err
	}}
}

// rewards measures whole rewards against bare rows of the same ledger without a
// claim to refer to.
func (s *suite) rewards(ctx context.Context, pool *pgxpool.Pool) error {
	var n atomic.Int64
	next := func() (rewards.Reward, error) {
		player := fmt.Sprintf("p%d", n.Add(1))
		id, err := rewards.Event{Season: "2026", Content: "week-34", Player: player, Kind: "rank", Item: "3"}.ID()
		return rewards.Reward{Player: player, Event: id, Amount: 100}, err
	}
	apply := func(ctx context.Context) error {
		r, err := next()
		if err != nil {
			return err
		}
		_, err = rewards.Apply(ctx, pool, r, 1)
		return err
	}
	bare := func(ctx context.Context) error {
		r, err := next()
		if err != nil {
			return err
		}
		_, err = pool.Exec(ctx, `INSERT INTO bare_ledger (player_id, reward_event_id, amount, claim_id, fence_token)
			VALUES ($1, $2, $3, gen_random_uuid(), 1)`, r.Player, r.Event, r.Amount)
		return err
	}
	got, err := s.measureAll(ctx, []measure{rateOf("pg_reward_apply", apply), rateOf("pg_ledger_insert", bare)})
	if err != nil {
		return err
	}
	s.report.ratio("reward_apply", got["pg_reward_apply"], got["pg_ledger_insert"])
	return nil
}

func rateOf(name string, call func(context.Context) error) measure {
	calls := make([]func(context.Context) error, pgConns)
	for i := range calls {
		calls[i] = call
	}
	return measure{name, func(ctx context.Context, d time.Duration) (float64, error) {
		l, err := drive(ctx, d, calls)
		return l.rate, err
	}}
}
