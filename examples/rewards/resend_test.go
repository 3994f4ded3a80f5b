package rewards_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/tokens"
)

// fakeLocks returns a client of a lock service that is the SDK's fake.
func fakeLocks(t *testing.T) *clientsdk.Client {
	t.Helper()
	srv := sdktest.New()
	t.Cleanup(srv.Close)
	locks, err := clientsdk.New(srv.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	return locks
}

// locksAbove returns a client of a lock service whose next token is above t.
func locksAbove(t *testing.T, above tokens.Token) *clientsdk.Client {
	t.Helper()
	locks := fakeLocks(t)
	for token := tokens.Token(0); token < above; {
		hold, err := locks.Acquire(t.Context(), "count", nil)
		if err != nil {
			t.Fatal(err)
		}
		token = hold.Token()
		if err := hold.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return locks
}

// resend runs Resend under tokens above those of the stage.
func (s *stage) resend(t *testing.T, keys ...string) rewards.Resent {
	t.Helper()
	n, err := rewards.Resend(t.Context(), s.resending(locksAbove(t, 7)), keys...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (s *stage) resending(locks *clientsdk.Client) rewards.ResendConfig {
	return rewards.ResendConfig{Pool: s.pool, Items: s.items.URL, HTTPClient: s.items.Client(), Locks: locks}
}

func (s *stage) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := s.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func (s *stage) is(t *testing.T, sql string, args ...any) (ok bool) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), sql, args...).Scan(&ok); err != nil {
		t.Fatal(err)
	}
	return ok
}

// Whatever the outbox says of a reward that the item server does not know, it is sent
// again, under a higher token; what is known is left alone.
func TestResend_whatever_the_outbox_says(t *testing.T) {
	t.Parallel()
	s := newStage(t, 40, 8) // more than one page
	known := s.owed[0]
	s.exec(t, `UPDATE reward_outbox SET status = 'DONE' WHERE idem_key <> $1`, known.Key())
	publish(t, s.config(t)) // the known one alone
	s.exec(t, `UPDATE reward_outbox SET status = (ARRAY['READY', 'DONE', 'DEAD'])[1 + id % 3] WHERE idem_key <> $1`, known.Key())
	s.exec(t, `DELETE FROM reward_outbox WHERE idem_key = $1`, s.owed[5].Key())

	if got, want := s.resend(t), (rewards.Resent{Known: 1, Due: 39}); got != want {
		t.Errorf("Resend = %+v, want %+v", got, want)
	}
	if !s.is(t, `SELECT bool_and(status = 'READY' AND attempts = 0 AND fence_token > 7) FROM reward_outbox WHERE idem_key <> $1`, known.Key()) {
		t.Error("a row is not due under a higher token")
	}
	if !s.is(t, `SELECT status = 'DONE' AND fence_token = 7 FROM reward_outbox WHERE idem_key = $1`, known.Key()) {
		t.Error("the row of a reward that is known was changed")
	}
	publish(t, s.config(t))
	s.check(t)
	if got, want := s.resend(t), (rewards.Resent{Known: 40}); got != want {
		t.Errorf("Resend of what is granted = %+v, want %+v", got, want)
	}
}

func TestResend_of_named_keys(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3, 3)
	if got, want := s.resend(t, s.owed[1].Key(), "no such key"), (rewards.Resent{Due: 1}); got != want {
		t.Errorf("Resend = %+v, want %+v", got, want)
	}
	if !s.is(t, `SELECT count(*) = 1 FROM reward_outbox WHERE fence_token > 7`) {
		t.Error("another row than the named one was changed")
	}
}

// Fault: a publisher takes the row between the question and the write. The row is
// its, and stays as it is.
func TestResend_leaves_a_row_that_was_taken_meanwhile(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 1)
	cfg := s.resending(locksAbove(t, 7))
	cfg.HTTPClient = &http.Client{Transport: before(func() {
		s.exec(t, `UPDATE reward_outbox SET lease_gen = lease_gen + 1, next_at = next_at + interval '1 minute'`)
	})}
	n, err := rewards.Resend(t.Context(), cfg)
	if want := (rewards.Resent{Moved: 1}); n != want || err != nil {
		t.Errorf("Resend = %+v, %v, want %+v", n, err, want)
	}
	if !s.is(t, `SELECT lease_gen = 1 AND fence_token = 7 FROM reward_outbox`) {
		t.Error("the row was changed")
	}
}

// Somebody keeps the lock of one reward. Those behind it must not wait for a person who
// names them one by one.
func TestResend_goes_on_where_a_lock_is_held(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20, 1) // more than one page
	cfg := s.resending(locksAbove(t, 7))
	cfg.TTL = time.Second
	hold, err := cfg.Locks.Acquire(t.Context(), s.owed[0].Lock(), nil)
	if err != nil {
		t.Fatal(err)
	}
	n, err := rewards.Resend(t.Context(), cfg)
	if want := (rewards.Resent{Due: 19, Moved: 1}); n != want || err != nil {
		t.Errorf("Resend = %+v, %v, want %+v", n, err, want)
	}
	if err := hold.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// before runs f before each request.
type before func()

func (f before) RoundTrip(r *http.Request) (*http.Response, error) {
	f()
	return http.DefaultTransport.RoundTrip(r)
}

// A claim that was taken before is over once the row is due under a new token: what
// that publisher hears under the old one must not make the row dead.
func TestResend_ends_the_claim_of_a_publisher(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 1)
	s.spoil = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.Header.Get(tokens.Header) != "7" {
			return false
		}
		w.WriteHeader(http.StatusPreconditionFailed)
		return true
	}
	slow := s.config(t)
	slow.At = func(step rewards.Step, _ string) {
		if step == rewards.Answered && s.is(t, `SELECT fence_token = 7 FROM reward_outbox`) {
			if got, want := s.resend(t), (rewards.Resent{Due: 1}); got != want {
				t.Errorf("Resend = %+v, want %+v", got, want)
			}
		}
	}
	publish(t, slow) // its Alarm fails the test
	s.check(t)
}

// A lock service that has forgotten its tokens must not lower a row's.
func TestResend_refuses_a_token_that_is_not_higher(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 1)
	n, err := rewards.Resend(t.Context(), s.resending(locksAbove(t, 0)))
	if err == nil || !strings.Contains(err.Error(), "raise the lock service's floor") || n != (rewards.Resent{}) {
		t.Errorf("Resend = %+v, %v, want an error that names the floor", n, err)
	}
	if !s.is(t, `SELECT fence_token = 7 AND lease_gen = 0 FROM reward_outbox`) {
		t.Error("the row was changed")
	}
}

func TestResend_refuses(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0, 1)
	locks := locksAbove(t, 0)
	for name, cfg := range map[string]rewards.ResendConfig{
		"no pool":         {Items: s.items.URL, Locks: locks},
		"no item server":  {Pool: s.pool, Locks: locks},
		"no lock service": {Pool: s.pool, Items: s.items.URL},
		"negative TTL":    {Pool: s.pool, Items: s.items.URL, Locks: locks, TTL: -1},
	} {
		if _, err := rewards.Resend(t.Context(), cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
