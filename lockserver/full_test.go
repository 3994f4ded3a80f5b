package lockserver_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/lockserver/embedded"
)

// smallStore starts an etcd of a quota that is soon full.
func smallStore(t *testing.T) *embedded.Node {
	t.Helper()
	node, err := embedded.Start(t.Context(), embedded.Config{
		Dir: filepath.Join(t.TempDir(), "data"), NoSync: true, QuotaBytes: 8 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	return node
}

const ballastKey = "/ballast"

// fillStore writes until the store takes no more.
func fillStore(t *testing.T, store *clientv3.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var err error
	for ballast := strings.Repeat("x", 1<<20); err == nil; {
		_, err = store.Put(ctx, ballastKey, ballast)
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("the store was not filled: %v", err)
	}
}

// makeRoom drops what fills the store and returns when the node has made its file
// smaller by itself.
func makeRoom(t *testing.T, node *embedded.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	gone, err := node.Client().Delete(ctx, ballastKey)
	if err == nil {
		_, err = node.Client().Compact(ctx, gone.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		t.Fatal(err)
	}
	var upkeep sync.WaitGroup
	defer upkeep.Wait()
	upkeeping, stop := context.WithCancel(ctx)
	defer stop()
	upkeep.Go(func() {
		node.Upkeep(upkeeping, func() int64 { return gone.Header.Revision }, slog.New(slog.DiscardHandler))
	})
	for _, err = node.Client().Put(ctx, ballastKey, ""); err != nil; _, err = node.Client().Put(ctx, ballastKey, "") {
		select {
		case <-ctx.Done():
			t.Fatalf("the store stays full: %v", err)
		case <-time.After(50 * time.Millisecond): // it tells nobody
		}
	}
}

// leaseIDs returns the leases of the store.
func leaseIDs(t *testing.T, store *clientv3.Client) (ids []clientv3.LeaseID) {
	t.Helper()
	resp, err := store.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range resp.Leases {
		ids = append(ids, l.ID)
	}
	return ids
}

func TestR11_AFullStoreStillReleases(t *testing.T) {
	t.Parallel()
	node := smallStore(t)
	s, _ := etcdtest.Run(t, lockserver.Config{Client: node.Client(), Alone: true})
	sub := subscribe(t, s)
	h := mustAcquire(t, s, try("a"))
	other := mustAcquire(t, s, try("b"))
	fillStore(t, node.Client())

	_, err := s.Acquire(t.Context(), try("c"))
	wantFull(t, err)
	if err := s.Ready(); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("ready on a full store: %v", err)
	}
	if _, err := s.Renew(t.Context(), other.ID); err != nil {
		t.Fatalf("renew on a full store: %v", err)
	}
	mustRelease(t, s, h)
	nextEvent(t, sub, lockserver.EventUnknown) // no room to say that it was released
}

// TestR11_ABreakThatFillsTheStoreIsABreak has the store apply a delete and refuse it, as
// etcd does with the write that passes its quota: the repeat finds nothing to delete.
func TestR11_ABreakThatFillsTheStoreIsABreak(t *testing.T) {
	t.Parallel()
	s, faults := faultyServer(t)
	h := mustAcquire(t, s, try("a"))
	first := true
	faults.onWrite(func(resp *clientv3.TxnResponse, err error) (*clientv3.TxnResponse, error) {
		if first && err == nil {
			first = false
			return nil, rpctypes.ErrNoSpace
		}
		return resp, err
	})
	ended, err := s.Break(t.Context(), lockserver.BreakRequest{Lock: "a", Token: h.Token, Reason: "stuck", By: "me"})
	if err != nil || ended.End != lockserver.Broken || ended.By != "me" {
		t.Fatalf("%+v, %v", ended, err)
	}
	_, err = s.Break(t.Context(), lockserver.BreakRequest{Lock: "a", Token: h.Token, Reason: "stuck", By: "me"})
	wantCode(t, err, apierr.HolderChanged)
}

// wantFull wants the error of a write on a full store.
func wantFull(t *testing.T, err error) {
	t.Helper()
	if code := apierr.CodeOf(err); code != apierr.OutcomeUnknown && code != apierr.NoQuorum {
		t.Fatalf("a write on a full store: %v", err)
	}
}

// TestR11_AFullStoreLeavesNoGhosts refuses every kind of request that writes, with a
// lease from the pool and without one, and looks for what is left of them when there
// is room again.
func TestR11_AFullStoreLeavesNoGhosts(t *testing.T) {
	t.Parallel()
	node := smallStore(t)
	store := node.Client()
	s, _ := etcdtest.Run(t, lockserver.Config{Client: store, Alone: true})
	holder := mustAcquire(t, s, try("b"))
	mustRelease(t, s, mustAcquire(t, s, try("c"))) // its lease waits in the pool
	fillStore(t, store)
	before := leaseIDs(t, store)

	keyed, place := try("d"), queueFor("b", time.Second)
	keyed.IdempotencyKey = strings.Repeat("1", 32)
	place.IdempotencyKey, place.KeepPlace = strings.Repeat("2", 32), true
	for _, req := range []lockserver.AcquireRequest{try("c"), keyed, queueFor("b", time.Second), place} {
		_, err := s.Acquire(t.Context(), req)
		wantFull(t, err)
	}
	_, err := s.CreateSession(t.Context(), "worker", 0)
	wantFull(t, err)

	makeRoom(t, node)
	for s.Ready() != nil { // its probe takes a lease, and has given it back then
		if t.Context().Err() != nil {
			t.Fatal(s.Ready())
		}
		time.Sleep(10 * time.Millisecond)
	}
	kept, err := store.Get(t.Context(), holdsPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil || len(kept.Kvs) != 1 || string(kept.Kvs[0].Key) != keyOf(holder) {
		t.Errorf("keys %v are left, want that of the holder alone (%v)", kept.Kvs, err)
	}
	for _, id := range leaseIDs(t, store) {
		if !slices.Contains(before, id) {
			t.Errorf("lease %x is left of a refused request", id)
		}
	}
	if st := status(t, s); st.Holds != 1 || st.Waiters != 0 || st.Sessions != 0 {
		t.Errorf("%d holds, %d waiters, %d sessions; want the holder alone", st.Holds, st.Waiters, st.Sessions)
	}
	for _, req := range []lockserver.AcquireRequest{try("c"), keyed} {
		if h := mustAcquire(t, s, req); h.State != lockserver.Held || h.Token <= holder.Token {
			t.Errorf("with room again %q is %+v", req.Lock, h)
		}
	}
	mustRelease(t, s, holder)
	if h := mustAcquire(t, s, try("b")); h.State != lockserver.Held {
		t.Errorf("a place was kept before %+v", h)
	}
}

// TestFloor_ADeleteOfNothingIsNoRollback: on a full store a delete cannot say why, so
// one that is repeated after a lost answer changes nothing, and the store answers at
// the revision that the mirror has. That closes nothing; one revision lower does.
func TestFloor_ADeleteOfNothingIsNoRollback(t *testing.T) {
	t.Parallel()
	for name, lower := range map[string]int64{"at the revision that was seen": 0, "one revision lower": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := smallStore(t)
			faults := spoil(node.Client())
			s, stop := etcdtest.Run(t, lockserver.Config{Client: node.Client(), Alone: true})
			h := mustAcquire(t, s, try("a"))
			fillStore(t, node.Client())
			moved := mirrorReaches(t, s)
			var deleted int64
			answers := make(chan *clientv3.TxnResponse, 8)
			faults.onWrite(func(resp *clientv3.TxnResponse, err error) (*clientv3.TxnResponse, error) {
				switch {
				case err != nil: // no room to say why
				case deleted == 0:
					deleted = resp.Header.Revision
					moved(deleted)
					return nil, errLost
				default:
					resp.Header.Revision -= lower
					answers <- resp
				}
				return resp, err
			})
			_ = s.Release(t.Context(), h.ID) // its outcome is not known
			again := <-answers
			stop() // when the answer was looked at
			if n := again.Responses[0].GetResponseDeleteRange().Deleted; n != 0 || again.Header.Revision+lower != deleted {
				t.Fatalf("the repeat deleted %d keys at %d, want none at %d", n, again.Header.Revision+lower, deleted)
			}
			if closed := status(t, s).Floor == lockserver.Closed; closed != (lower > 0) {
				t.Errorf("granting is closed: %v", closed)
			}
		})
	}
}

// mirrorReaches returns a function that waits until the mirror is at a revision.
func mirrorReaches(t *testing.T, s *lockserver.Server) func(rev int64) {
	return func(rev int64) {
		for late := time.Now().Add(10 * time.Second); status(t, s).Revision < rev; time.Sleep(time.Millisecond) {
			if time.Now().After(late) {
				t.Errorf("the mirror does not reach %d", rev)
				return
			}
		}
	}
}
