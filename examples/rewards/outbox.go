package rewards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/tokens"
)

// letter is one outbox row, claimed by one publisher until its lease is over.
type letter struct {
	id       int64
	gen      int64 // names this claim; a later one has a higher gen
	key      string
	body     json.RawMessage
	token    tokens.Token // of the claim that paid, or of Resend's hold; never the publisher's
	attempts int
}

// takeLetters claims up to limit rows for as long as lease says. Only the head of
// each player's queue is taken: a plain SKIP LOCKED would hand out the second row
// of a player while the first is still under way. A dead row keeps its place and
// blocks those behind it, because payments of one player stay in order until a
// person has looked.
func takeLetters(ctx context.Context, pool *pgxpool.Pool, limit int, lease time.Duration) ([]letter, error) {
	rows, err := pool.Query(ctx, `
		WITH head AS (
		  SELECT o.id FROM reward_outbox o
		  WHERE o.status = 'READY' AND o.next_at <= clock_timestamp()
		    AND NOT EXISTS (SELECT FROM reward_outbox p
		                    WHERE p.agg_key = o.agg_key AND p.id < o.id AND p.status <> 'DONE')
		  ORDER BY o.next_at, o.id LIMIT $1 FOR UPDATE OF o SKIP LOCKED)
		UPDATE reward_outbox o
		SET next_at = clock_timestamp() + $2::interval, lease_gen = lease_gen + 1, attempts = attempts + 1
		FROM head WHERE o.id = head.id
		RETURNING o.id, o.lease_gen, o.idem_key, o.payload, o.fence_token, o.attempts`, limit, lease)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l letter, err error) {
		return l, row.Scan(&l.id, &l.gen, &l.key, &l.body, (*int64)(&l.token), &l.attempts)
	})
}

// errClaimLost: the row was claimed anew, or settled, by another publisher.
var errClaimLost = errors.New("claim of the outbox row is over")

// closeLetter ends a row as DONE or DEAD, if this claim still stands. A publisher
// that was paused past its lease changes nothing: the row belongs to the next one.
func closeLetter(ctx context.Context, pool *pgxpool.Pool, l letter, status string, reason error) error {
	return ifClaimed(pool.Exec(ctx, `
		UPDATE reward_outbox SET status = $3, last_error = $4,
		       done_at = CASE WHEN $3 = 'DONE' THEN clock_timestamp() END
		WHERE id = $1 AND lease_gen = $2 AND status = 'READY'`, l.id, l.gen, status, text(reason)))
}

// putBack makes a row due again after wait. free takes the attempt back: the
// item server was busy with this very key and has not failed.
func putBack(ctx context.Context, pool *pgxpool.Pool, l letter, wait time.Duration, free bool, reason error) error {
	return ifClaimed(pool.Exec(ctx, `
		UPDATE reward_outbox SET next_at = clock_timestamp() + $3::interval, last_error = $4,
		       attempts = attempts - CASE WHEN $5 THEN 1 ELSE 0 END
		WHERE id = $1 AND lease_gen = $2 AND status = 'READY'`, l.id, l.gen, wait, text(reason), free))
}

func ifClaimed(tag interface{ RowsAffected() int64 }, err error) error {
	if err == nil && tag.RowsAffected() == 0 {
		return errClaimLost
	}
	return err
}

// A DeadLetter is an outbox row that the item server refused, or that failed too
// often. It blocks the later rows of its player.
type DeadLetter struct {
	Key      string
	Attempts int
	Reason   string
}

// DeadLetters returns the dead rows, oldest first.
func DeadLetters(ctx context.Context, pool *pgxpool.Pool) ([]DeadLetter, error) {
	rows, err := pool.Query(ctx, `
		SELECT idem_key, attempts, coalesce(last_error, '') FROM reward_outbox WHERE status = 'DEAD' ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("dead letters: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[DeadLetter])
}

// Replay makes dead rows due again with all their attempts before them: those
// with the given keys, or all where none is given. It returns how many there were.
// The key stays the same, so a row that had been granted after all is only
// confirmed. So does the token: what was refused as stale needs [Resend].
func Replay(ctx context.Context, pool *pgxpool.Pool, keys ...string) (int, error) {
	tag, err := pool.Exec(ctx, `
		UPDATE reward_outbox
		SET status = 'READY', attempts = 0, next_at = clock_timestamp(), lease_gen = lease_gen + 1
		WHERE status = 'DEAD' AND (cardinality($1::text[]) = 0 OR idem_key = ANY ($1))`, append([]string{}, keys...))
	if err != nil {
		return 0, fmt.Errorf("replay: %w", err)
	}
	announce(ctx, pool)
	return int(tag.RowsAffected()), nil
}
