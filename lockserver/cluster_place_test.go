package lockserver_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/lockserver"
)

// The tests of this file have a client that began on one server and went on at another,
// as it does when its connection breaks: the first one must not take what it does not
// see for what is not there.

// beyond is longer than the first server keeps a place that nobody asks it for.
const beyond = lockserver.PlaceTimeout + 10*time.Second

// kept is a request that is answered queued where the lock is held.
func kept(key string) lockserver.AcquireRequest {
	req := queueFor("a", time.Millisecond)
	req.KeepPlace, req.IdempotencyKey = true, strings.Repeat(key, 16)
	return req
}

// every calls f until it has gone on for d.
func every(t *testing.T, pause, d time.Duration, f func()) {
	t.Helper()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < d; <-tick.C {
		f()
	}
}

// TestCluster_APlaceIsKeptByAnotherServer has a waiter that goes on at another server.
func TestCluster_APlaceIsKeptByAnotherServer(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	long := try("a")
	long.TTL = time.Hour
	holder := mustAcquire(t, f.servers[2], long)
	place := mustAcquire(t, f.servers[0], kept("1a"))
	every(t, time.Second, beyond, func() {
		h, err := f.servers[1].AwaitHold(t.Context(), place.ID, 500*time.Millisecond)
		if err != nil || h.State != lockserver.Queued {
			t.Fatalf("%+v, %v", h, err)
		}
	})
	mustRelease(t, f.servers[2], holder)
	h, err := f.servers[1].AwaitHold(t.Context(), place.ID, 10*time.Second)
	if err != nil || h.Ref != place.Ref || h.State != lockserver.Held {
		t.Fatalf("%+v, %v", h, err)
	}
}

// TestCluster_AHoldIsKeptByAnotherServer has a waiter that another server grants the
// lock, also where its session's lease stands for it.
func TestCluster_AHoldIsKeptByAnotherServer(t *testing.T) {
	t.Parallel()
	for _, inSession := range []bool{false, true} {
		t.Run(map[bool]string{false: "with its own lease", true: "in a session"}[inSession], func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			holder := mustAcquire(t, f.servers[2], try("a"))
			req := kept("1b")
			req.TTL = time.Minute // so that the holder renews seldom
			renew := func(s *lockserver.Server, id string) error { _, err := s.Renew(t.Context(), id); return err }
			if inSession {
				session, err := f.servers[0].CreateSession(t.Context(), "w", req.TTL)
				if err != nil {
					t.Fatal(err)
				}
				req.Session, req.TTL = session.ID, 0
				renew = func(s *lockserver.Server, _ string) error {
					_, err := s.RenewSession(t.Context(), session.ID)
					return err
				}
			}
			place := mustAcquire(t, f.servers[0], req)
			mustRelease(t, f.servers[2], holder)
			h, err := f.servers[1].AwaitHold(t.Context(), place.ID, 10*time.Second)
			if err != nil || h.State != lockserver.Held {
				t.Fatalf("%+v, %v", h, err)
			}
			every(t, time.Second, beyond, func() {
				if got, err := f.servers[1].Hold(t.Context(), place.ID); err != nil || got.Token != h.Token {
					t.Fatalf("%+v, %v", got, err)
				}
			})
			if err := renew(f.servers[1], place.ID); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestCluster_APlaceLapses wants the place of a waiter that no server hears of any more
// gone, so that those behind it need not wait for it, and within the stated bound.
func TestCluster_APlaceLapses(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	long := try("a")
	long.TTL = time.Hour
	mustAcquire(t, f.servers[2], long)
	feed := subscribe(t, f.servers[1])
	req := kept("1c")
	req.TTL = time.Hour
	start := time.Now()
	place := mustAcquire(t, f.servers[0], req)
	if e := nextEvent(t, feed, lockserver.EventCancelled); e.Ref != place.Ref {
		t.Fatalf("cancelled %+v", e)
	}
	const bound = lockserver.PlaceTimeout + 8*time.Second + slack
	if took := time.Since(start); took < lockserver.PlaceTimeout-slack || took > bound {
		t.Errorf("the place lapsed after %v", took)
	}
}

// TestCluster_AnEndThatWasToldIsKnownEverywhere has one server told of an end that
// another has just answered: a renewal there must not say that the hold is still held.
func TestCluster_AnEndThatWasToldIsKnownEverywhere(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx := t.Context()
	for i := range 200 {
		lock := fmt.Sprint("a", i%5)
		a, b := f.servers[i%3], f.servers[(i+1)%3]
		req := try(lock)
		session, err := a.CreateSession(ctx, "w", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if i%4 == 3 {
			req.Session, req.TTL = session.ID, 0
		}
		h, err := a.Acquire(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		switch i % 4 {
		case 0, 1:
			err = a.Release(ctx, h.ID)
		case 2:
			_, err = a.Break(ctx, lockserver.BreakRequest{Lock: lock, Token: h.Token, Reason: "test"})
		case 3:
			err = a.EndSession(ctx, session.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		ask := b.Renew
		if i%2 == 1 {
			ask = b.Hold
		}
		if err := refusal(func() error { _, err := ask(ctx, h.ID); return err }); apierr.CodeOf(err) != apierr.HoldGone {
			t.Fatalf("round %d: %v, want hold_gone", i, err)
		}
		if i%4 == 3 {
			if err := refusal(func() error { _, err := b.RenewSession(ctx, session.ID); return err }); apierr.CodeOf(err) != apierr.SessionGone {
				t.Fatalf("round %d: %v, want session_gone", i, err)
			}
		}
	}
}

// refusal returns what a call is refused with, where the store answers at all.
func refusal(call func() error) error {
	for {
		if err := call(); apierr.CodeOf(err) != apierr.NoQuorum {
			return err
		}
	}
}
