package rewards

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/tokens"
)

// ResendConfig says how [Resend] works.
type ResendConfig struct {
	// Pool leads to the primary with the reward tables. Required.
	Pool *pgxpool.Pool
	// Items is the base URL of the item server. Required.
	Items string
	// Locks is the lock service, from which the new tokens come. Required.
	Locks *clientsdk.Client
	// HTTPClient defaults to one with a timeout of 10 s.
	HTTPClient *http.Client
	// TTL of the lock of a reward. Defaults to 15 s.
	TTL time.Duration

	_ struct{}
}

func (c ResendConfig) withDefaults() (ResendConfig, error) {
	if c.Pool == nil || c.Items == "" || c.Locks == nil {
		return c, errors.New("resend: Pool, Items and Locks are required")
	}
	if c.TTL < 0 {
		return c, fmt.Errorf("resend: TTL is %v, must not be negative", c.TTL)
	}
	c.TTL = orElse(c.TTL, 15*time.Second)
	c.HTTPClient = orElse(c.HTTPClient, &http.Client{Timeout: 10 * time.Second})
	return c, nil
}

// Resent says what became of the rewards that [Resend] looked at.
type Resent struct {
	// Known to the item server, so left alone.
	Known int
	// Due again under a new token.
	Due int
	// Moved under Resend's hands: a publisher has taken the row meanwhile, or somebody
	// holds the lock. Run it again for these.
	Moved int
}

// Resend makes each reward of the ledger due again that the item server does not
// know, whatever its outbox row says: READY, DEAD, DONE, or gone. It is for the day
// after the item server's database was restored. That database has lost grants whose
// rows are DONE, and its raised floor refuses the tokens that the other rows carry,
// so [Replay] cannot help.
//
// The new token is that of a hold of the reward's lock, taken as a worker takes it,
// and it replaces the row's only upwards. The key stays the reward's own, so a grant
// that was made after all, or is being made at this moment, is only confirmed.
//
// It looks at the rewards with the given keys, or at all where none is given. It
// blocks until all have been looked at, or until the first error; what has been made
// due again stays so, and to call it again is safe.
func Resend(ctx context.Context, cfg ResendConfig, keys ...string) (Resent, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Resent{}, err
	}
	var total resentCount
	for after := int64(0); ; {
		page, err := payments(ctx, cfg.Pool, after, keys)
		if err != nil {
			return total.Resent, fmt.Errorf("resend: %w", err)
		}
		if len(page) == 0 {
			announce(ctx, cfg.Pool)
			return total.Resent, nil
		}
		if err := cfg.resendAll(ctx, page, &total); err != nil {
			return total.Resent, err
		}
		after = page[len(page)-1].id
	}
}

// payment is a ledger row with what its outbox row looked like when it was read.
type payment struct {
	Reward
	id    int64
	gen   int64        // of the outbox row; -1 where there is none
	token tokens.Token // of the outbox row, or of the ledger's
}

// resendPage is the number of rewards looked at, and at most locked, at once.
const resendPage = 16

func payments(ctx context.Context, pool *pgxpool.Pool, after int64, keys []string) ([]payment, error) {
	rows, err := pool.Query(ctx, `
		SELECT l.id, l.player_id, l.reward_event_id, l.amount,
		       coalesce(o.lease_gen, -1), coalesce(o.fence_token, l.fence_token)
		FROM reward_ledger l LEFT JOIN reward_outbox o ON o.idem_key = 'reward:' || l.player_id || ':' || l.reward_event_id
		WHERE l.id > $1
		  AND (cardinality($3::text[]) = 0 OR 'reward:' || l.player_id || ':' || l.reward_event_id = ANY ($3))
		ORDER BY l.id LIMIT $2`, after, resendPage, append([]string{}, keys...))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p payment, err error) {
		return p, row.Scan(&p.id, &p.Player, &p.Event, &p.Amount, &p.gen, (*int64)(&p.token))
	})
}

// resentCount adds up what several goroutines did.
type resentCount struct {
	mu sync.Mutex
	Resent
	err error
}

func (c *resentCount) add(one Resent, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Known += one.Known
	c.Due += one.Due
	c.Moved += one.Moved
	c.err = errors.Join(c.err, err)
}

func (c ResendConfig) resendAll(ctx context.Context, page []payment, total *resentCount) error {
	var all sync.WaitGroup
	for _, p := range page {
		all.Go(func() { total.add(c.resend(ctx, p)) })
	}
	all.Wait()
	return total.err
}

// resend asks for one reward and makes it due again if it is unknown.
func (c ResendConfig) resend(ctx context.Context, p payment) (Resent, error) {
	granted, err := Granted(ctx, c.HTTPClient, c.Items, p.Key())
	if err != nil {
		return Resent{}, fmt.Errorf("resend: %w", err)
	}
	if granted != nil {
		return Resent{Known: 1}, nil
	}
	hold, err := c.Locks.Acquire(ctx, p.Lock(), &clientsdk.AcquireOptions{TTL: c.TTL, Wait: 2 * c.TTL})
	switch {
	case errors.Is(err, clientsdk.ErrHeld):
		return Resent{Moved: 1}, nil
	case err != nil:
		return Resent{}, fmt.Errorf("resend %s: %w", p.Key(), err)
	}
	// A release that fails costs the next worker the rest of the TTL, no more.
	defer func() { _ = hold.Release(ctx) }()
	if hold.Token() <= p.token {
		return Resent{}, fmt.Errorf("resend %s: the lock service grants token %d, and the row has %d: raise the lock service's floor first",
			p.Key(), hold.Token(), p.token)
	}
	changed, err := dueAgain(hold.Context(), c.Pool, p, hold.Token())
	switch {
	case err != nil:
		return Resent{}, fmt.Errorf("resend %s: %w", p.Key(), err)
	case !changed:
		return Resent{Moved: 1}, nil
	}
	return Resent{Due: 1}, nil
}

// dueAgain makes the outbox row READY under token t, if it is as p saw it and its
// token is below t. A new lease_gen tells a publisher that has the row that its
// claim is over. A row that is gone is written anew: the ledger says what is owed.
func dueAgain(ctx context.Context, pool *pgxpool.Pool, p payment, t tokens.Token) (bool, error) {
	tag, err := pool.Exec(ctx, `
		INSERT INTO reward_outbox AS o (idem_key, agg_key, payload, fence_token)
		VALUES ($1, $2, jsonb_build_object('player', $2::text, 'event', $3::text, 'amount', $4::bigint), $5)
		ON CONFLICT ON CONSTRAINT reward_outbox_once DO UPDATE
		  SET status = 'READY', fence_token = EXCLUDED.fence_token, lease_gen = o.lease_gen + 1,
		      attempts = 0, next_at = clock_timestamp(), last_error = NULL, done_at = NULL
		  WHERE o.lease_gen = $6 AND o.fence_token < EXCLUDED.fence_token`,
		p.Key(), p.Player, p.Event, p.Amount, int64(t), p.gen)
	return tag.RowsAffected() == 1, err
}
