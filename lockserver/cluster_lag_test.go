package lockserver_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
)

// gate is a watch that can be held back: the mirror behind it stays in the past
// while the store goes on.
type gate struct {
	clientv3.Watcher
	mu   sync.Mutex
	open chan struct{} // closed while the gate is open
}

func newGate(w clientv3.Watcher) *gate {
	g := &gate{Watcher: w, open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

func (g *gate) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	in, out := g.Watcher.Watch(ctx, key, opts...), make(chan clientv3.WatchResponse)
	go func() {
		defer close(out)
		for resp := range in {
			g.mu.Lock()
			open := g.open
			g.mu.Unlock()
			select {
			case <-open:
			case <-ctx.Done():
				continue
			}
			select {
			case out <- resp:
			case <-ctx.Done():
			}
		}
	}()
	return out
}

// TestCluster_AServerThatIsBehindNeverSaysGoneHeldOrValid holds one server's mirror
// back while the other works. Whatever it does not know it asks the store for, and
// then waits for its mirror or says that it is behind.
func TestCluster_AServerThatIsBehindNeverSaysGoneHeldOrValid(t *testing.T) {
	t.Parallel()
	client := etcdtest.Node(t).Client()
	g := newGate(client.Watcher)
	watch := clientv3.NewCtxClient(t.Context())
	watch.Watcher = g
	ahead, _ := etcdtest.Run(t, lockserver.Config{Client: client, Name: "ahead"})
	late, _ := etcdtest.Run(t, lockserver.Config{Client: client, Watch: watch, Name: "late"})
	check := func(h *lockserver.Hold) error {
		got, err := late.Check(t.Context(), []lockserver.Pair{{Lock: h.Lock, Token: h.Token}})
		if err == nil {
			t.Errorf("a check by a server that is behind says %v", got[0].Verdict)
		}
		return err
	}

	g.hold()
	h := mustAcquire(t, ahead, try("a"))
	session, err := ahead.CreateSession(t.Context(), "me", 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = late.Renew(t.Context(), h.ID)
	wantCode(t, err, apierr.Behind)
	_, err = late.Hold(t.Context(), h.ID)
	wantCode(t, err, apierr.Behind)
	wantCode(t, late.Release(t.Context(), h.ID), apierr.Behind)
	wantCode(t, check(h), apierr.Behind)
	_, err = late.RenewSession(t.Context(), session.ID)
	wantCode(t, err, apierr.Behind)
	_, err = late.Acquire(t.Context(), try("a"))
	wantCode(t, err, apierr.OutcomeUnknown) // its place is deleted on sight

	g.release()
	if r := eventually(t, renewOn(late, h)); r.Token != h.Token {
		t.Fatalf("renewed with token %d, granted with %d", r.Token, h.Token)
	}
	waitQueue(t, ahead, "a", 0) // until the place of unknown outcome is gone

	keyed := try("keyed")
	keyed.IdempotencyKey = strings.Repeat("6b", 16)
	repeated := mustAcquire(t, late, keyed)

	g.hold()
	mustRelease(t, ahead, repeated)
	_, err = late.Acquire(t.Context(), keyed)
	wantCode(t, err, apierr.Behind)
	mustRelease(t, ahead, h)
	wantCode(t, check(h), apierr.Behind)
	_, err = late.Acquire(t.Context(), try("a"))
	wantCode(t, err, apierr.Behind)
	_, err = late.Break(t.Context(), lockserver.BreakRequest{Lock: "a", Token: h.Token, Reason: "test"})
	wantCode(t, err, apierr.Behind)
	next := mustAcquire(t, ahead, try("a"))
	wantCode(t, check(next), apierr.Behind)
	g.release()
	if err := late.Release(t.Context(), next.ID); err != nil && apierr.CodeOf(err) != apierr.Behind {
		t.Fatal(err)
	}
}

// TestCluster_AMemberThatIsRestoredFromASnapshotReadsAnew cuts a member off while
// more is written than the leader keeps of its log, and compacts: the member gets a
// snapshot, and its watch asks for revisions that are gone.
func TestCluster_AMemberThatIsRestoredFromASnapshotReadsAnew(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	lost := (f.Leader() + 1) % 3
	s := f.servers[lost]
	long := try("kept")
	long.TTL = time.Hour
	kept := mustAcquire(t, s, long)
	long.Lock = "ended"
	ended := mustAcquire(t, s, long)
	waited := make(chan error, 1)
	go func() {
		req := queueFor("kept", lockserver.MaxWait)
		req.TTL = time.Hour // its lease must outlive the time that the member is cut off
		_, err := s.Acquire(t.Context(), req)
		waited <- err
	}()
	waitQueue(t, s, "kept", 1)
	f.Isolate(lost)
	f.WaitNoLeader(lost)

	b, c := f.others(lost)
	eventually(t, renewOn(b, ended))
	mustRelease(t, b, ended)
	next := eventually(t, acquireOn(c, long))
	write(t, f.Node(f.Leader()).Client(), 7000)
	if _, err := b.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.Heal()
	defer traffic(t, b)()

	if r := eventually(t, renewOn(s, kept)); r.Token != kept.Token {
		t.Fatalf("renewed with token %d, granted with %d", r.Token, kept.Token)
	}
	// A grant is answered when the mirror has reached it, and with it all before.
	eventually(t, acquireOn(s, try("fresh")))
	_, err := s.Renew(t.Context(), ended.ID)
	wantCode(t, err, apierr.HoldGone)
	info, err := s.Lock(t.Context(), "ended")
	if err != nil || info.Holder == nil || info.Holder.Token != next.Token {
		t.Fatalf("the mirror shows %+v, %v; want token %d", info, err, next.Token)
	}
	mustRelease(t, c, kept)
	if err := <-waited; err != nil && !apierr.CodeOf(err).Info().Retryable {
		t.Errorf("the waiter got %v", err)
	}
	if st, err := s.Status(t.Context()); err != nil || st.Floor == lockserver.Closed {
		t.Errorf("the relist was taken for a rollback: %+v, %v", st, err)
	}
}

// traffic writes through a server until the returned function is called. A member
// that got a snapshot takes no writes of its own until an entry comes after it: etcd
// sets its applied index with entries only.
func traffic(t *testing.T, s *lockserver.Server) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	busy.Go(func() {
		pause := time.NewTicker(50 * time.Millisecond)
		defer pause.Stop()
		for ctx.Err() == nil {
			if h, err := s.Acquire(ctx, try("other")); err == nil {
				_ = s.Release(ctx, h.ID)
			}
			select {
			case <-pause.C:
			case <-ctx.Done():
			}
		}
	})
	return func() { cancel(); busy.Wait() }
}

// write fills the log.
func write(t *testing.T, client *clientv3.Client, n int) {
	t.Helper()
	var writers sync.WaitGroup
	for w := range 64 {
		writers.Go(func() {
			for range n / 64 {
				if _, err := client.Put(t.Context(), fmt.Sprintf("/filler/%d", w), "x"); err != nil {
					t.Errorf("fill the log: %v", err)
					return
				}
			}
		})
	}
	writers.Wait()
}
