package rewards_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/examples/rewards/itemserver"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

// stage is a ledger with paid rewards, and a real item server whose answers a test
// may spoil.
type stage struct {
	pool  *pgxpool.Pool
	store *pgxpool.Pool // of the item server
	items *httptest.Server
	owed  []rewards.Reward
	// spoil is asked at each POST before the item server sees it; true means that
	// it has answered in its place. Set it before the first request.
	spoil func(w http.ResponseWriter, r *http.Request, items http.Handler) bool
	asked atomic.Int64
}

// newStage pays so many rewards of the players in turn.
func newStage(t *testing.T, n, players int) *stage {
	t.Helper()
	s := &stage{pool: ledger(t)}
	s.store = pgtest.New(t)
	if err := itemserver.Install(t.Context(), s.store); err != nil {
		t.Fatal(err)
	}
	items, err := itemserver.New(itemserver.Config{Pool: s.store})
	if err != nil {
		t.Fatal(err)
	}
	s.items = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			s.asked.Add(1)
			if s.spoil != nil && s.spoil(w, r, items) {
				return
			}
		}
		items.ServeHTTP(w, r)
	}))
	t.Cleanup(s.items.Close)
	for i := range n {
		p := fmt.Sprint(i % players)
		id, err := rewards.Event{Season: "2026", Content: "week-34", Player: p, Kind: "rank", Item: fmt.Sprint(i)}.ID()
		if err != nil {
			t.Fatal(err)
		}
		r := rewards.Reward{Player: p, Event: id, Amount: int64(i + 1)}
		if _, err := rewards.Apply(t.Context(), s.pool, r, 7); err != nil {
			t.Fatal(err)
		}
		s.owed = append(s.owed, r)
	}
	return s
}

func (s *stage) config(t *testing.T) rewards.PublisherConfig {
	return rewards.PublisherConfig{
		Pool: s.pool, Items: s.items.URL, Drain: true, HTTPClient: s.items.Client(),
		Poll: 10 * time.Millisecond, FirstRetry: time.Millisecond, LongestRetry: 10 * time.Millisecond,
		Alarm: func(key string, reason error) { t.Errorf("dead letter %s: %v", key, reason) },
	}
}

func publish(t *testing.T, cfg rewards.PublisherConfig) {
	t.Helper()
	p, err := rewards.NewPublisher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context()); err != nil {
		t.Errorf("publisher: %v", err)
	}
}

// check demands that each reward is in the ledger and with the item server once.
func (s *stage) check(t *testing.T) {
	t.Helper()
	if v := verdict(t, s.pool, s.owed); !v.OK() || v.Unpublished != 0 || v.DeadLetters != 0 {
		t.Errorf("ledger: %+v", v)
	}
	v, err := rewards.VerifyItems(t.Context(), s.items.Client(), s.items.URL, s.owed)
	if err != nil || !v.OK() {
		t.Errorf("item server: %+v, %v", v, err)
	}
}

func TestPublisher_drains_the_outbox(t *testing.T) {
	t.Parallel()
	s := newStage(t, 60, 20)
	publish(t, s.config(t))
	s.check(t)
}

// Fault: the effect happened and the answer did not arrive.
func TestPublisher_survives_lost_answers(t *testing.T) {
	t.Parallel()
	s := newStage(t, 30, 10)
	var lost sync.Map
	s.spoil = func(_ http.ResponseWriter, r *http.Request, items http.Handler) bool {
		if _, again := lost.LoadOrStore(r.Header.Get("Idempotency-Key"), true); again {
			return false
		}
		items.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler) // cuts the connection
	}
	publish(t, s.config(t))
	s.check(t)
	if got := s.asked.Load(); got < 60 {
		t.Errorf("the item server was asked %d times, want each key at least twice", got)
	}
}

func TestPublisher_waits_as_the_server_asks(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 1)
	var first time.Time
	s.spoil = func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		if s.asked.Load() > 1 {
			if waited := time.Since(first); waited < time.Second {
				t.Errorf("asked again after %v, before the second that Retry-After asked for", waited)
			}
			return false
		}
		first = time.Now()
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	publish(t, s.config(t))
	s.check(t)
}

// "In progress" is no failure of the row: it may be heard more often than a row
// may fail.
func TestPublisher_in_progress_is_free(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 1)
	s.spoil = func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		if s.asked.Load() > 5 {
			return false
		}
		w.WriteHeader(http.StatusConflict)
		return true
	}
	cfg := s.config(t)
	cfg.Attempts = 2
	publish(t, cfg)
	s.check(t)
}

func TestPublisher_dead_letter_blocks_its_player_until_replay(t *testing.T) {
	t.Parallel()
	s := newStage(t, 4, 2) // rows 0 and 2 are of player 0
	var healed atomic.Bool
	bad := s.owed[0].Key()
	s.spoil = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if healed.Load() || r.Header.Get("Idempotency-Key") != `"`+bad+`"` {
			return false
		}
		w.WriteHeader(http.StatusUnprocessableEntity)
		return true
	}
	cfg := s.config(t)
	var alarms []string
	cfg.Alarm = func(key string, _ error) { alarms = append(alarms, key) }
	publish(t, cfg)
	if diff := cmp.Diff([]string{bad}, alarms); diff != "" {
		t.Errorf("alarms (-want +got):\n%s", diff)
	}
	if v := verdict(t, s.pool, s.owed); v.DeadLetters != 1 || v.Unpublished != 1 {
		t.Errorf("%d dead and %d unpublished, want the dead one and the one behind it", v.DeadLetters, v.Unpublished)
	}
	dead, err := rewards.DeadLetters(t.Context(), s.pool)
	if err != nil || len(dead) != 1 || dead[0].Key != bad {
		t.Errorf("DeadLetters = %+v, %v, want %s", dead, err, bad)
	}

	healed.Store(true)
	if n, err := rewards.Replay(t.Context(), s.pool, "no such key"); n != 0 || err != nil {
		t.Errorf("Replay of an unknown key = %d, %v", n, err)
	}
	if n, err := rewards.Replay(t.Context(), s.pool); n != 1 || err != nil {
		t.Errorf("Replay = %d, %v, want 1", n, err)
	}
	publish(t, s.config(t))
	s.check(t)
}

func TestPublisher_row_dies_after_so_many_attempts(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 1)
	s.spoil = func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		w.WriteHeader(http.StatusInternalServerError)
		return true
	}
	cfg := s.config(t)
	cfg.Attempts = 3
	cfg.Alarm = nil
	publish(t, cfg)
	if got := s.asked.Load(); got != 3 {
		t.Errorf("asked %d times, want 3", got)
	}
	if v := verdict(t, s.pool, s.owed); v.DeadLetters != 1 {
		t.Errorf("verdict %+v, want one dead letter", v)
	}
}

// A token that the item server refuses proves nothing about the payment: the
// status call does.
func TestPublisher_asks_after_a_stale_token(t *testing.T) {
	t.Parallel()
	for name, granted := range map[string]bool{"granted before": true, "not granted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 1, 1)
			s.spoil = func(w http.ResponseWriter, r *http.Request, items http.Handler) bool {
				if granted {
					items.ServeHTTP(httptest.NewRecorder(), r)
				}
				w.WriteHeader(http.StatusPreconditionFailed)
				return true
			}
			cfg := s.config(t)
			cfg.Alarm = nil
			publish(t, cfg)
			v := verdict(t, s.pool, s.owed)
			if dead := v.DeadLetters == 1; dead == granted || v.Unpublished != 0 {
				t.Errorf("granted %t: %d dead, %d unpublished", granted, v.DeadLetters, v.Unpublished)
			}
		})
	}
}

// Fault: a gateway sends http on to https, and the client follows with a GET, as
// browsers do. The list of all grants is then the answer, 200.
func TestPublisher_redirect_is_no_grant(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 1)
	var healed atomic.Bool
	s.spoil = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !healed.Load() {
			http.Redirect(w, r, "/v1/grants", http.StatusMovedPermanently)
		}
		return !healed.Load()
	}
	cfg := s.config(t)
	var alarm error
	cfg.Alarm = func(_ string, reason error) { alarm = reason }
	publish(t, cfg)
	if v := verdict(t, s.pool, s.owed); v.DeadLetters != 1 {
		t.Errorf("%d dead and %d unpublished, want the row that nobody was granted dead", v.DeadLetters, v.Unpublished)
	}
	if alarm == nil || !strings.Contains(alarm.Error(), "redirected") {
		t.Errorf("alarm: %v, want the redirect", alarm)
	}
	healed.Store(true)
	if _, err := rewards.Replay(t.Context(), s.pool); err != nil {
		t.Fatal(err)
	}
	publish(t, s.config(t))
	s.check(t)
}

// The answer must be about the key that was asked for.
func TestGranted_wants_its_own_key(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"the list of all": `{"grants":[]}`,
		"another reward":  `{"player":"1","event":"season-2026-week-34:player-1:rank-1","amount":1}`,
	} {
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		got, err := rewards.Granted(t.Context(), other.Client(), other.URL, "reward:2:season-2026-week-34:player-2:rank-2")
		if got != nil || err == nil {
			t.Errorf("%s: granted %+v, %v; want an error", name, got, err)
		}
		other.Close()
	}
}

// Fault: a publisher paused past its claim wakes up and marks a row that is no
// longer its own.
func TestPublisher_that_outlived_its_claim_changes_nothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 1)
	s.spoil = func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		if s.asked.Load() == 1 { // the slow one hears that the row is dead
			w.WriteHeader(http.StatusBadRequest)
			return true
		}
		return false
	}
	slow := s.config(t)
	slow.Lease = 100 * time.Millisecond
	slow.Alarm = func(key string, reason error) { t.Errorf("the late mark took effect: %s: %v", key, reason) }
	answered, wake := make(chan struct{}), make(chan struct{})
	slow.At = func(step rewards.Step, _ string) {
		if step == rewards.Answered {
			close(answered)
			<-wake
		}
	}
	p, err := rewards.NewPublisher(slow)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var late sync.WaitGroup
	late.Go(func() { _ = p.Run(ctx) })
	<-answered
	quick := s.config(t)
	quick.At = func(step rewards.Step, _ string) {
		if step == rewards.Calling { // the row is claimed anew and still READY
			stop()
			close(wake)
			late.Wait()
		}
	}
	publish(t, quick)
	s.check(t)
}

// Fault: order. While one row of a player is under way, nobody is told the next.
func TestPublisher_keeps_the_order_of_a_player(t *testing.T) {
	t.Parallel()
	s := newStage(t, 40, 4)
	var mu sync.Mutex
	open := make(map[string]bool)     // players with a call under way
	var order = map[string][]string{} // by player: rewards in order of their effect
	s.spoil = func(w http.ResponseWriter, r *http.Request, items http.Handler) bool {
		var player, rest string
		if _, err := fmt.Sscanf(r.Header.Get("Idempotency-Key"), `"reward:%1s:%s`, &player, &rest); err != nil {
			t.Error(err)
		}
		mu.Lock()
		if open[player] {
			t.Errorf("two calls for player %s at once", player)
		}
		open[player] = true
		order[player] = append(order[player], rest)
		mu.Unlock()
		items.ServeHTTP(w, r)
		mu.Lock()
		open[player] = false
		mu.Unlock()
		return true
	}
	var both sync.WaitGroup
	for range 3 {
		both.Go(func() { publish(t, s.config(t)) })
	}
	both.Wait()
	s.check(t)
	want := make(map[string][]string)
	for _, r := range s.owed {
		want[r.Player] = append(want[r.Player], r.Event+`"`)
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("order of effects (-want +got):\n%s", diff)
	}
}

func TestPublisher_Run_ends_with_its_context(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 1)
	ctx, cancel := context.WithCancel(t.Context())
	s.spoil = func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		_, _ = io.Copy(io.Discard, r.Body) // only then does net/http watch the connection
		cancel()                           // in the middle of a call
		<-r.Context().Done()
		return true
	}
	p, err := rewards.NewPublisher(s.config(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(ctx); err != context.Canceled {
		t.Errorf("Run = %v, want context.Canceled", err)
	}
	s.spoil = nil
	publish(t, s.config(t)) // the row came back at once, and had not failed
	s.check(t)
}

func TestNewPublisher_refuses(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	for name, cfg := range map[string]rewards.PublisherConfig{
		"no pool":        {Items: "http://127.0.0.1:1"},
		"no item server": {Pool: pool},
		"no URL":         {Pool: pool, Items: "127.0.0.1"},
		"no scheme":      {Pool: pool, Items: "localhost:7430"},
		"no host":        {Pool: pool, Items: "http:///items"},
		"no HTTP":        {Pool: pool, Items: "ftp://localhost:7430"},
		"a query":        {Pool: pool, Items: "http://localhost:7430/?page=1"},
		"a fragment":     {Pool: pool, Items: "http://localhost:7430#items"},
		"negative lease": {Pool: pool, Items: "http://127.0.0.1:1", Lease: -1},
		"negative batch": {Pool: pool, Items: "http://127.0.0.1:1", Batch: -1},
	} {
		if _, err := rewards.NewPublisher(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
