package lockserver_test

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

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
