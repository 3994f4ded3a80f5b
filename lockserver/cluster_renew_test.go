package lockserver_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
)

// The tests of this file renew at one server what another has granted, as a client does
// behind a load balancer.

// twoServers are servers that share a store; what b sends goes through faults.
type twoServers struct {
	a, b   *lockserver.Server
	stopA  func()
	faults *faulty
	store  *clientv3.Client
}

func startTwo(t *testing.T) *twoServers {
	t.Helper()
	two := &twoServers{store: etcdtest.Node(t).Client()}
	spoiled := clientv3.NewCtxClient(t.Context())
	spoiled.KV, spoiled.Lease, spoiled.Watcher = two.store.KV, two.store.Lease, two.store.Watcher
	two.faults = spoil(spoiled)
	two.a, two.stopA = etcdtest.Run(t, lockserver.Config{Client: two.store, Name: "a"})
	two.b, _ = etcdtest.Run(t, lockserver.Config{Client: spoiled, Name: "b"})
	return two
}

// after waits until d has gone by since start: deadlines are what these tests are about.
func after(start time.Time, d time.Duration) { <-time.After(time.Until(start.Add(d))) }

// TestCluster_ARepeatRenewsTheLeaseOfTheHold has a repeat at another server find its lease
// only after the first try's put has come: the hold stands on the lease of the first.
func TestCluster_ARepeatRenewsTheLeaseOfTheHold(t *testing.T) {
	t.Parallel()
	two := startTwo(t)
	seen := subscribe(t, two.b)
	asked, goOn := make(chan struct{}), make(chan struct{})
	two.faults.onLease(func() error {
		asked <- struct{}{}
		<-goOn
		return nil
	})
	req := queueFor("a", time.Second)
	req.TTL, req.IdempotencyKey = 5*time.Second, strings.Repeat("3a", 16)
	repeated := make(chan *lockserver.Hold, 1)
	go func() { repeated <- mustAcquireAsync(t, two.b, req) }()
	<-asked
	two.faults.onLease(nil)
	granted := time.Now()
	h := mustAcquire(t, two.a, req)
	nextEvent(t, seen, lockserver.EventGranted)
	close(goOn)
	if r := <-repeated; r == nil || r.ID != h.ID || r.Token != h.Token {
		t.Fatalf("the repeat got %+v, the first try %+v", r, h)
	}

	after(granted, 3*time.Second)
	if _, err := two.b.Renew(t.Context(), h.ID); err != nil {
		t.Fatal(err)
	}
	key, err := two.store.Get(t.Context(), keyOf(h))
	if err != nil || len(key.Kvs) != 1 {
		t.Fatalf("%v, %v", key, err)
	}
	left, err := two.store.TimeToLive(t.Context(), clientv3.LeaseID(key.Kvs[0].Lease))
	if err != nil || left.GrantedTTL-left.TTL > 2 {
		t.Fatalf("the lease of the hold has %d of %d s left after a renewal (%v)", left.TTL, left.GrantedTTL, err)
	}
}

// TestCluster_ADeadlineThatAnotherServerMovedIsNoEnd comes back to the server that granted
// after its deadline, but within that of a renewal elsewhere.
func TestCluster_ADeadlineThatAnotherServerMovedIsNoEnd(t *testing.T) {
	t.Parallel()
	const ttl, renewed, back = 4 * time.Second, 3 * time.Second, 4200 * time.Millisecond
	two := startTwo(t)
	ctx := t.Context()
	granted := time.Now()
	var holds []*lockserver.Hold
	for _, lock := range []string{"renewed", "awaited"} {
		req := try(lock)
		req.TTL = ttl
		holds = append(holds, mustAcquire(t, two.a, req))
	}
	session, err := two.a.CreateSession(ctx, "worker", ttl)
	if err != nil {
		t.Fatal(err)
	}
	joined := try("joined")
	joined.Session = session.ID
	member := mustAcquire(t, two.a, joined)

	after(granted, renewed)
	for _, h := range holds {
		if _, err := two.b.Renew(ctx, h.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := two.b.RenewSession(ctx, session.ID); err != nil {
		t.Fatal(err)
	}

	after(granted, back)
	late := try("late")
	late.Session = session.ID
	for what, call := range map[string]func() error{
		"a renewal":                 func() error { _, err := two.a.Renew(ctx, holds[0].ID); return err },
		"a wait":                    func() error { _, err := two.a.AwaitHold(ctx, holds[1].ID, 0); return err },
		"an acquire in the session": func() error { _, err := two.a.Acquire(ctx, late); return err },
		"a renewal in the session":  func() error { _, err := two.a.Renew(ctx, member.ID); return err },
		"a renewal of the session":  func() error { _, err := two.a.RenewSession(ctx, session.ID); return err },
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestCluster_ADeadlineThatPassesDuringARenewal has the answer of a keep-alive come after
// the deadline that its server knows, and within that of a renewal elsewhere.
func TestCluster_ADeadlineThatPassesDuringARenewal(t *testing.T) {
	t.Parallel()
	const ttl, elsewhere, back, took = 6 * time.Second, 4 * time.Second, 5 * time.Second, 1500 * time.Millisecond
	two := startTwo(t)
	ctx := t.Context()
	granted := time.Now()
	req := try("a")
	req.TTL = ttl
	h := mustAcquire(t, two.b, req)
	session, err := two.b.CreateSession(ctx, "worker", ttl)
	if err != nil {
		t.Fatal(err)
	}
	after(granted, elsewhere)
	if _, err := two.a.Renew(ctx, h.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := two.a.RenewSession(ctx, session.ID); err != nil {
		t.Fatal(err)
	}

	after(granted, back)
	two.faults.onKeepAlive(func() { <-time.After(took) })
	var renewals sync.WaitGroup
	renewals.Go(func() {
		if _, err := two.b.Renew(ctx, h.ID); err != nil {
			t.Errorf("the hold: %v", err)
		}
	})
	renewals.Go(func() {
		if _, err := two.b.RenewSession(ctx, session.ID); err != nil {
			t.Errorf("the session: %v", err)
		}
	})
	renewals.Wait()
}

// TestCluster_ASessionLastsAsLongAsItWasTold renews a session at another server than the
// one that ends it, which asks the store: that tells whole seconds.
func TestCluster_ASessionLastsAsLongAsItWasTold(t *testing.T) {
	t.Parallel()
	const ttl = 2500 * time.Millisecond
	two := startTwo(t)
	feed := subscribe(t, two.b)
	created := time.Now()
	session, err := two.a.CreateSession(t.Context(), "worker", ttl)
	if err != nil {
		t.Fatal(err)
	}
	req := try("a")
	req.Session = session.ID
	mustAcquire(t, two.a, req)
	// a looks 1 s after its deadline, and then 2.1 s have gone by, which the store tells as 3.
	after(created, ttl+time.Second-2*time.Second-100*time.Millisecond)
	sent := time.Now()
	if _, err := two.b.RenewSession(t.Context(), session.ID); err != nil {
		t.Fatal(err)
	}
	nextEvent(t, feed, lockserver.EventExpired)
	if lasted := time.Since(sent); lasted < ttl || lasted > ttl+2*time.Second+slack {
		t.Errorf("the session ended %v after its renewal, its TTL is %v", lasted, ttl)
	}
}

// TestCluster_AHoldLastsAsLongAsItWasToldToASlowServer has the server that granted ask the
// store late when the lease was renewed last, as one that stood still does: the answer is
// of the moment of the store.
func TestCluster_AHoldLastsAsLongAsItWasToldToASlowServer(t *testing.T) {
	t.Parallel()
	const ttl, took = 3 * time.Second, 1500 * time.Millisecond
	two := startTwo(t)
	two.faults.onLook(func() { <-time.After(took) })
	feed := subscribe(t, two.a)
	req := try("a")
	req.TTL = ttl
	granted := time.Now()
	h := mustAcquire(t, two.b, req)
	var sent time.Time
	for _, at := range []time.Duration{1500 * time.Millisecond, 3300 * time.Millisecond} {
		after(granted, at)
		sent = time.Now()
		if _, err := two.a.Renew(t.Context(), h.ID); err != nil {
			t.Fatal(err)
		}
	}
	nextEvent(t, feed, lockserver.EventExpired)
	if lasted := time.Since(sent); lasted < ttl {
		t.Errorf("the hold ended %v after its renewal, its TTL is %v", lasted, ttl)
	}
}

// TestCluster_ASessionPastItsDeadlineIsNotRenewed asks a server that does not know the
// deadline, while the lease in the store still lives.
func TestCluster_ASessionPastItsDeadlineIsNotRenewed(t *testing.T) {
	t.Parallel()
	two := startTwo(t)
	created := time.Now()
	session, err := two.a.CreateSession(t.Context(), "worker", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	req := try("a")
	req.Session = session.ID
	h := mustAcquire(t, two.a, req)
	two.stopA()
	after(created, 3500*time.Millisecond)
	_, err = two.b.Renew(t.Context(), h.ID)
	wantCode(t, err, apierr.HoldGone)
	_, err = two.b.RenewSession(t.Context(), session.ID)
	wantCode(t, err, apierr.SessionGone)
}
