package rewards_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// ledger returns a database with the reward tables.
func ledger(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.New(t)
	if err := rewards.Install(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return pool
}

func TestApply_outcomes(t *testing.T) {
	t.Parallel()
	pool := ledger(t)
	type step struct {
		do    string // apply or claim
		token tokens.Token
		want  string
	}
	for name, steps := range map[string][]step{
		"the first ever claim":              {{"apply", 7, "applied"}},
		"a lost answer":                     {{"apply", 7, "applied"}, {"apply", 7, "replayed"}},
		"a second delivery":                 {{"apply", 7, "applied"}, {"apply", 8, "already_applied"}, {"apply", 9, "already_applied"}},
		"a worker that was overtaken":       {{"apply", 8, "applied"}, {"apply", 7, "stale at 8"}},
		"a dropped repeat raises no fence":  {{"apply", 7, "applied"}, {"apply", 9, "already_applied"}, {"apply", 8, "already_applied"}},
		"claim, then apply, one grant":      {{"claim", 7, "claimed"}, {"apply", 7, "applied"}, {"claim", 7, "paid"}},
		"claim twice, one grant":            {{"claim", 7, "claimed"}, {"claim", 7, "claimed"}, {"apply", 7, "applied"}},
		"a claim taken over":                {{"claim", 7, "claimed"}, {"claim", 8, "claimed"}, {"apply", 7, "stale at 8"}, {"apply", 8, "applied"}},
		"a claim taken over by the payment": {{"claim", 7, "claimed"}, {"apply", 8, "applied"}, {"apply", 7, "stale at 8"}, {"claim", 7, "stale at 8"}},
		"a later claim of what is paid":     {{"apply", 7, "applied"}, {"claim", 8, "paid"}},
		"an old claim":                      {{"claim", 8, "claimed"}, {"claim", 7, "stale at 8"}},
		"the highest token":                 {{"apply", tokens.Max, "applied"}, {"apply", tokens.Max - 1, fmt.Sprintf("stale at %d", tokens.Max)}},
		"tokens beyond the bounds":          {{"apply", tokens.Max + 1, "invalid"}, {"apply", 0, "invalid"}, {"apply", -1, "invalid"}, {"apply", 1, "applied"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := aReward(strings.NewReplacer(", ", "-", " ", "-").Replace(name))
			for i, s := range steps {
				if got := do(t, pool, s.do, r, s.token); got != s.want {
					t.Errorf("step %d, %s under %d: %s, want %s", i+1, s.do, s.token, got, s.want)
				}
			}
		})
	}
}

// do runs one step and says in a word what came of it.
func do(t *testing.T, pool *pgxpool.Pool, what string, r rewards.Reward, token tokens.Token) string {
	t.Helper()
	var (
		outcome rewards.Outcome
		paid    bool
		err     error
	)
	if what == "apply" {
		outcome, err = rewards.Apply(t.Context(), pool, r, token)
	} else {
		paid, err = rewards.Claim(t.Context(), pool, r, token)
		outcome = map[bool]rewards.Outcome{true: "paid", false: "claimed"}[paid]
	}
	var stale *tokens.StaleError
	switch {
	case errors.As(err, &stale):
		if stale.Presented != token || stale.Resource != r.Lock() {
			t.Errorf("stale error = %+v, want presented %d of %s", stale, token, r.Lock())
		}
		return fmt.Sprintf("stale at %d", stale.Current)
	case errors.Is(err, tokens.ErrInvalid):
		return "invalid"
	case err != nil:
		return err.Error()
	}
	return string(outcome)
}

func TestApply_writes_all_rows_or_none(t *testing.T) {
	t.Parallel()
	pool, r := ledger(t), aReward("1")
	if _, err := rewards.Apply(t.Context(), pool, r, 7); err != nil {
		t.Fatal(err)
	}
	var key, agg, event string
	var amount, token int64
	var same bool
	err := pool.QueryRow(t.Context(), `
		SELECT o.idem_key, o.agg_key, o.payload->>'event', (o.payload->>'amount')::bigint, o.fence_token,
		       l.claim_id = c.claim_id AND l.fence_token = c.fence_token
		FROM reward_outbox o, reward_ledger l, reward_claim c`).Scan(&key, &agg, &event, &amount, &token, &same)
	if err != nil {
		t.Fatal(err)
	}
	if key != r.Key() || agg != r.Player || event != r.Event || amount != r.Amount || token != 7 || !same {
		t.Errorf("outbox row %q of %q, event %q, amount %d, token %d, claim and ledger agree: %t", key, agg, event, amount, token, same)
	}

	// An outbox row in the way undoes claim and ledger too.
	blocked := aReward("2")
	if _, err := pool.Exec(t.Context(), `INSERT INTO reward_outbox (idem_key, agg_key, payload, fence_token) VALUES ($1, 'x', '{}', 1)`, blocked.Key()); err != nil {
		t.Fatal(err)
	}
	if outcome, err := rewards.Apply(t.Context(), pool, blocked, 7); !errors.Is(err, tokens.ErrRetryable) {
		t.Errorf("Apply = %q, %v, want ErrRetryable", outcome, err)
	}
	if v := verdict(t, pool, []rewards.Reward{r}); !v.OK() {
		t.Errorf("after a refused outbox row: %+v", v)
	}
}

func TestApply_refuses_another_amount(t *testing.T) {
	t.Parallel()
	pool, r := ledger(t), aReward("1")
	if _, err := rewards.Apply(t.Context(), pool, r, 7); err != nil {
		t.Fatal(err)
	}
	more := r
	more.Amount++
	if outcome, err := rewards.Apply(t.Context(), pool, more, 8); !errors.Is(err, rewards.ErrMismatch) {
		t.Errorf("Apply = %q, %v, want ErrMismatch", outcome, err)
	}
	if outcome, err := rewards.Apply(t.Context(), pool, more, 6); !errors.Is(err, tokens.ErrStale) {
		t.Errorf("Apply under an old token = %q, %v, want ErrStale", outcome, err)
	}
	if v := verdict(t, pool, []rewards.Reward{r}); !v.OK() {
		t.Errorf("verdict %+v", v)
	}
}

func TestApply_refuses_a_reward_it_cannot_pay(t *testing.T) {
	t.Parallel()
	pool, r := ledger(t), aReward("1")
	r.Amount = 0
	if _, err := rewards.Apply(t.Context(), pool, r, 7); !errors.Is(err, rewards.ErrReward) {
		t.Errorf("Apply of nothing = %v, want ErrReward", err)
	}
	r = aReward("1")
	r.Event = "whatever"
	if _, err := rewards.Apply(t.Context(), pool, r, 7); !errors.Is(err, rewards.ErrEventID) {
		t.Errorf("Apply of a bad event = %v, want ErrEventID", err)
	}
}

// Fifty at once, each reward under many tokens: each is paid once, and whoever is
// told "paid by me" is the only one.
func TestApply_hammer(t *testing.T) {
	t.Parallel()
	pool := ledger(t)
	const rivals, rounds = 50, 20
	var owed []rewards.Reward
	for i := range rounds {
		owed = append(owed, aReward(fmt.Sprint(i)))
	}
	var mu sync.Mutex
	applied := make(map[string]int)
	var all sync.WaitGroup
	for rival := range rivals {
		all.Go(func() {
			for i, r := range owed {
				token := tokens.Token(1 + (rival*7+i*13)%rivals)
				outcome, err := rewards.Apply(t.Context(), pool, r, token)
				if err != nil && !errors.Is(err, tokens.ErrStale) {
					t.Errorf("Apply under %d: %v", token, err)
				}
				if outcome == rewards.Applied {
					mu.Lock()
					applied[r.Key()]++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	for _, r := range owed {
		if applied[r.Key()] != 1 {
			t.Errorf("%s was applied %d times, want once", r.Key(), applied[r.Key()])
		}
	}
	if v := verdict(t, pool, owed); !v.OK() || v.Unpublished != len(owed) {
		t.Errorf("verdict %+v, want all paid and in the outbox", v)
	}
}

func TestSchema_bounds_tokens(t *testing.T) {
	t.Parallel()
	pool := ledger(t)
	for _, token := range []int64{0, -1, int64(tokens.Max) + 1} {
		_, err := pool.Exec(t.Context(), `INSERT INTO reward_claim (player_id, reward_event_id, fence_token, status) VALUES ('1', 'e', $1, 'CLAIMED')`, token)
		if err == nil {
			t.Errorf("token %d entered the claim: it would lock everybody out", token)
		}
	}
}

func TestInstall_may_run_again_and_at_once(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := rewards.Install(t.Context(), pool); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestApply_ends_with_its_context(t *testing.T) {
	t.Parallel()
	pool, r := ledger(t), aReward("1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if outcome, err := rewards.Apply(ctx, pool, r, 7); !errors.Is(err, context.Canceled) {
		t.Errorf("Apply = %q, %v, want context.Canceled", outcome, err)
	}
	if v := verdict(t, pool, nil); v.Paid != 0 {
		t.Errorf("paid %d after an ended context", v.Paid)
	}
}

func verdict(t *testing.T, pool *pgxpool.Pool, owed []rewards.Reward) rewards.Verdict {
	t.Helper()
	v, err := rewards.Verify(t.Context(), pool, owed)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
