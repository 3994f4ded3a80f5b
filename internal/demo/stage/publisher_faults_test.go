//go:build linux

package stage_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/internal/faultproxy"
)

// paid is a play whose rewards are in the ledger and the outbox, with an item
// server to be told.
func paid(t *testing.T, players int, itemFlags ...string) (p *play, items string) {
	t.Helper()
	p = newPlay(t, theStage)
	p.deliver(t, rewards.Season(nextWeek(), players)...)
	items, err := theStage.ItemServer(p.ctx, itemFlags...)
	if err != nil {
		t.Fatal(err)
	}
	p.finish(t, p.worker(t, "worker"))
	return p, items
}

// told checks that the item server has granted each reward once, and that the
// outbox is drained.
func (p *play) told(t *testing.T, items string) {
	t.Helper()
	if v := p.finish(t); v.Unpublished != 0 || v.DeadLetters != 0 {
		t.Errorf("outbox: %d unpublished, %d dead", v.Unpublished, v.DeadLetters)
	}
	v, err := rewards.VerifyItems(p.ctx, http.DefaultClient, items, p.owed)
	if err != nil {
		t.Fatal(err)
	}
	if !v.OK() {
		t.Errorf("the item server has not granted what is owed: %+v", v)
	}
}

// A publisher dies before its call, and between the answer and the mark.
func TestPublisher_killed(t *testing.T) {
	t.Parallel()
	for _, step := range []rewards.Step{rewards.Calling, rewards.Answered} {
		t.Run("at "+string(step), func(t *testing.T) {
			t.Parallel()
			p, items := paid(t, 5)
			victim := p.publisher(t, "victim", items, "--lease", "1s", "--fault", "kill", "--fault-at", string(step))
			p.fault(t, victim)
			faults.add("publisher killed at " + string(step))
			p.finish(t, p.publisher(t, "heir", items))
			p.told(t, items)
		})
	}
}

// One of two publishers is paused past its claim, on either side of the call.
func TestPublisher_paused_past_its_claim(t *testing.T) {
	t.Parallel()
	for _, step := range []rewards.Step{rewards.Calling, rewards.Answered} {
		t.Run("at "+string(step), func(t *testing.T) {
			t.Parallel()
			p, items := paid(t, 5)
			slow := p.publisher(t, "slow", items, "--lease", "1s", "--fault", "stop", "--fault-at", string(step))
			p.stopped(t, slow)
			faults.add("publisher paused at " + string(step))
			p.finish(t, p.publisher(t, "quick", items))
			if err := slow.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			p.finish(t, slow)
			p.told(t, items)
		})
	}
}

// The item server's answers are lost after the effect, with tokens and without.
func TestPublisher_answers_lost(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"fenced": nil, "a server that ignores tokens": {"--ignore-tokens"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, items := paid(t, 5, flags...)
			proxy := proxyTo(t, items)
			var (
				seen sync.Map
				lost atomic.Int64
			)
			proxy.Decide(func(r *http.Request) faultproxy.Fault {
				if _, again := seen.LoadOrStore(r.Header.Get("Idempotency-Key"), true); again {
					return faultproxy.Fault{}
				}
				lost.Add(1)
				faults.add("answer of the item server lost")
				return faultproxy.Fault{DropAnswer: true}
			})
			p.finish(t, p.publisher(t, "publisher", proxy.URL()))
			if got := lost.Load(); got != int64(len(p.owed)) {
				t.Errorf("%d answers were lost, want one of each of %d", got, len(p.owed))
			}
			p.told(t, items)
		})
	}
}

// PostgreSQL commits the rows of one player in another order than it numbered them.
func TestPublisher_id_order_is_not_commit_order(t *testing.T) {
	t.Parallel()
	p, items := paid(t, 0)
	early, late := one(t, 1), one(t, 2)
	tx, err := p.Pool.Begin(p.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(p.ctx)
	if err := insertPaid(p, tx, early); err != nil {
		t.Fatal(err)
	}
	p.deliver(t, late)
	p.finish(t, p.worker(t, "worker")) // numbered after early, committed before it
	p.finish(t, p.publisher(t, "publisher", items))
	p.told(t, items)
	if err := tx.Commit(p.ctx); err != nil {
		t.Fatal(err)
	}
	faults.add("outbox rows committed out of order")
	p.owed = append(p.owed, early)
	p.finish(t, p.publisher(t, "publisher", items))
	p.told(t, items)
}

// insertPaid writes the rows of a paid reward in tx.
func insertPaid(p *play, tx pgx.Tx, r rewards.Reward) error {
	_, err := tx.Exec(p.ctx, `
		WITH c AS (INSERT INTO reward_claim (player_id, reward_event_id, fence_token, status) VALUES ($1, $2, 1, 'APPLIED') RETURNING claim_id),
		     l AS (INSERT INTO reward_ledger (player_id, reward_event_id, amount, claim_id, fence_token) SELECT $1, $2, $3, claim_id, 1 FROM c)
		INSERT INTO reward_outbox (idem_key, agg_key, payload, fence_token)
		VALUES ($4, $1, jsonb_build_object('player', $1::text, 'event', $2::text, 'amount', $3::bigint), 1)`,
		r.Player, r.Event, r.Amount, r.Key())
	return err
}
