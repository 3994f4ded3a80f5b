package rewards

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/tokens"
)

// An Outcome says how a reward came to be paid, as far as this call is concerned.
// After each of them the reward is in the ledger exactly once.
type Outcome string

const (
	// Applied: this call paid it.
	Applied Outcome = "applied"
	// Replayed: an earlier attempt under the same token paid it, and its answer
	// was lost.
	Replayed Outcome = "replayed"
	// AlreadyApplied: an earlier grant paid it. Nothing was written.
	AlreadyApplied Outcome = "already_applied"
)

// ErrMismatch: the reward was paid with another amount. Nothing was written. No
// retry helps: two messages contradict each other and a person must look.
var ErrMismatch = errors.New("paid with another amount")

// errRaced: the row changed between the write that met it and the look at it.
var errRaced = errors.New("claim changed under the classification")

const applySQL = `
WITH claim AS (
  INSERT INTO reward_claim AS c (player_id, reward_event_id, fence_token, status)
  VALUES ($1, $2, $3, 'APPLIED')
  ON CONFLICT (player_id, reward_event_id) DO UPDATE
    SET fence_token = EXCLUDED.fence_token, status = 'APPLIED', updated_at = clock_timestamp()
  WHERE c.status = 'CLAIMED' AND c.fence_token <= EXCLUDED.fence_token
  RETURNING claim_id, player_id, reward_event_id, fence_token),
ledger AS (
  INSERT INTO reward_ledger (player_id, reward_event_id, amount, claim_id, fence_token)
  SELECT player_id, reward_event_id, $4, claim_id, fence_token FROM claim),
outbox AS (
  INSERT INTO reward_outbox (idem_key, agg_key, payload, fence_token)
  SELECT $5, player_id,
         jsonb_build_object('player', player_id, 'event', reward_event_id, 'amount', $4::bigint), fence_token
  FROM claim)
SELECT claim_id::text FROM claim`

// Apply pays r under token t: claim, ledger row and outbox row in one statement
// that commits by itself, so that no pause of this process can fall between the
// comparison of the token and the write, and no row stays locked behind it.
//
// It repeats the statement while PostgreSQL is busy, restarts, or loses an answer,
// until ctx ends or some ten attempts have failed; then the error wraps
// [tokens.ErrBusy], [tokens.ErrRetryable] or [tokens.ErrUnknownOutcome], and in the
// last case the reward may have been paid. Calling again with a newer token is
// always safe.
//
// A token below that of the claim gives a *[tokens.StaleError]; a paid reward with
// another amount [ErrMismatch]; a malformed reward or token [ErrReward],
// [ErrEventID] or [tokens.ErrInvalid], before the database is asked.
func Apply(ctx context.Context, pool *pgxpool.Pool, r Reward, t tokens.Token) (Outcome, error) {
	return fenced(ctx, r, t, func() (Outcome, error) {
		var claim string
		err := pool.QueryRow(ctx, applySQL, r.Player, r.Event, int64(t), r.Amount, r.Key()).Scan(&claim)
		if errors.Is(err, pgx.ErrNoRows) {
			return classify(ctx, pool, r, t)
		}
		return Applied, err
	})
}

const claimSQL = `
INSERT INTO reward_claim AS c (player_id, reward_event_id, fence_token, status)
VALUES ($1, $2, $3, 'CLAIMED')
ON CONFLICT (player_id, reward_event_id) DO UPDATE
  SET fence_token = EXCLUDED.fence_token, updated_at = clock_timestamp()
WHERE c.status = 'CLAIMED' AND c.fence_token <= EXCLUDED.fence_token
RETURNING claim_id::text`

// Claim marks r as being worked on under token t, for work that needs time between
// the claim and [Apply]: from then on every lower token is refused. It pays
// nothing. Its errors are those of Apply. paid reports that an earlier grant, or
// this one, has paid r; then there is nothing left to do.
func Claim(ctx context.Context, pool *pgxpool.Pool, r Reward, t tokens.Token) (paid bool, err error) {
	outcome, err := fenced(ctx, r, t, func() (Outcome, error) {
		var claim string
		err := pool.QueryRow(ctx, claimSQL, r.Player, r.Event, int64(t)).Scan(&claim)
		if errors.Is(err, pgx.ErrNoRows) {
			return classify(ctx, pool, r, t)
		}
		return "", err
	})
	return outcome == Replayed || outcome == AlreadyApplied, err
}

// fenced checks the arguments, runs the statement by the rules of retry and says
// in the error which reward it was about.
func fenced(ctx context.Context, r Reward, t tokens.Token, statement func() (Outcome, error)) (Outcome, error) {
	err := r.Validate()
	if err == nil && !t.Valid() {
		err = fmt.Errorf("token %d: %w", int64(t), tokens.ErrInvalid)
	}
	var outcome Outcome
	if err == nil {
		outcome, err = retry(ctx, statement)
	}
	if err != nil {
		return "", fmt.Errorf("reward %s: %w", r.Key(), err)
	}
	return outcome, nil
}

// classify says why the statement wrote nothing. It is a statement of its own,
// with a snapshot of its own: the one that was refused may have waited for a row
// lock and would report the row as it was before the wait.
func classify(ctx context.Context, pool *pgxpool.Pool, r Reward, t tokens.Token) (Outcome, error) {
	var (
		status  string
		current int64
		amount  *int64
	)
	err := pool.QueryRow(ctx, `
		SELECT c.status, c.fence_token, l.amount FROM reward_claim c
		LEFT JOIN reward_ledger l USING (player_id, reward_event_id)
		WHERE player_id = $1 AND reward_event_id = $2`, r.Player, r.Event).Scan(&status, &current, &amount)
	applied := status == "APPLIED"
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", errRaced
	case err != nil:
		return "", err
	case tokens.Token(current) > t:
		return "", &tokens.StaleError{Resource: r.Lock(), Presented: t, Current: tokens.Token(current)}
	case !applied:
		return "", errRaced
	case amount == nil:
		return "", fmt.Errorf("%w: the claim is applied and the ledger has no row", ErrMismatch)
	case *amount != r.Amount:
		return "", fmt.Errorf("%w: ledger %d, message %d", ErrMismatch, *amount, r.Amount)
	case tokens.Token(current) == t:
		return Replayed, nil
	default:
		return AlreadyApplied, nil
	}
}
