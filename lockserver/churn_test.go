package lockserver_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/lockserver"
)

// TestServer_NothingIsLeftBehind fails, cancels and refuses 10,000 requests and
// wants keys, watches and goroutines back where they were. Leases go back to the pool and
// are used again, so their number is that of the requests at one time: each worker's,
// and those whose deletes are under way. The test is alone, because watches and
// goroutines are counted in the whole process.
func TestServer_NothingIsLeftBehind(t *testing.T) {
	s, store := onStore(t)
	long := try("a")
	long.TTL = 10 * time.Minute
	holder := mustAcquire(t, s, long)
	before, watched := goroutines(), watches(t)
	const workers, each = 50, 200
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				fail(t, s, w*each+i)
			}
		})
	}
	wg.Wait()
	mustRelease(t, s, holder)
	waitEmpty(t, s)
	keys, err := store.Get(t.Context(), holdsPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || keys.Count != 0 {
		t.Fatalf("%d keys are left, %v", keys.Count, err)
	}
	leases, err := store.Leases(t.Context())
	if err != nil || len(leases.Leases) > 3*workers {
		t.Fatalf("%d leases are left, %v", len(leases.Leases), err)
	}
	if after := watches(t); after != watched {
		t.Fatalf("%v watches, %v before", after, watched)
	}
	for late := time.Now().Add(10 * time.Second); goroutines() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(late) { // the last ones end after their answer
			t.Fatalf("%d goroutines, %d before", goroutines(), before)
		}
	}
}

// waitEmpty waits, on the server's events, until no hold is live: deletes of holds
// that were given up may be on their way.
func waitEmpty(t *testing.T, s *lockserver.Server) {
	t.Helper()
	f := subscribe(t, s)
	for {
		st, err := s.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if st.Holds == 0 {
			return
		}
		if _, err := f.sub.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func goroutines() int {
	runtime.GC()
	return runtime.NumGoroutine()
}

// watches counts what is watched in the stores of this process.
func watches(t *testing.T) (n float64) {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "etcd_debugging_mvcc_watcher_total" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("etcd does not count its watches")
	return 0
}

// fail makes one request that cannot succeed.
func fail(t *testing.T, s *lockserver.Server, n int) {
	req := try("a")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	switch n % 4 {
	case 0: // a try on a held lock
	case 1: // a wait that is over
		req.Wait = time.Millisecond
	case 2: // a wait that is cancelled, at any instant
		req.Wait = 10 * time.Second
		time.AfterFunc(time.Duration(n%7)*200*time.Microsecond, cancel)
	case 3:
		req.Lock = fmt.Sprintf("%0600d", n)
	}
	if h, err := s.Acquire(ctx, req); err == nil {
		t.Errorf("request %d was granted: %+v", n, h)
	}
}

// TestServer_APlaceLapses wants the place of a hold with an idempotency key kept
// for PlaceTimeout after its last request, and not much longer; and a head that
// nobody claims in that time gone, and the next one granted.
func TestServer_APlaceLapses(t *testing.T) {
	t.Parallel()
	s, _ := onStore(t)
	f := subscribe(t, s)
	holder := mustAcquire(t, s, try("a"))
	req := queueFor("a", time.Millisecond)
	req.KeepPlace, req.IdempotencyKey = true, fmt.Sprintf("%032x", 1)
	left := mustAcquire(t, s, req)
	start := time.Now()
	mustRelease(t, s, holder) // left is the head now, and nobody asks for it

	next := make(chan *lockserver.Hold, 1)
	go func() { next <- mustAcquireAsync(t, s, queueFor("a", 25*time.Second)) }()
	if e := nextEvent(t, f, lockserver.EventCancelled); e.Ref != left.Ref {
		t.Fatalf("cancelled %+v, want %s", e, left.Ref)
	}
	if took := time.Since(start); took < lockserver.PlaceTimeout-slack || took > lockserver.PlaceTimeout+slack {
		t.Errorf("the place lapsed after %v, want %v", took, lockserver.PlaceTimeout)
	}
	if h := <-next; h.Token <= left.Token {
		t.Errorf("token %d after %d", h.Token, left.Token)
	}
	_, err := s.Acquire(t.Context(), req)
	wantGone(t, err, lockserver.Cancelled)
}
