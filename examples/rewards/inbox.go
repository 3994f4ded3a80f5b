package rewards

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Deliver puts deliveries into the inbox in their order, all or none. It does not
// look for repeats: a broker cannot, and the claim can. On an error whose answer
// was lost, deliver again.
func Deliver(ctx context.Context, pool *pgxpool.Pool, deliveries []Reward) error {
	_, err := pool.CopyFrom(ctx, pgx.Identifier{"reward_message"},
		[]string{"player_id", "reward_event_id", "amount"},
		pgx.CopyFromSlice(len(deliveries), func(i int) ([]any, error) {
			r := deliveries[i]
			return []any{r.Player, r.Event, r.Amount}, r.Validate()
		}))
	if err != nil {
		return fmt.Errorf("deliver %d rewards: %w", len(deliveries), err)
	}
	return nil
}

// message is one delivery, taken by one worker until its visibility is over.
type message struct {
	Reward
	id       int64
	gen      int64 // names this taking; a later one has a higher gen
	attempts int
}

// take takes the oldest message that is due, for as long as visible says. The row
// lock ends with the statement, so a worker that stalls afterwards blocks nobody:
// the message comes back when its time is over. ok is false where none is due.
func take(ctx context.Context, pool *pgxpool.Pool, visible time.Duration) (m message, ok bool, err error) {
	err = pool.QueryRow(ctx, `
		WITH next AS (
		  SELECT id FROM reward_message
		  WHERE status = 'READY' AND next_at <= clock_timestamp()
		  ORDER BY next_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
		UPDATE reward_message m
		SET next_at = clock_timestamp() + $1::interval, lease_gen = lease_gen + 1, attempts = attempts + 1
		FROM next WHERE m.id = next.id
		RETURNING m.id, m.lease_gen, m.attempts, m.player_id, m.reward_event_id, m.amount`, visible).
		Scan(&m.id, &m.gen, &m.attempts, &m.Player, &m.Event, &m.Amount)
	if errors.Is(err, pgx.ErrNoRows) {
		return message{}, false, nil
	}
	return m, err == nil, err
}

// settle ends a message for good, as DONE with its outcome or as DEAD. Where the
// message was taken again meanwhile it changes nothing: the later taker settles
// it, and finds the reward paid.
func settle(ctx context.Context, pool *pgxpool.Pool, m message, status string, outcome Outcome, reason error) error {
	_, err := pool.Exec(ctx, `
		UPDATE reward_message
		SET status = $3, outcome = nullif($4, ''), last_error = $5, done_at = clock_timestamp()
		WHERE id = $1 AND lease_gen = $2 AND status = 'READY'`, m.id, m.gen, status, string(outcome), text(reason))
	return err
}

// giveBack makes a message due again after wait, for whoever comes first.
func giveBack(ctx context.Context, pool *pgxpool.Pool, m message, wait time.Duration, reason error) error {
	_, err := pool.Exec(ctx, `
		UPDATE reward_message SET next_at = clock_timestamp() + $3::interval, last_error = $4
		WHERE id = $1 AND lease_gen = $2 AND status = 'READY'`, m.id, m.gen, wait, text(reason))
	return err
}

// A DeadMessage is a delivery that can never be settled: it names another amount than
// was paid, or is no reward.
type DeadMessage struct {
	ID     int64
	Reward Reward
	Reason string
}

// DeadMessages returns the dead messages, oldest first.
func DeadMessages(ctx context.Context, pool *pgxpool.Pool) ([]DeadMessage, error) {
	rows, err := pool.Query(ctx, `
		SELECT id, player_id, reward_event_id, amount, coalesce(last_error, '') FROM reward_message
		WHERE status = 'DEAD' ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("dead messages: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (m DeadMessage, err error) {
		return m, row.Scan(&m.ID, &m.Reward.Player, &m.Reward.Event, &m.Reward.Amount, &m.Reason)
	})
}

// Dismiss settles dead messages by the word of a person who has looked: nothing is
// paid for them. It returns how many of ids were dead.
func Dismiss(ctx context.Context, pool *pgxpool.Pool, ids ...int64) (int, error) {
	tag, err := pool.Exec(ctx, `
		UPDATE reward_message SET status = 'DONE', outcome = 'dismissed', done_at = clock_timestamp()
		WHERE status = 'DEAD' AND id = ANY ($1)`, append([]int64{}, ids...))
	if err != nil {
		return 0, fmt.Errorf("dismiss: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

// ready counts the messages that are not settled, due or not.
func ready(ctx context.Context, pool *pgxpool.Pool) (n int, err error) {
	err = pool.QueryRow(ctx, `SELECT count(*) FROM reward_message WHERE status = 'READY'`).Scan(&n)
	return n, err
}

// text is what last_error holds for err. Others have a word in it, and PostgreSQL stores
// neither NUL nor what is not UTF-8: the row would not be marked.
func text(err error) *string {
	if err == nil {
		return nil
	}
	s := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "?"), "\x00", "?")
	return &s
}
