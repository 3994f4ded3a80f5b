package lockserver_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/lockserver"
)

// TestServer_ASilentStoreAnswersEveryAcquire queues more puts of one lock than may be on
// their way at once, to a store that lets each run into its time limit.
func TestServer_ASilentStoreAnswersEveryAcquire(t *testing.T) {
	t.Parallel()
	s, faults := faultyServer(t)
	session, err := s.CreateSession(t.Context(), "worker", time.Hour) // its holds need no lease
	if err != nil {
		t.Fatal(err)
	}
	faults.onSend(func(int) error {
		<-time.After(5 * time.Second)
		return errLost
	})
	start := time.Now()
	var asked sync.WaitGroup
	for range 20 {
		asked.Go(func() {
			req := try("a")
			req.Session = session.ID
			_, err := s.Acquire(t.Context(), req)
			if code := apierr.CodeOf(err); code != apierr.NoQuorum && code != apierr.OutcomeUnknown {
				t.Errorf("got %v", err)
			}
			if took := time.Since(start); took > 10*time.Second+slack {
				t.Errorf("a try took %v", took)
			}
		})
	}
	asked.Wait()
	faults.onSend(nil)
	req := try("a")
	req.Session = session.ID
	if h := eventually(t, acquireOn(s, req)); h.State != lockserver.Held {
		t.Fatalf("%+v", h)
	}
}

// TestServer_ASlowStoreRefusesNoAcquire has the last of a crowd wait for longer than an
// answer may take, while the store answers one put after the other.
func TestServer_ASlowStoreRefusesNoAcquire(t *testing.T) {
	t.Parallel()
	s, faults := faultyServer(t)
	session, err := s.CreateSession(t.Context(), "worker", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	faults.onSend(func(ops int) error {
		if ops == 1 { // a put; deletes come with their reasons
			<-time.After(time.Second)
		}
		return nil
	})
	var asked sync.WaitGroup
	for range 28 {
		asked.Go(func() {
			req := try("a")
			req.Session = session.ID
			if _, err := s.Acquire(t.Context(), req); err != nil && apierr.CodeOf(err) != apierr.LockHeld {
				t.Errorf("got %v", err)
			}
		})
	}
	asked.Wait()
}

// TestCluster_NoQuorumAnswersEveryEnd ends more holds at once than there are transactions
// of deletes, at a server that has lost the others. Each is repeated until the store
// answers, and whoever asked must not wait for that.
func TestCluster_NoQuorumAnswersEveryEnd(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const lost, holds = 0, 8
	s := f.servers[lost]
	var held []*lockserver.Hold
	for i := range holds {
		req := try(fmt.Sprint("lock", i))
		req.TTL = time.Hour
		held = append(held, eventually(t, acquireOn(s, req)))
	}
	f.Isolate(lost)
	f.WaitNoLeader(lost)

	var asked sync.WaitGroup
	for _, h := range held {
		asked.Go(func() {
			bounded(t, "a release", 6*time.Second, apierr.OutcomeUnknown, func() error { return s.Release(t.Context(), h.ID) })
		})
	}
	asked.Wait()

	f.Heal()
	waitEmpty(t, s)
}
