package lockserver_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/tokens"
)

// granted is one answer "held", on this process's clock. kept is when its release
// was sent first, where a release succeeded: until then the hold was the holder.
type granted struct {
	lock           string
	token          tokens.Token
	sent, answered time.Time
	kept           time.Time
}

// loadTTL is short, because the places and holds of a server that is cut off block
// their locks until their leases end, TTL + 6 s and one election later.
const loadTTL = 2 * time.Second

// load is a crowd of workers that acquire and release through all servers.
type load struct {
	fleet   *fleet
	servers [3]atomic.Pointer[lockserver.Server]
	count   atomic.Int64
	stop    context.CancelFunc
	workers sync.WaitGroup

	mu     sync.Mutex
	grants []granted
	faults []error
}

// startLoad runs workers until finish.
func startLoad(f *fleet, workers int) *load {
	ctx, cancel := context.WithCancel(f.t.Context())
	l := &load{fleet: f, stop: cancel}
	for i := range 3 {
		l.servers[i].Store(f.servers[i])
	}
	for w := range workers {
		l.workers.Go(func() {
			for ctx.Err() == nil {
				l.cycle(ctx, l.any(), fmt.Sprintf("lock %d", w%3))
			}
		})
	}
	return l
}

// any returns one of the servers; it may be stopped or cut off.
func (l *load) any() *lockserver.Server { return l.servers[rand.IntN(3)].Load() }

// cycle acquires once and releases until that is done or the hold is gone.
func (l *load) cycle(ctx context.Context, s *lockserver.Server, lock string) {
	g := granted{lock: lock, sent: time.Now()}
	req := queueFor(lock, time.Second)
	req.TTL = loadTTL
	call, cancel := context.WithTimeout(ctx, loadTTL)
	h, err := s.Acquire(call, req)
	cancel()
	g.answered = time.Now()
	if err != nil {
		l.check(ctx, err)
		return
	}
	g.token, g.kept = h.Token, time.Now() // a release whose answer is lost may be the one that counts
	for {
		call, cancel := context.WithTimeout(ctx, loadTTL/4) // a server without a quorum takes longer: ask another
		err := l.any().Release(call, h.ID)
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil || !l.check(ctx, err) {
			g.kept = time.Time{}
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants = append(l.grants, g)
	l.count.Add(1)
}

// check notes an error that no fault of the cluster explains, and reports whether
// a repeat makes sense.
func (l *load) check(ctx context.Context, err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	code := apierr.CodeOf(err)
	if code.Info().Retryable || code == apierr.HoldGone || ctx.Err() != nil {
		return code.Info().Retryable
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, err)
	return false
}

// more waits until the workers have been granted n holds more.
func (l *load) more(n int64) {
	l.fleet.t.Helper()
	want := l.count.Load() + n
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); l.count.Load() < want; <-tick.C {
		if time.Since(start) > patience {
			l.fleet.t.Fatalf("%d of %d grants in %v", l.count.Load()-want+n, n, patience)
		}
	}
}

// finish stops the workers and judges what they were told.
func (l *load) finish() {
	t := l.fleet.t
	t.Helper()
	l.stop()
	l.workers.Wait()
	for _, err := range l.faults {
		t.Errorf("a worker got %v", err)
	}
	locks := make(map[string][]granted)
	for _, g := range l.grants {
		locks[g.lock] = append(locks[g.lock], g)
	}
	for _, grants := range locks {
		judgeTokens(t, grants)
		judgeTurns(t, grants)
	}
	t.Logf("%d grants", len(l.grants))
}

// judgeTokens checks that no grant of a lock has a token twice, and that one which was
// asked for after another was told has the higher token.
func judgeTokens(t *testing.T, grants []granted) {
	t.Helper()
	slices.SortFunc(grants, func(a, b granted) int { return cmp.Compare(b.token, a.token) })
	first := grants[0] // that was told first, of those with higher tokens
	for i, g := range grants[1:] {
		if g.token == grants[i].token {
			t.Errorf("%s: token %d twice", g.lock, g.token)
		}
		if first.answered.Before(g.sent) {
			t.Errorf("%s: token %d was asked for after %d was told", g.lock, g.token, first.token)
		}
		if g.answered.Before(first.answered) {
			first = g
		}
	}
}

// judgeTurns checks that no grant of a lock was told while another was certainly still
// held.
func judgeTurns(t *testing.T, grants []granted) {
	t.Helper()
	slices.SortFunc(grants, func(a, b granted) int { return a.answered.Compare(b.answered) })
	longest := grants[0] // that was kept longest, of those that were told before
	for _, g := range grants[1:] {
		if g.answered.After(longest.answered) && g.answered.Before(longest.kept) {
			t.Errorf("%s: %d was told while %d was held", g.lock, g.token, longest.token)
		}
		if g.kept.After(longest.kept) {
			longest = g
		}
	}
}

// TestCluster_LeaderLostUnderLoad cuts the leader off under load and connects it
// again, twice.
func TestCluster_LeaderLostUnderLoad(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	l := startLoad(f, 9)
	for range 2 {
		l.more(30)
		f.Isolate(f.Leader())
		l.more(15)
		f.Heal()
	}
	l.more(30)
	l.finish()
}

// TestCluster_RollingRestartUnderLoad restarts all three members in turn. A hold
// that is renewed and a waiter that polls again go through it.
func TestCluster_RollingRestartUnderLoad(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	req := try("kept")
	req.TTL = time.Minute // the restarts are what is tested, not how soon they are over
	held := mustAcquire(t, f.servers[0], req)
	place := req
	place.IdempotencyKey, place.KeepPlace, place.Wait = strings.Repeat("cd", 16), true, time.Second
	first := mustAcquire(t, f.servers[1], place)
	l := startLoad(f, 6)

	ctx, cancel := context.WithCancel(t.Context())
	var polls sync.WaitGroup
	polls.Go(func() { pollUntil(ctx, t, l, "renew", held.Ref, renewing(held.ID)) })
	polls.Go(func() { pollUntil(ctx, t, l, "wait", first.Ref, waitingFor(place)) })
	for i := range 3 {
		l.more(30)
		f.restart(i)
		l.servers[i].Store(f.servers[i])
	}
	l.more(30)
	cancel()
	polls.Wait()
	l.finish()

	if r := eventually(t, renewOn(f.servers[1], held)); r.Token != held.Token {
		t.Errorf("the hold has token %d, had %d", r.Token, held.Token)
	}
	mustRelease(t, f.servers[2], held)
	if next := eventually(t, acquireOn(f.servers[0], place)); next.Ref != first.Ref || next.State != lockserver.Held || next.Token <= held.Token {
		t.Errorf("the waiter has %+v, its place was %s", next, first.Ref)
	}
}

func renewing(id string) func(context.Context, *lockserver.Server) (*lockserver.Hold, error) {
	return func(ctx context.Context, s *lockserver.Server) (*lockserver.Hold, error) { return s.Renew(ctx, id) }
}

func waitingFor(req lockserver.AcquireRequest) func(context.Context, *lockserver.Server) (*lockserver.Hold, error) {
	return func(ctx context.Context, s *lockserver.Server) (*lockserver.Hold, error) { return s.Acquire(ctx, req) }
}

// pollUntil repeats a call on one server after the other until ctx ends; it must
// never lose the hold.
func pollUntil(ctx context.Context, t *testing.T, l *load, what, ref string, call func(context.Context, *lockserver.Server) (*lockserver.Hold, error)) {
	pause := time.NewTicker(200 * time.Millisecond)
	defer pause.Stop()
	for ctx.Err() == nil {
		h, err := call(ctx, l.any())
		switch {
		case ctx.Err() != nil:
		case err != nil && !apierr.CodeOf(err).Info().Retryable:
			t.Errorf("%s: %v", what, err)
			return
		case err == nil && h.Ref != ref:
			t.Errorf("%s: hold %s, was %s", what, h.Ref, ref)
			return
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}
