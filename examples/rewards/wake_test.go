package rewards_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/examples/rewards"
)

// eventually returns when cond holds; that it never does fails the test.
func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("it never came about")
		}
	}
}

func count(t *testing.T, pool *pgxpool.Pool, query string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

const (
	listeners = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN reward_outbox'`
	published = `SELECT count(*) FROM reward_outbox WHERE status = 'DONE'`
)

// pay has a real worker pay the rewards of a week.
func (s *stage) pay(t *testing.T, week int) {
	t.Helper()
	lockServer := sdktest.New()
	defer lockServer.Close()
	locks, err := clientsdk.New(lockServer.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	deliveries := rewards.Season(week, 4)
	if err := rewards.Deliver(t.Context(), s.pool, deliveries); err != nil {
		t.Fatal(err)
	}
	for i, r := range deliveries {
		if !slices.Contains(deliveries[:i], r) { // some come twice
			s.owed = append(s.owed, r)
		}
	}
	w, err := rewards.NewWorker(rewards.WorkerConfig{Pool: s.pool, Locks: locks, Drain: true, Poll: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

// start has run go on until stop, which returns when it has ended.
func start(t *testing.T, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// A publisher that polls once an hour publishes at once what a worker pays, also
// after it has lost the connection on which it listens, of which it has one.
func TestPublisher_is_woken(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0, 1)
	cfg := s.config(t)
	cfg.Drain, cfg.Poll = false, time.Hour
	p, err := rewards.NewPublisher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer start(t, p.Run)()

	for week, round := range []string{"first", "after the connection was lost"} {
		eventually(t, func() bool { return count(t, s.pool, listeners) == 1 })
		s.pay(t, week+1)
		eventually(t, func() bool { return count(t, s.pool, published) == len(s.owed) })
		s.check(t)
		if n := count(t, s.pool, listeners); n != 1 {
			t.Errorf("%s: %d connections listen, want 1", round, n)
		}
		_ = count(t, s.pool, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND query = 'LISTEN reward_outbox'`)
	}
}

// Nothing rests on the notifications: where none is sent, the poll finds the rows.
func TestPublisher_polls_what_nobody_announced(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0, 1)
	cfg := s.config(t)
	cfg.Drain = false
	p, err := rewards.NewPublisher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer start(t, p.Run)()
	eventually(t, func() bool { return count(t, s.pool, listeners) == 1 })
	id, err := rewards.Event{Season: "2026", Content: "week-34", Player: "p", Kind: "rank", Item: "1"}.ID()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rewards.Apply(t.Context(), s.pool, rewards.Reward{Player: "p", Event: id, Amount: 1}, 7); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return count(t, s.pool, published) == 1 })
}

// Fault: nobody listens at the item server's address for much longer than a row
// has attempts.
func TestPublisher_outage_burns_no_attempts(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20, 20)
	address, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := address.Addr().String()
	address.Close()
	cfg := s.config(t)
	cfg.Items, cfg.Attempts, cfg.HTTPClient = "http://"+host, 2, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	const batch, tries = 8, 60
	cfg.Batch = batch
	var calls atomic.Int64
	back := make(chan *httptest.Server, 1)
	cfg.At = func(step rewards.Step, _ string) {
		if step != rewards.Calling || calls.Add(1) != batch+tries {
			return
		}
		items := httptest.NewUnstartedServer(s.items.Config.Handler)
		items.Listener.Close()
		if items.Listener, err = net.Listen("tcp", host); err != nil {
			t.Error(err)
		}
		items.Start()
		back <- items
	}
	publish(t, cfg)
	select {
	case items := <-back:
		defer items.Close()
	default:
		t.Fatal("every row died before the item server was back")
	}
	s.check(t)
	if n := count(t, s.pool, "SELECT max(attempts) FROM reward_outbox"); n != 1 {
		t.Errorf("a row has %d attempts, want only the one that succeeded", n)
	}
	if n := calls.Load(); n > batch+tries+30 {
		t.Errorf("%d calls, want one batch, then one row at a time, then all of them", n)
	}
}

// A server that takes the connection and hangs up may choke on that row: this is
// an attempt, and a row has so many.
func TestPublisher_hanging_up_is_an_attempt(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 1)
	s.spoil = func(http.ResponseWriter, *http.Request, http.Handler) bool { panic(http.ErrAbortHandler) }
	cfg := s.config(t)
	cfg.Attempts = 2
	var dead error
	cfg.Alarm = func(_ string, reason error) { dead = reason }
	publish(t, cfg)
	if dead == nil || errors.Is(dead, context.Canceled) {
		t.Errorf("dead for %v, want the lost connection", dead)
	}
}
