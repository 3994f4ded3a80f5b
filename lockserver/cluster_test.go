package lockserver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
)

// fleet is a cluster with a lock server on each member.
type fleet struct {
	*etcdtest.Cluster
	t       *testing.T
	servers []*lockserver.Server
	stops   []func()
	issued  []string
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{Cluster: etcdtest.NewCluster(t, 3), t: t}
	f.servers, f.stops = make([]*lockserver.Server, 3), make([]func(), 3)
	for i := range 3 {
		f.issued = append(f.issued, filepath.Join(t.TempDir(), "issued"))
		f.serve(i)
	}
	return f
}

// serve starts the lock server of a running member.
func (f *fleet) serve(i int) {
	f.t.Helper()
	f.servers[i], f.stops[i] = etcdtest.Run(f.t, lockserver.Config{
		Client: f.Node(i).Client(), Name: fmt.Sprintf("s%d", i), IssuedFile: f.issued[i], Managed: true,
		Logger: slog.New(slog.NewTextHandler(f.t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	})
}

// restart stops a server and its member in order, and starts both again.
func (f *fleet) restart(i int) {
	f.t.Helper()
	f.stops[i]()
	f.Stop(i)
	f.Start(i)
	f.WaitReady(i)
	f.serve(i)
}

// others returns the members but one.
func (f *fleet) others(not int) (a, b *lockserver.Server) {
	return f.servers[(not+1)%3], f.servers[(not+2)%3]
}

// patience bounds what a test asks for again and again while a leader is elected.
const patience = time.Minute

// eventually repeats a call while its error says that a repeat may help, as every
// client does.
func eventually[T any](t *testing.T, call func(context.Context) (T, error)) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pause := time.NewTicker(50 * time.Millisecond) // a crowd of repeats would hold the election up
	defer pause.Stop()
	for {
		got, err := call(ctx)
		if err == nil {
			return got
		}
		<-pause.C
		if code := apierr.CodeOf(err); ctx.Err() != nil || !code.Info().Retryable {
			t.Fatalf("the call does not succeed: %v", err)
		}
	}
}

func renewOn(s *lockserver.Server, h *lockserver.Hold) func(context.Context) (*lockserver.Hold, error) {
	return func(ctx context.Context) (*lockserver.Hold, error) { return s.Renew(ctx, h.ID) }
}

func acquireOn(s *lockserver.Server, req lockserver.AcquireRequest) func(context.Context) (*lockserver.Hold, error) {
	return func(ctx context.Context) (*lockserver.Hold, error) { return s.Acquire(ctx, req) }
}

// TestCluster_AHoldOutlivesItsServer cuts off the server that granted, which leads
// too, so that its death and an election come together.
func TestCluster_AHoldOutlivesItsServer(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	dead := f.Leader()
	req := queueFor("a", 0)
	req.TTL = time.Minute
	h := mustAcquire(t, f.servers[dead], req)
	f.Isolate(dead)
	b, c := f.others(dead)
	if r := eventually(t, renewOn(b, h)); r.Token != h.Token {
		t.Fatalf("renewed with token %d, granted with %d", r.Token, h.Token)
	}
	mustRelease(t, c, h)
	if next := mustAcquire(t, b, try("a")); next.Token <= h.Token {
		t.Fatalf("token %d after %d", next.Token, h.Token)
	}
}

// TestCluster_HoldsOfADeadServerEnd: nobody renews, and the server that would
// expire the hold is gone, so the store's lease does it.
func TestCluster_HoldsOfADeadServerEnd(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	dead := (f.Leader() + 1) % 3
	req := try("a")
	req.TTL = time.Second
	h := eventually(t, acquireOn(f.servers[dead], req)) // a loaded machine may be too slow for this TTL at first
	granted := time.Now()
	f.Isolate(dead)
	b, _ := f.others(dead)
	next := eventually(t, acquireOn(b, queueFor("a", lockserver.MaxWait)))
	const bound = time.Second + 6*time.Second + 2*time.Second // TTL, lease and its scan, one election
	if took := time.Since(granted); took < req.TTL || took > bound+slack {
		t.Errorf("the hold of a dead server ended after %v", took)
	}
	if next.Token <= h.Token {
		t.Fatalf("token %d after %d", next.Token, h.Token)
	}
}

// TestCluster_AnswersAcrossServers goes on at another server at once after each
// answer: what one server has said is true on all.
func TestCluster_AnswersAcrossServers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for i := range 60 {
		a, b, c := f.servers[i%3], f.servers[(i+1)%3], f.servers[(i+2)%3]
		h := mustAcquire(t, a, try("a"))
		if r, err := b.Renew(t.Context(), h.ID); err != nil || r.Token != h.Token {
			t.Fatalf("renew at once on another server: %+v, %v", r, err)
		}
		pair := []lockserver.Pair{{Lock: "a", Token: h.Token}}
		if got, err := c.Check(t.Context(), pair); err != nil || got[0].Verdict != lockserver.Valid {
			t.Fatalf("check at once on another server: %+v, %v", got, err)
		}
		_, err := c.Acquire(t.Context(), try("a"))
		wantCode(t, err, apierr.LockHeld)
		mustRelease(t, a, h)
		if got, err := b.Check(t.Context(), pair); err != nil || got[0].Verdict == lockserver.Valid {
			t.Fatalf("check of a released hold: %+v, %v", got, err)
		}
		next, err := c.Acquire(t.Context(), try("a"))
		if err != nil {
			t.Fatalf("acquire at once after the release on another server: %v", err)
		}
		mustRelease(t, b, next)
		if err := c.Release(t.Context(), next.ID); err != nil {
			t.Fatalf("a second release on another server: %v", err)
		}
	}
}

func TestCluster_SessionsAcrossServers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for i := range 20 {
		a, b, c := f.servers[i%3], f.servers[(i+1)%3], f.servers[(i+2)%3]
		s, err := a.CreateSession(t.Context(), "me", 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		req := try(fmt.Sprintf("lock %d", i))
		req.Session = s.ID
		h, err := b.Acquire(t.Context(), req)
		if err != nil {
			t.Fatalf("acquire at once in a session of another server: %v", err)
		}
		renewed, err := c.RenewSession(t.Context(), s.ID)
		if err != nil {
			t.Fatalf("renew at once on another server: %v", err)
		}
		// A hold that the answer's revision does not cover says nothing.
		if renewed.Revision >= int64(h.Token) && len(renewed.Live) != 1 {
			t.Fatalf("the session has %v at revision %d, the hold is of %d", renewed.Live, renewed.Revision, h.Token)
		}
		if err := b.EndSession(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
		again := try(req.Lock)
		if _, err := c.Acquire(t.Context(), again); err != nil {
			t.Fatalf("acquire at once after the session's end: %v", err)
		}
	}
}

// TestCluster_RenewalThroughAnotherServerKeepsTheHold: the server that granted has
// a timer for it and must ask the store before it acts.
func TestCluster_RenewalThroughAnotherServerKeepsTheHold(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	req := try("a")
	req.TTL = 4 * time.Second // what a busy machine may take for a renewal is less
	h := mustAcquire(t, f.servers[0], req)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < 2*req.TTL; {
		<-tick.C
		if r, err := f.servers[1].Renew(t.Context(), h.ID); err != nil || r.Token != h.Token {
			t.Fatalf("after %v: %+v, %v", time.Since(start), r, err)
		}
	}
	last := time.Now()
	feed := subscribe(t, f.servers[2])
	nextEvent(t, feed, lockserver.EventExpired)
	// The servers ask the store, which tells whole seconds.
	if took := time.Since(last); took > req.TTL+2*time.Second+slack {
		t.Errorf("expired %v after the last renewal", took)
	}
}

// TestCluster_ExpiryIsSeenEverywhere bounds the end of a hold that nobody renews.
func TestCluster_ExpiryIsSeenEverywhere(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	feed := subscribe(t, f.servers[1])
	req := try("a")
	req.TTL = time.Second
	eventually(t, acquireOn(f.servers[0], req))
	start := time.Now()
	nextEvent(t, feed, lockserver.EventExpired)
	if took := time.Since(start); took < req.TTL/2 || took > req.TTL+1500*time.Millisecond+slack {
		t.Errorf("expired after %v, want %v and at most 1.5s more", took, req.TTL)
	}
}

// TestCluster_NoQuorumEndsRequestsByTheirDeadlines leaves one server without the
// others, with a waiter, a holder and new requests.
func TestCluster_NoQuorumEndsRequestsByTheirDeadlines(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const lost = 0
	s := f.servers[lost]
	h := mustAcquire(t, s, func() lockserver.AcquireRequest { r := try("a"); r.TTL = time.Hour; return r }())
	const wait = 5 * time.Second
	type answer struct {
		err  error
		took time.Duration
	}
	ended := make(chan answer, 1)
	start := time.Now()
	go func() {
		_, err := s.Acquire(t.Context(), queueFor("a", wait))
		ended <- answer{err, time.Since(start)}
	}()
	waitQueue(t, s, "a", 1)
	f.Isolate(lost)
	f.WaitNoLeader(lost)

	bounded(t, "a renewal", 3*time.Second, apierr.NoQuorum, func() error { _, err := s.Renew(t.Context(), h.ID); return err })
	bounded(t, "an acquire", 3*time.Second, apierr.NoQuorum, func() error { _, err := s.Acquire(t.Context(), try("b")); return err })
	bounded(t, "a check", 3*time.Second, apierr.NoQuorum, func() error {
		_, err := s.Check(t.Context(), []lockserver.Pair{{Lock: "a", Token: h.Token}})
		return err
	})
	got := <-ended
	wantCode(t, got.err, apierr.NoQuorum)
	if got.took > wait+time.Second+slack {
		t.Errorf("the waiter was answered after %v, its wait was %v", got.took, wait)
	}
	var coded *apierr.Error
	if !errors.As(got.err, &coded) || coded.RetryAfter == 0 {
		t.Errorf("the waiter is not told when to come again: %v", got.err)
	}
	wantCode(t, s.Ready(), apierr.NoQuorum)

	f.Heal()
	eventually(t, renewOn(s, h))
	// The place that was given up without a quorum goes when there is one.
	mustRelease(t, s, h)
	if next := eventually(t, acquireOn(s, queueFor("a", lockserver.MaxWait))); next.Token <= h.Token {
		t.Fatalf("token %d after %d", next.Token, h.Token)
	}
}

// TestCluster_NoQuorumIsToldToWhoeverWaits leaves a server without the others that is asked
// for a kept place and for a session: "still queued" and "nothing new" are all that it has
// seen, and for ever.
func TestCluster_NoQuorumIsToldToWhoeverWaits(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const lost, well = 0, 1
	s := f.servers[lost]
	holding := try("a")
	holding.TTL = time.Hour
	h := mustAcquire(t, f.servers[well], holding)
	kept := queueFor("a", 0)
	kept.TTL, kept.KeepPlace, kept.IdempotencyKey = time.Hour, true, strings.Repeat("c1", 16)
	place := eventually(t, acquireOn(s, kept))
	if place.State != lockserver.Queued {
		t.Fatalf("got %v", place.State)
	}
	session, err := s.CreateSession(t.Context(), "me", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	f.Isolate(lost)
	f.WaitNoLeader(lost)

	const wait = 2 * time.Second
	kept.Wait = wait
	for what, call := range map[string]func() error{
		"a repeat":  func() error { _, err := s.Acquire(t.Context(), kept); return err },
		"a wait":    func() error { _, err := s.AwaitHold(t.Context(), place.ID, wait); return err },
		"a session": func() error { _, err := s.AwaitSession(t.Context(), session.ID, wait); return err },
	} {
		bounded(t, what, wait+2*time.Second, apierr.NoQuorum, call)
		var coded *apierr.Error
		if err := call(); !errors.As(err, &coded) || coded.RetryAfter == 0 {
			t.Errorf("%s is not told when to come again: %v", what, err)
		}
	}

	f.Heal()
	mustRelease(t, f.servers[well], h)
	kept.Wait = lockserver.MaxWait
	if served := eventually(t, acquireOn(s, kept)); served.ID != place.ID || served.State != lockserver.Held {
		t.Fatalf("the place is lost: %+v", served)
	}
}

// bounded runs a call that must end with the given code in time.
func bounded(t *testing.T, what string, bound time.Duration, code apierr.Code, call func() error) {
	t.Helper()
	start := time.Now()
	err := call()
	if took := time.Since(start); took > bound+slack {
		t.Errorf("%s took %v, want at most %v", what, took, bound)
	}
	if apierr.CodeOf(err) != code {
		t.Errorf("%s: got %v, want code %s", what, err, code)
	}
}
