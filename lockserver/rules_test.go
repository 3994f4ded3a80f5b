package lockserver_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
)

// The tests of this file are named after the rules that they hold: R1 to R14 of
// DESIGN.md, each the lesson of a fault.

const holdsPrefix = lockserver.DefaultPrefix + "h/"

// onStore runs a server and returns the store's client beside it.
func onStore(t *testing.T) (*lockserver.Server, *clientv3.Client) {
	t.Helper()
	node := etcdtest.Node(t)
	server, _ := etcdtest.Run(t, lockserver.Config{Client: node.Client(), Alone: true})
	return server, node.Client()
}

func keyOf(h *lockserver.Hold) string { return holdsPrefix + h.Ref }

func TestR1_AKeyThatIsPutAgainKeepsItsPlaceAndToken(t *testing.T) {
	t.Parallel()
	s, store := onStore(t)
	first := mustAcquire(t, s, try("a"))
	waiter := make(chan *lockserver.Hold, 1)
	go func() { waiter <- mustAcquireAsync(t, s, queueFor("a", 20*time.Second)) }()
	waitQueue(t, s, "a", 1)

	got, err := store.Get(t.Context(), keyOf(first))
	if err != nil {
		t.Fatal(err)
	}
	kv := got.Kvs[0]
	if _, err := store.Put(t.Context(), keyOf(first), string(kv.Value), clientv3.WithLease(clientv3.LeaseID(kv.Lease))); err != nil {
		t.Fatal(err)
	}
	again, err := s.Renew(t.Context(), first.ID)
	if err != nil || again.Token != first.Token {
		t.Fatalf("after the second put: %+v, %v", again, err)
	}
	mustRelease(t, s, first)
	if next := <-waiter; next.Token <= first.Token {
		t.Fatalf("token %d after %d", next.Token, first.Token)
	}
	if st, err := s.Status(t.Context()); err != nil || st.BadKeys != 1 {
		t.Fatalf("%d bad keys are counted, %v", st.BadKeys, err)
	}
}

// mustAcquireAsync is mustAcquire for another goroutine.
func mustAcquireAsync(t testing.TB, s *lockserver.Server, req lockserver.AcquireRequest) *lockserver.Hold {
	h, err := s.Acquire(t.Context(), req)
	if err != nil {
		t.Errorf("acquire %q: %v", req.Lock, err)
		return &lockserver.Hold{}
	}
	return h
}

func TestR2_NamesNeverMeet(t *testing.T) {
	t.Parallel()
	s, store := onStore(t)
	ids := map[string]bool{}
	for _, name := range []string{"a", "a/", "a/b", "a//b", "A", "a b", "h/", "ends"} {
		h := mustAcquire(t, s, try(name))
		if ids[h.ID] || ids[h.Ref] {
			t.Fatalf("an id was used twice")
		}
		ids[h.ID], ids[h.Ref] = true, true
		if got, err := store.Get(t.Context(), lockserver.DefaultPrefix, clientv3.WithPrefix()); err != nil || hasSecret(got, h.ID) {
			t.Fatalf("the secret id is in the store, %v", err)
		}
	}
}

func hasSecret(resp *clientv3.GetResponse, id string) bool {
	for _, kv := range resp.Kvs {
		if strings.Contains(string(kv.Key)+string(kv.Value), id) {
			return true
		}
	}
	return false
}

func TestR4_ARevisionIsAppliedAsAUnit(t *testing.T) {
	t.Parallel()
	s, store := onStore(t)
	sub := subscribe(t, s)
	head := mustAcquire(t, s, try("a"))
	results := make([]chan error, 2)
	refs := make([]string, 2)
	for i := range results {
		results[i] = make(chan error, 1)
		go func() {
			h, err := s.Acquire(t.Context(), queueFor("a", 20*time.Second))
			if err == nil {
				err = s.Release(t.Context(), h.ID)
			}
			results[i] <- err
		}()
		refs[i] = nextEvent(t, sub, lockserver.EventQueued).Ref
	}
	// The holder and the next in line vanish in one revision: the next must never
	// be granted in between.
	if _, err := store.Txn(t.Context()).Then(
		clientv3.OpDelete(keyOf(head)), clientv3.OpDelete(holdsPrefix+refs[0]),
	).Commit(); err != nil {
		t.Fatal(err)
	}
	wantGone(t, <-results[0], lockserver.EndUnknown)
	if err := <-results[1]; err != nil {
		t.Fatal(err)
	}
	if e := nextEvent(t, sub, lockserver.EventGranted); e.Ref != refs[1] {
		t.Fatalf("granted %s, want %s", e.Ref, refs[1])
	}
}

func TestR7_AWaiterWhoseKeyVanishesFailsAtOnce(t *testing.T) {
	t.Parallel()
	s, store := onStore(t)
	sub := subscribe(t, s)
	mustAcquire(t, s, try("a"))
	failed := make(chan error, 1)
	go func() {
		_, err := s.Acquire(t.Context(), queueFor("a", 30*time.Second))
		failed <- err
	}()
	ref := nextEvent(t, sub, lockserver.EventQueued).Ref
	if _, err := store.Delete(t.Context(), holdsPrefix+ref); err != nil {
		t.Fatal(err)
	}
	wantGone(t, <-failed, lockserver.EndUnknown)
}

var errLost = errors.New("the answer was lost")

// lose drops the answers of transactions after their effect.
func lose(resp *clientv3.TxnResponse, err error) (*clientv3.TxnResponse, error) {
	return nil, errors.Join(errLost, err)
}

func TestR8_AnAbandonedPutIsDeletedOnSight(t *testing.T) {
	t.Parallel()
	s, faults := faultyServer(t)
	sub := subscribe(t, s)
	for range 20 {
		faults.onWrite(lose)
		h, err := s.Acquire(t.Context(), try("a")) // the event may come before the lost answer
		faults.onWrite(nil)
		if err != nil {
			wantCode(t, err, apierr.OutcomeUnknown)
		}
		e := nextEvent(t, sub, lockserver.EventGranted)
		if err != nil {
			nextEvent(t, sub, lockserver.EventCancelled)
			continue
		}
		if h.Token != e.Token {
			t.Fatalf("told token %d of %d", h.Token, e.Token)
		}
		mustRelease(t, s, h)
	}
	wantEmpty(t, s)
}

// TestR8_ARepeatFindsTheHoldWhoseAnswerWasLost is the other half: with an
// idempotency key nobody reaps the hold, and the repeat finds it.
func TestR8_ARepeatFindsTheHoldWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	s, faults := faultyServer(t)
	req := try("a")
	req.IdempotencyKey = "0190b2a3111172228333444455556666"
	faults.onWrite(lose)
	first, err := s.Acquire(t.Context(), req)
	faults.onWrite(nil)
	if err != nil {
		wantCode(t, err, apierr.OutcomeUnknown)
	}
	again := mustAcquire(t, s, req)
	if !again.Replayed || first != nil && first.Token != again.Token {
		t.Fatalf("the repeat made a second hold: %+v", again)
	}
	if st, err := s.Status(t.Context()); err != nil || st.Holds != 1 {
		t.Fatalf("%d holds, want 1", st.Holds)
	}
}

func TestR8_AReleaseWhoseAnswerIsLostGoesOn(t *testing.T) {
	t.Parallel()
	s, faults := faultyServer(t)
	sub := subscribe(t, s)
	h := mustAcquire(t, s, try("a"))
	faults.onWrite(lose)
	wantCode(t, s.Release(t.Context(), h.ID), apierr.OutcomeUnknown)
	nextEvent(t, sub, lockserver.EventReleased)
	faults.onWrite(nil)
	mustRelease(t, s, h) // the repeat is told that it was released
	mustAcquire(t, s, try("a"))
}

func TestR9_AKeepAliveAnsweredAfterTheDeadlineProvesNothing(t *testing.T) {
	t.Parallel()
	s, faults := faultyServer(t)
	sub := subscribe(t, s)
	req := try("a")
	req.TTL = time.Second
	h := mustAcquire(t, s, req)
	expired := make(chan struct{})
	faults.onKeepAlive(func() { <-expired })
	renewed := make(chan error, 1)
	go func() {
		_, err := s.Renew(t.Context(), h.ID)
		renewed <- err
	}()
	nextEvent(t, sub, lockserver.EventExpired)
	close(expired)
	wantGone(t, <-renewed, lockserver.Expired)
}

// TestR9_AWaiterIsGrantedOnlyOnAFreshKeepAlive pins the gate: without an answer of
// a leader of the last tenth of the TTL, the head of the queue is not told that it
// holds the lock.
func TestR9_AWaiterIsGrantedOnlyOnAFreshKeepAlive(t *testing.T) {
	t.Parallel()
	s, faults := faultyServer(t)
	h := mustAcquire(t, s, try("a"))
	asked := make(chan struct{})
	answer := make(chan struct{})
	granted := make(chan *lockserver.Hold, 1)
	waiter := queueFor("a", 20*time.Second)
	waiter.TTL = lockserver.MinTTL
	go func() { granted <- mustAcquireAsync(t, s, waiter) }()
	waitQueue(t, s, "a", 1)
	time.Sleep(waiter.TTL / 10) // until what its lease was granted on is old
	faults.onKeepAlive(func() { close(asked); <-answer })
	mustRelease(t, s, h)
	<-asked
	select {
	case <-granted:
		t.Fatal("granted without the keep-alive's answer")
	default:
	}
	faults.onKeepAlive(nil)
	close(answer)
	<-granted
}
