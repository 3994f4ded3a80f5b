package lockserver_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/tokens"
)

// run is one random history over a few locks of its own.
type run struct {
	server *lockserver.Server
	prefix string
	wg     sync.WaitGroup

	mu      sync.Mutex
	held    []*lockserver.Hold
	cancels []context.CancelFunc
	grants  map[string][]tokens.Token
	faults  []string
}

func (r *run) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// acquire starts a request and records its grant.
func (r *run) acquire(req lockserver.AcquireRequest) {
	ctx, cancel := context.WithCancel(context.Background())
	r.mu.Lock()
	r.cancels = append(r.cancels, cancel)
	r.mu.Unlock()
	r.wg.Go(func() {
		h, err := r.server.Acquire(ctx, req)
		var held *lockserver.HeldError
		var gone *lockserver.GoneError
		switch {
		case err == nil:
			r.mu.Lock()
			r.held = append(r.held, h)
			r.grants[req.Lock] = append(r.grants[req.Lock], h.Token)
			r.mu.Unlock()
		case errors.As(err, &held), errors.As(err, &gone), errors.Is(err, context.Canceled):
		default:
			r.fault("acquire %q: %v", req.Lock, err)
		}
	})
}

// pick removes a random held hold.
func (r *run) pick(t *rapid.T) *lockserver.Hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.held) == 0 {
		return nil
	}
	i := rapid.IntRange(0, len(r.held)-1).Draw(t, "hold")
	h := r.held[i]
	r.held = append(r.held[:i], r.held[i+1:]...)
	return h
}

func (r *run) end(h *lockserver.Hold, err error) {
	var gone *lockserver.GoneError
	if err != nil && !errors.As(err, &gone) {
		r.fault("end of %q token %d: %v", h.Lock, h.Token, err)
	}
}

// TestServer_TokensRiseInEveryHistory draws histories of acquire, release, break,
// cancel and expiry. Over all of them the log's grants of one lock, as the events
// tell them, carry rising tokens, each begins after the one before has ended, and
// no token is told twice.
func TestServer_TokensRiseInEveryHistory(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	var runs atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		r := &run{server: server, prefix: fmt.Sprintf("run%d/", runs.Add(1)), grants: map[string][]tokens.Token{}}
		sub, err := server.Subscribe(context.Background(), r.prefix, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			r.step(t)
		}
		r.finish()
		if len(r.faults) > 0 {
			t.Fatal(r.faults)
		}
		judgeEvents(t, sub, r.grants)
	})
}

func (r *run) step(t *rapid.T) {
	switch rapid.IntRange(0, 5).Draw(t, "step") {
	case 0, 1, 2:
		req := lockserver.AcquireRequest{
			Lock:  r.prefix + rapid.SampledFrom([]string{"a", "b"}).Draw(t, "lock"),
			Owner: "worker", TTL: time.Second,
			Wait: rapid.SampledFrom([]time.Duration{0, 20 * time.Millisecond, 5 * time.Second}).Draw(t, "wait"),
		}
		if rapid.Bool().Draw(t, "keyed") {
			req.IdempotencyKey = fmt.Sprintf("%032x", rapid.IntRange(0, 5).Draw(t, "key"))
		}
		r.acquire(req)
	case 3:
		if h := r.pick(t); h != nil {
			r.end(h, r.server.Release(context.Background(), h.ID))
		}
	case 4:
		if h := r.pick(t); h != nil {
			_, err := r.server.Renew(context.Background(), h.ID)
			r.end(h, err) // and let it expire
		}
	case 5:
		r.mu.Lock()
		if n := len(r.cancels); n > 0 {
			r.cancels[rapid.IntRange(0, n-1).Draw(t, "cancel")]()
		}
		r.mu.Unlock()
	}
}

// finish lets everything come to its end.
func (r *run) finish() {
	r.mu.Lock()
	for _, cancel := range r.cancels {
		cancel()
	}
	r.mu.Unlock()
	r.wg.Wait()
	for _, h := range r.held {
		r.end(h, r.server.Release(context.Background(), h.ID))
	}
}

// judgeEvents replays the events of a run and checks the promise on them, and that
// every token that was told to a caller is one that the log granted.
func judgeEvents(t *rapid.T, sub *lockserver.Subscription, told map[string][]tokens.Token) {
	last, live := map[string]tokens.Token{}, map[string]string{}
	granted := map[string]map[tokens.Token]bool{}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // what is there is read, nothing is waited for
	for {
		events, err := sub.Next(ctx)
		if err != nil {
			break
		}
		for _, e := range events {
			judgeEvent(t, e, last, live)
			if e.Kind == lockserver.EventGranted {
				if granted[e.Lock] == nil {
					granted[e.Lock] = map[tokens.Token]bool{}
				}
				granted[e.Lock][e.Token] = true
			}
		}
	}
	for lock, list := range told {
		for _, token := range list {
			if !granted[lock][token] {
				t.Fatalf("token %d of %q was told, but the log never granted it", token, lock)
			}
		}
	}
}

func judgeEvent(t *rapid.T, e lockserver.Event, last map[string]tokens.Token, live map[string]string) {
	switch {
	case e.Kind == lockserver.EventGranted:
		if e.Token <= last[e.Lock] {
			t.Fatalf("%q: token %d granted after %d", e.Lock, e.Token, last[e.Lock])
		}
		if live[e.Lock] != "" {
			t.Fatalf("%q: granted while %s is held", e.Lock, live[e.Lock])
		}
		last[e.Lock], live[e.Lock] = e.Token, e.Ref
	case e.Kind != lockserver.EventQueued && live[e.Lock] == e.Ref:
		live[e.Lock] = ""
	}
}

// TestServer_TokensRiseInWallClock is the same promise seen by callers: 64 of them
// on one lock, each token higher than the one granted before.
func TestServer_TokensRiseInWallClock(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	var highest, inside atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 10 {
				h, err := s.Acquire(t.Context(), queueFor("a", 30*time.Second))
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two holds at once")
				}
				if was := highest.Swap(int64(h.Token)); was >= int64(h.Token) {
					t.Errorf("token %d after %d", h.Token, was)
				}
				inside.Add(-1)
				if err := s.Release(t.Context(), h.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
