package lockserver_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/tokens"
)

// try returns a request that does not wait.
func try(lock string) lockserver.AcquireRequest {
	return lockserver.AcquireRequest{Lock: lock, Owner: "worker"}
}

// queueFor returns a request that waits.
func queueFor(lock string, wait time.Duration) lockserver.AcquireRequest {
	req := try(lock)
	req.Wait = wait
	return req
}

func mustAcquire(t testing.TB, s *lockserver.Server, req lockserver.AcquireRequest) *lockserver.Hold {
	t.Helper()
	h, err := s.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("acquire %q: %v", req.Lock, err)
	}
	return h
}

func mustRelease(t testing.TB, s *lockserver.Server, h *lockserver.Hold) {
	t.Helper()
	if err := s.Release(t.Context(), h.ID); err != nil {
		t.Fatalf("release %q: %v", h.Lock, err)
	}
}

func wantCode(t testing.TB, err error, want apierr.Code) {
	t.Helper()
	if got := apierr.CodeOf(err); got != want {
		t.Fatalf("got %v (code %q), want code %q", err, got, want)
	}
}

func wantGone(t testing.TB, err error, want lockserver.End) {
	t.Helper()
	var gone *lockserver.GoneError
	if !errors.As(err, &gone) || gone.End != want {
		t.Fatalf("got %v, want gone: %v", err, want)
	}
}

func TestServer_Acquire(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	first := mustAcquire(t, s, try("orders/42"))
	if first.State != lockserver.Held || !first.Token.Valid() || first.Previous != nil {
		t.Fatalf("first grant: %+v", first)
	}
	if first.TTL != lockserver.DefaultTTL || first.ExpiresIn > first.TTL || first.ExpiresIn < first.TTL*2/3 {
		t.Fatalf("time left: %v of %v", first.ExpiresIn, first.TTL)
	}

	_, err := s.Acquire(t.Context(), try("orders/42"))
	var held *lockserver.HeldError
	if !errors.As(err, &held) || held.Holder.Token != first.Token || held.Holder.Owner != "worker" {
		t.Fatalf("try on a held lock: %v", err)
	}

	mustRelease(t, s, first)
	mustRelease(t, s, first) // twice is harmless
	second := mustAcquire(t, s, try("orders/42"))
	if second.Token <= first.Token {
		t.Fatalf("token %d after %d", second.Token, first.Token)
	}
	if p := second.Previous; p == nil || p.End != lockserver.Released || p.Token != first.Token {
		t.Fatalf("previous: %+v", p)
	}
}

func TestServer_AcquireQueuesInOrder(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	holder := mustAcquire(t, s, try("a"))
	const n = 20
	granted := make(chan int, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			h, err := s.Acquire(t.Context(), queueFor("a", 20*time.Second))
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			granted <- i
			if err := s.Release(t.Context(), h.ID); err != nil {
				t.Errorf("release of waiter %d: %v", i, err)
			}
		})
		waitQueue(t, s, "a", i+1)
	}
	mustRelease(t, s, holder)
	wg.Wait()
	for want := range n {
		if got := <-granted; got != want {
			t.Fatalf("waiter %d was granted in place %d", got, want)
		}
	}
}

// waitQueue waits, on the server's events, until n holds of the lock wait.
func waitQueue(t testing.TB, s *lockserver.Server, lock string, n int) {
	t.Helper()
	sub, err := s.Subscribe(t.Context(), lock, nil)
	if err != nil {
		t.Fatal(err)
	}
	for {
		info, err := s.Lock(t.Context(), lock)
		if err != nil {
			t.Fatal(err)
		}
		if info.Waiters == n {
			return
		}
		if _, err := sub.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestServer_AcquireSameInstant is the fault of a batch that puts two holds of one
// lock into one transaction: they would share a revision, and so a token.
func TestServer_AcquireSameInstant(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	const n = 1000
	start := make(chan struct{})
	var mu sync.Mutex
	seen := map[tokens.Token]bool{}
	last := tokens.Token(0)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			<-start
			h, err := s.Acquire(t.Context(), queueFor("one", lockserver.MaxWait))
			if err != nil {
				t.Errorf("acquire: %v", err)
				return
			}
			mu.Lock()
			if seen[h.Token] || h.Token <= last {
				t.Errorf("token %d after %d, seen before: %v", h.Token, last, seen[h.Token])
			}
			seen[h.Token], last = true, h.Token
			mu.Unlock()
			if err := s.Release(t.Context(), h.ID); err != nil {
				t.Errorf("release: %v", err)
			}
		})
	}
	close(start)
	wg.Wait()
	if len(seen) != n {
		t.Fatalf("%d grants, want %d", len(seen), n)
	}
	wantEmpty(t, s)
}

func wantEmpty(t testing.TB, s *lockserver.Server) {
	t.Helper()
	st, err := s.Status(t.Context())
	if err != nil || st.Holds != 0 || st.Locks != 0 {
		t.Fatalf("%d holds and %d locks are left, %v", st.Holds, st.Locks, err)
	}
}

func TestServer_AcquireWaitOver(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	holder := mustAcquire(t, s, try("a"))
	_, err := s.Acquire(t.Context(), queueFor("a", 50*time.Millisecond))
	wantCode(t, err, apierr.LockHeld)
	info, err := s.Lock(t.Context(), "a")
	if err != nil || info.Waiters != 0 {
		t.Fatalf("the place was not given up: %+v, %v", info, err)
	}
	mustRelease(t, s, holder)
	wantEmpty(t, s)
}

func TestServer_AcquireCancelled(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	holder := mustAcquire(t, s, try("a"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Acquire(ctx, queueFor("a", 20*time.Second))
		done <- err
	}()
	waitQueue(t, s, "a", 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", err)
	}
	waitQueue(t, s, "a", 0)
	mustRelease(t, s, holder)
	next := mustAcquire(t, s, try("a"))
	mustRelease(t, s, next)
}

func TestServer_AcquireIdempotent(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	req := try("a")
	req.IdempotencyKey = "0190b2a3-1111-7222-8333-444455556666"
	first := mustAcquire(t, s, req)
	again := mustAcquire(t, s, req)
	if again.ID != first.ID || again.Token != first.Token || !again.Replayed || first.Replayed {
		t.Fatalf("the repeat %+v is not the first %+v", again, first)
	}
	other := req
	other.Owner = "somebody else"
	_, err := s.Acquire(t.Context(), other)
	wantCode(t, err, apierr.IdempotencyKeyReused)

	mustRelease(t, s, first)
	_, err = s.Acquire(t.Context(), req)
	wantGone(t, err, lockserver.Released)
}

func TestServer_AcquireKeepsPlace(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	holder := mustAcquire(t, s, try("a"))
	req := queueFor("a", 10*time.Millisecond)
	req.KeepPlace, req.IdempotencyKey = true, "0190b2a3111172228333444455556666"
	queued := mustAcquire(t, s, req)
	if queued.State != lockserver.Queued || queued.Position != 1 || queued.Token != 0 {
		t.Fatalf("queued: %+v", queued)
	}
	if _, err := s.Renew(t.Context(), queued.ID); apierr.CodeOf(err) != apierr.NotHeld {
		t.Fatalf("renew of a queued hold: %v", err)
	}
	mustRelease(t, s, holder)
	held, err := s.AwaitHold(t.Context(), queued.ID, 10*time.Second)
	if err != nil || held.State != lockserver.Held || held.Ref != queued.Ref {
		t.Fatalf("await: %+v, %v", held, err)
	}
	if held.Token <= holder.Token {
		t.Fatalf("token %d after %d", held.Token, holder.Token)
	}
}

func TestServer_AcquireBadInput(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	tests := []struct {
		name string
		edit func(*lockserver.AcquireRequest)
		want apierr.Code
	}{
		{"no lock", func(r *lockserver.AcquireRequest) { r.Lock = "" }, apierr.OutOfBounds},
		{"513 bytes", func(r *lockserver.AcquireRequest) { r.Lock = fmt.Sprintf("%0513d", 1) }, apierr.OutOfBounds},
		{"NUL", func(r *lockserver.AcquireRequest) { r.Lock = "a\x00b" }, apierr.OutOfBounds},
		{"line feed", func(r *lockserver.AcquireRequest) { r.Lock = "a\nb" }, apierr.OutOfBounds},
		{"not UTF-8", func(r *lockserver.AcquireRequest) { r.Lock = "a\xff" }, apierr.OutOfBounds},
		{"decomposed", func(r *lockserver.AcquireRequest) { r.Lock = "e\u0301" }, apierr.OutOfBounds},
		{"zero width", func(r *lockserver.AcquireRequest) { r.Lock = "a\u200bb" }, apierr.OutOfBounds},
		{"right to left mark", func(r *lockserver.AcquireRequest) { r.Lock = "a\u202eb" }, apierr.OutOfBounds},
		{"unassigned", func(r *lockserver.AcquireRequest) { r.Lock = "a\u0378b" }, apierr.OutOfBounds},
		{"no owner", func(r *lockserver.AcquireRequest) { r.Owner = "" }, apierr.OutOfBounds},
		{"short ttl", func(r *lockserver.AcquireRequest) { r.TTL = time.Second - 1 }, apierr.OutOfBounds},
		{"long ttl", func(r *lockserver.AcquireRequest) { r.TTL = time.Hour + time.Millisecond }, apierr.OutOfBounds},
		{"broken ttl", func(r *lockserver.AcquireRequest) { r.TTL = time.Second + time.Microsecond }, apierr.OutOfBounds},
		{"long wait", func(r *lockserver.AcquireRequest) { r.Wait = 31 * time.Second }, apierr.OutOfBounds},
		{"keep place without key", func(r *lockserver.AcquireRequest) { r.KeepPlace = true }, apierr.OutOfBounds},
		{"bad key", func(r *lockserver.AcquireRequest) { r.IdempotencyKey = "reward-42" }, apierr.BadIdempotencyKey},
		{"bad session", func(r *lockserver.AcquireRequest) { r.Session = "x" }, apierr.OutOfBounds},
	}
	for _, tt := range tests {
		req := try("a")
		tt.edit(&req)
		_, err := s.Acquire(t.Context(), req)
		if got := apierr.CodeOf(err); got != tt.want {
			t.Errorf("%s: got %v, want code %q", tt.name, err, tt.want)
		}
	}
	wantEmpty(t, s)
	for _, name := range []string{"/", "//", "%2F", "..", "a b", "a+b", "é", "漢字", "👩", fmt.Sprintf("%0512d", 1)} {
		h := mustAcquire(t, s, try(name))
		if h.Lock != name {
			t.Errorf("stored %q, sent %q", h.Lock, name)
		}
	}
}
