//go:build linux

package stage_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/internal/demo/stage"
	"github.com/fenced/fenced/internal/faultproxy"
)

const ttl = time.Second

// A worker is stopped at each step, for as long as its lease and longer, while a
// second delivery of its reward is with another worker.
func TestWorker_paused(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{ttl + time.Millisecond, 2 * ttl, 10 * ttl} {
		t.Run(fmt.Sprint("for ", pause), func(t *testing.T) {
			t.Parallel()
			if pause > 2*ttl && testing.Short() {
				t.Skip("takes ten seconds")
			}
			plays := make([]*play, len(rewards.Steps))
			slow, quick := make([]*stage.Process, len(plays)), make([]*stage.Process, len(plays))
			for i, step := range rewards.Steps {
				p := newPlay(t, theStage)
				r := one(t, 1)
				p.deliver(t, r, r)
				slow[i] = p.worker(t, "slow", "--concurrency", "1", "--forget-hold", "--fault", "stop", "--fault-at", string(step))
				p.stopped(t, slow[i])
				faults.add("worker paused at " + string(step))
				quick[i] = p.worker(t, "quick", "--concurrency", "1")
				plays[i] = p
			}
			time.Sleep(pause) // the length of the pause is the fault
			for i, p := range plays {
				if err := slow[i].Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				p.finish(t, slow[i], quick[i])
			}
		})
	}
}

// The pause of the product's first sentence: the successor has written before the
// first holder goes on.
func TestWorker_that_was_overtaken_is_refused(t *testing.T) {
	t.Parallel()
	p := newPlay(t, theStage)
	r := one(t, 1)
	p.deliver(t, r, r)
	slow := p.worker(t, "slow", "--concurrency", "1", "--forget-hold", "--fault", "stop", "--fault-at", string(rewards.Looked))
	late := p.stopped(t, slow)
	faults.add("worker paused at looked")
	quick := p.worker(t, "quick", "--concurrency", "1")
	paid := p.attempt(t, quick, r.Key(), rewards.Applied)
	if err := slow.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	refused := p.attempt(t, slow, r.Key(), "stale")
	if refused.Token != late.Token || refused.Current != paid.Token || paid.Token <= late.Token {
		t.Errorf("refused %d at %d, want %d refused at %d", refused.Token, refused.Current, late.Token, paid.Token)
	}
	v := p.finish(t, slow, quick)
	if v.Dropped != 1 {
		t.Errorf("%d messages dropped, want the second one", v.Dropped)
	}
}

// The SDK stops a worker before its write, and nobody else has the message: it must
// not be forgotten.
func TestWorker_that_was_stopped_by_the_SDK_tries_again(t *testing.T) {
	t.Parallel()
	p := newPlay(t, theStage)
	r := one(t, 1)
	p.deliver(t, r)
	w := p.worker(t, "worker", "--concurrency", "1", "--fault", "stop", "--fault-at", string(rewards.Held))
	p.stopped(t, w)
	faults.add("worker paused at held")
	time.Sleep(2 * ttl) // the length of the pause is the fault
	if err := w.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.attempt(t, w, r.Key(), "lost")
	p.attempt(t, w, r.Key(), rewards.Applied)
	p.finish(t, w)
}

// A worker is killed right before and right after its statement commits, and at
// every other step. Its message comes back.
func TestWorker_killed(t *testing.T) {
	t.Parallel()
	for _, step := range rewards.Steps {
		t.Run("at "+string(step), func(t *testing.T) {
			t.Parallel()
			p := newPlay(t, theStage)
			r := one(t, 1)
			p.deliver(t, r)
			victim := p.worker(t, "victim", "--visibility", "2s", "--fault", "kill", "--fault-at", string(step))
			p.fault(t, victim)
			if err := victim.Wait(p.ctx); err == nil {
				t.Fatal("the victim ended well")
			}
			faults.add("worker killed at " + string(step))
			v := p.finish(t, p.worker(t, "heir"))
			if afterCommit := step == rewards.Paid; afterCommit && v.Dropped != 1 {
				t.Errorf("%d messages dropped, want the one that was paid before the kill", v.Dropped)
			}
		})
	}
}

// Many consumers, in several processes, are given the same reward at once.
func TestWorker_fifty_consumers_of_one_message(t *testing.T) {
	t.Parallel()
	p := newPlay(t, theStage)
	r := one(t, 1)
	for range 50 {
		p.deliver(t, r)
	}
	var all []*stage.Process
	for i := range 5 {
		all = append(all, p.worker(t, fmt.Sprint("worker-", i), "--concurrency", "10", "--lock-wait", "20s"))
	}
	v := p.finish(t, all...)
	if v.Dropped != 49 {
		t.Errorf("%d messages dropped, want 49", v.Dropped)
	}
	faults.add("fifty consumers of one message")
}

// The network between a worker and the lock service goes while its write waits for
// the database: it cannot renew, its lease ends, a successor comes. Whichever of
// the two writes PostgreSQL lets through first, one is paid.
func TestWorker_cannot_renew_while_it_writes(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string][]string{"with the hold's context": nil, "with a context that outlives it": {"--forget-hold"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlay(t, theStage)
			r := one(t, 1)
			p.deliver(t, r, r)

			write := p.holdUp(t, r)
			proxy := proxyTo(t, p.Server)
			direct := p.Server
			p.Server = proxy.URL()
			cut := p.worker(t, "cut off", append(forget, "--concurrency", "1")...)
			const waiting = `SELECT count(*) >= $1 FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%reward_claim%'`
			p.eventually(t, waiting, 1)
			proxy.Partition(true)
			faults.add("network cut during a write")
			p.Server = direct
			heir := p.worker(t, "heir", "--concurrency", "1")
			p.record(t, heir, func(rewards.Record) bool { return true })
			p.eventually(t, waiting, len(forget)+1) // the heir, and whoever forgot its hold
			if err := write.Rollback(p.ctx); err != nil {
				t.Fatal(err)
			}
			p.attempt(t, heir, r.Key(), rewards.Applied, rewards.AlreadyApplied)
			proxy.Partition(false)
			p.finish(t, cut, heir)
		})
	}
}

// Renewals of a worker whose write waits for the database reach the server after the
// lease has ended, or in time and only their answers come late. The worker's write is
// ended with its hold, and the reward is paid once.
func TestWorker_renewals_delayed_past_the_lease(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]faultproxy.Fault{
		"requests": {Delay: 2 * ttl, KeepOpen: true}, "answers": {DelayAnswer: 2 * ttl},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlay(t, theStage)
			r := one(t, 1)
			p.deliver(t, r, r)
			write := p.holdUp(t, r)
			proxy := proxyTo(t, p.Server)
			var renewals atomic.Int64
			proxy.Decide(func(r *http.Request) faultproxy.Fault {
				if !strings.HasSuffix(r.URL.Path, "/renew") {
					return faultproxy.Fault{}
				}
				renewals.Add(1)
				return late
			})
			direct := p.Server
			p.Server = proxy.URL()
			slow := p.worker(t, "slow", "--concurrency", "1")
			p.Server = direct
			ended := p.attempt(t, slow, r.Key(), "failed")
			// Nothing but the hold's own context ends a write of a worker that goes on.
			if renewals.Load() == 0 || ended.Token == 0 || !strings.Contains(ended.Error, "context canceled") {
				t.Errorf("%d renewals were late, and the attempt was %+v", renewals.Load(), ended)
			}
			faults.add("renewals delayed past the lease")
			proxy.Decide(func(*http.Request) faultproxy.Fault { return faultproxy.Fault{} })
			if err := write.Rollback(p.ctx); err != nil {
				t.Fatal(err)
			}
			p.finish(t, slow, p.worker(t, "quick"))
		})
	}
}

// holdUp keeps the writes of r waiting, with a row in the making, until the transaction
// ends.
func (p *play) holdUp(t *testing.T, r rewards.Reward) pgx.Tx {
	t.Helper()
	tx, err := p.Pool.Begin(p.ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(p.ctx)) })
	if _, err := tx.Exec(p.ctx, `INSERT INTO reward_claim (player_id, reward_event_id, fence_token, status)
		VALUES ($1, $2, 1, 'CLAIMED')`, r.Player, r.Event); err != nil {
		t.Fatal(err)
	}
	return tx
}

// Two messages name one reward with different amounts. The first is paid; the other
// is put aside for a person, and does not come back for ever.
func TestWorker_contradictory_message_is_dead(t *testing.T) {
	t.Parallel()
	p := newPlay(t, theStage)
	r := one(t, 1)
	more := r
	more.Amount++
	if err := rewards.Deliver(p.ctx, p.Pool, []rewards.Reward{r, more}); err != nil {
		t.Fatal(err)
	}
	w := p.worker(t, "worker", "--concurrency", "1")
	if err := w.Wait(p.ctx); err != nil {
		t.Fatal(err)
	}
	v, err := rewards.Verify(p.ctx, p.Pool, []rewards.Reward{r})
	if err != nil || v.Paid != 1 || v.Dead != 1 || len(v.Wrong) != 0 || v.OK() {
		t.Errorf("verdict %+v, %v, want the first amount paid and one dead message", v, err)
	}
}
