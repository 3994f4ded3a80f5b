package clientsdk_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/clientsdk/internal/clock"
	"github.com/fenced/fenced/clientsdk/sdktest"
)

// clientWith is a second client of the bundle's server, with another config.
func (b *bundle) clientWith(edit func(*clientsdk.Config)) *clientsdk.Client {
	b.Helper()
	cfg := b.srv.Config()
	edit(&cfg)
	client, err := clientsdk.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	return client
}

// A deadline counts from the sending of the renewal: the answer that confirmed it was
// under way for a while.
func TestHold_DeadlineCountsFromTheSending(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		const slow = 2 * time.Second
		h := b.acquire("l", opts)
		b.srv.On(sdktest.Renew, sdktest.Fault{DelayAnswer: slow})
		b.srv.On(sdktest.RenewSession, sdktest.Fault{DelayAnswer: slow})
		time.Sleep(ttl/3 + slow + time.Millisecond) // virtual: the renewal was sent at a third
		if left, want := time.Until(h.Deadline()), ttl*9/10-slow; left > want || left < want-50*time.Millisecond {
			b.Errorf("%s left, want %s: from the sending on, less the margin", left, want)
		}
		b.release(h)
	})
}

// lossCounter counts what is logged of lost holds.
type lossCounter struct {
	mu   sync.Mutex
	lost map[string]int // by lock
}

func (c *lossCounter) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(c, nil)) }

func (c *lossCounter) Write(line []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text := string(line); strings.Contains(text, "lock lost") {
		_, rest, _ := strings.Cut(text, `"lock":"`)
		name, _, _ := strings.Cut(rest, `"`)
		c.lost[name]++
	}
	return len(line), nil
}

// However a hold ends, and in however many ways at once, its loss is told exactly once,
// and what was not held, or was released, is not lost.
func TestHold_OneLossSignal(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		counter := &lossCounter{lost: map[string]int{}}
		client := b.clientWith(func(cfg *clientsdk.Config) { cfg.Logger = counter.logger() })
		ctx := context.Background()
		take := func(lock string) *clientsdk.Hold {
			h, err := client.Acquire(ctx, lock, opts)
			if err != nil {
				b.Fatal(err)
			}
			return h
		}
		released := take("released")
		broken, both, cut := take("broken"), take("both"), take("cut")
		if _, err := client.TryAcquire(ctx, "both", opts); !errors.Is(err, clientsdk.ErrHeld) {
			b.Errorf("TryAcquire = %v", err)
		}
		if err := released.Release(ctx); err != nil {
			b.Error(err)
		}
		b.srv.Break("broken", "stuck")
		b.srv.Expire("both")
		time.Sleep(ttl / 2) // virtual: one renewal has told of both
		for range 1000 {
			b.srv.On(sdktest.Renew, sdktest.Fault{DropRequest: true})
			b.srv.On(sdktest.RenewSession, sdktest.Fault{DropRequest: true})
		}
		<-cut.Done()
		b.srv.EndSessions()
		for _, h := range []*clientsdk.Hold{broken, both, cut} {
			h.Err()
			h.Context().Err()
			if err := h.Release(ctx); !errors.Is(err, clientsdk.ErrLost) {
				b.Errorf("Release = %v, want ErrLost", err)
			}
		}
		time.Sleep(4 * ttl) // virtual
		client.Close()
		counter.mu.Lock()
		defer counter.mu.Unlock()
		for lock, want := range map[string]int{"broken": 1, "both": 1, "cut": 1, "released": 0} {
			if got := counter.lost[lock]; got != want {
				b.Errorf("the loss of %q was told %d times, want %d", lock, got, want)
			}
		}
	})
}

// Wherever the renewal is when the hold is released, none follows, and none brings the
// hold back.
func TestHold_ReleaseInEveryOrder(t *testing.T) {
	const slow = time.Second
	for name, at := range map[string]time.Duration{
		"before any":            0,
		"just before":           ttl/3 - time.Millisecond,
		"on its way":            ttl/3 + slow/2,
		"its answer on its way": ttl/3 + slow + slow/2,
		"just after":            ttl/3 + 2*slow + time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
				h := b.acquire("l", opts)
				b.srv.On(sdktest.Renew, sdktest.Fault{Delay: slow, DelayAnswer: slow})
				b.srv.On(sdktest.RenewSession, sdktest.Fault{Delay: slow, DelayAnswer: slow})
				time.Sleep(at) // virtual
				b.release(h)
				b.free("l")
				renewals := b.srv.Calls(sdktest.Renew)
				time.Sleep(3 * ttl) // virtual
				b.free("l")
				if n := b.srv.Calls(sdktest.Renew); n != renewals {
					b.Errorf("%d renewals after the release", n-renewals)
				}
				if !errors.Is(h.Err(), clientsdk.ErrReleased) || !errors.Is(context.Cause(h.Context()), clientsdk.ErrReleased) {
					b.Errorf("Err %v, cause %v", h.Err(), context.Cause(h.Context()))
				}
			})
		})
	}
}

// swallower is a network that loses everything that is sent on it, silently, from a
// moment on; it notes when renewals are tried.
type swallower struct {
	http.RoundTripper
	mu    sync.Mutex
	dead  bool
	tries []time.Time
}

func (s *swallower) LeaseClock() clock.Instant { return clock.Go() }

func (s *swallower) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	dead := s.dead
	if dead && strings.HasSuffix(r.URL.Path, "/renew") {
		s.tries = append(s.tries, time.Now())
	}
	s.mu.Unlock()
	if dead {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return s.RoundTripper.RoundTrip(r)
}

// A connection that swallows a renewal is left within a third of the TTL, while there is
// time for another try.
func TestHold_LeavesADeadConnection(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		net := &swallower{RoundTripper: b.srv.Transport()}
		client := b.clientWith(func(cfg *clientsdk.Config) { cfg.HTTPClient = &http.Client{Transport: net} })
		h, err := client.Acquire(context.Background(), "l", opts)
		if err != nil {
			b.Fatal(err)
		}
		net.mu.Lock()
		net.dead = true
		net.mu.Unlock()
		<-h.Done()
		net.mu.Lock()
		defer net.mu.Unlock()
		net.dead = false
		if len(net.tries) < 2 {
			b.Fatalf("%d tries before the deadline", len(net.tries))
		}
		for i, at := range net.tries[1:] {
			if took := at.Sub(net.tries[i]); took > ttl/3 {
				b.Errorf("try %d came %s after the one before, want a third of %s at most", i+2, took, ttl)
			}
		}
	})
}

// Two who want the same locks in opposite orders must both get them.
func TestClient_AcquireAllNeverBlocksAnother(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		o := clientsdk.AcquireOptions{Wait: time.Hour}
		if opts != nil {
			o.PerHold = opts.PerHold
		}
		var workers sync.WaitGroup
		for _, locks := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c"}} {
			workers.Go(func() {
				for range 20 {
					all, err := b.client.AcquireAll(context.Background(), locks, &o)
					if err != nil {
						b.Errorf("AcquireAll(%v) = %v", locks, err)
						return
					}
					time.Sleep(10 * time.Millisecond) // virtual
					if err := all.Release(context.Background()); err != nil {
						b.Errorf("Release: %v", err)
					}
				}
			})
		}
		workers.Wait()
	})
}

// A token that was superseded is stale everywhere: for check, and for a store that has
// seen the higher one.
func TestServer_Supersede(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		h := b.acquire("l", nil)
		newer, ok := b.srv.Supersede("l")
		if !ok || newer <= h.Token() {
			t.Fatalf("token %d after %d, %t", newer, h.Token(), ok)
		}
		results, err := b.client.Check(context.Background(), []clientsdk.CheckItem{{Lock: "l", Token: h.Token()}, {Lock: "l", Token: newer}})
		if err != nil || results[0].Result != "stale" || results[1].Result != "ended" {
			t.Errorf("%+v, %v", results, err)
		}
		<-h.Done()
		wantLost(t, h, clientsdk.LostExpired)
		if _, ok := b.srv.Supersede("nobody's"); ok {
			t.Error("a lock without a holder was superseded")
		}
		again := b.acquire("l", nil)
		if again.Token() <= newer {
			t.Errorf("token %d after %d", again.Token(), newer)
		}
	})
}

// Events go on where a stream broke off, also without a bubble's help.
func TestClient_EventsResume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		h := b.acquire("orders/1", nil)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var got []string
		for ev, err := range b.client.Events(ctx, &clientsdk.EventsOptions{Prefix: "orders/", After: "1.0"}) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, ev.Kind); len(got) == 4 {
				break
			}
			b.srv.CutEvents()
			b.acquire("stock/"+ev.ID, nil) // another prefix
			switch ev.Kind {
			case "granted":
				b.release(h)
			case "released":
				h = b.acquire("orders/1", nil)
			}
		}
		if want := "granted released granted released"; strings.Join(got, " ") != want {
			t.Errorf("events %v, want %s", got, want)
		}
		time.Sleep(time.Minute) // virtual: silence is no end
	})
}

// A stream that says nothing is not lost, and one that is refused ends with the refusal.
func TestClient_EventsSilenceAndRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		for ev, err := range b.client.Events(ctx, nil) {
			t.Errorf("an event out of nothing: %+v, %v", ev, err)
		}
		if n := b.srv.Calls(sdktest.Events); n != 1 {
			t.Errorf("%d streams in ten silent minutes, want 1", n)
		}
		b.srv.AddKey("read", "")
		var refused *clientsdk.APIError
		for _, err := range b.client.Events(context.Background(), nil) {
			if !errors.As(err, &refused) {
				t.Errorf("got %v", err)
			}
		}
		if refused == nil || refused.ErrCode != "unauthorized" {
			t.Errorf("the refusal was %v", refused)
		}
	})
}

// Whoever learns of a loss in one way finds it in every other, at once: between two
// ways of asking, nobody may be told that all is well.
func TestHold_TellsOneStory(t *testing.T) {
	t.Parallel()
	srv := sdktest.New()
	t.Cleanup(srv.Close)
	client, err := clientsdk.New(srv.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i := range 300 {
		outer, err := client.Acquire(t.Context(), "outer", nil)
		if err != nil {
			t.Fatal(err)
		}
		// A hold within another: the ends of both are one lease's.
		inner, err := client.Acquire(outer.Context(), "inner", &clientsdk.AcquireOptions{PerHold: i%2 == 0})
		if err != nil {
			t.Fatal(err)
		}
		var askers sync.WaitGroup
		for _, h := range []*clientsdk.Hold{outer, inner} {
			ctx := h.Context()
			for _, over := range []<-chan struct{}{h.Done(), ctx.Done()} {
				askers.Go(func() {
					<-over
					if h.Err() == nil || ctx.Err() == nil || context.Cause(ctx) == nil {
						t.Errorf("Err %v, context %v, cause %v", h.Err(), ctx.Err(), context.Cause(ctx))
					}
					<-h.Done()
					<-ctx.Done()
				})
			}
		}
		for _, h := range []*clientsdk.Hold{outer, inner} {
			askers.Go(func() { h.Release(context.Background()) })
		}
		askers.Wait()
	}
}
