package lockserver

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fenced/fenced/lockserver/embedded"
	"github.com/fenced/fenced/lockserver/internal/queue"
)

// internalServer runs a server whose mirror a test may spoil.
func internalServer(t *testing.T) *Server {
	t.Helper()
	node, err := embedded.Start(t.Context(), embedded.Config{Dir: filepath.Join(t.TempDir(), "data"), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Client: node.Client(), Alone: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = node.Close()
	})
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAudit_FindsAndHealsALostEvent is the fault of a watch that loses a delete: a
// hold that is gone from the store stands in the mirror, and blocks its lock.
func TestAudit_FindsAndHealsALostEvent(t *testing.T) {
	t.Parallel()
	t.Run("busy", func(t *testing.T) {
		t.Parallel()
		findAndHeal(t, func(*Server) {})
	})
	t.Run("quiet while other keys pass it and are compacted", func(t *testing.T) {
		t.Parallel()
		findAndHeal(t, func(s *Server) {
			put, err := s.config.Client.Put(t.Context(), "/elsewhere", "")
			if err == nil {
				_, err = s.config.Client.Compact(t.Context(), put.Header.Revision)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	})
}

// findAndHeal loses an event, and compares after meanwhile.
func findAndHeal(t *testing.T, meanwhile func(*Server)) {
	t.Helper()
	s := internalServer(t)
	if _, err := s.Acquire(t.Context(), AcquireRequest{Lock: "b", Owner: "worker"}); err != nil {
		t.Fatal(err)
	}
	if err := s.audit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	if s.mirror.differences != 0 {
		t.Errorf("%d differences in a sound mirror", s.mirror.differences)
	}
	ghost := &queue.Hold{Ref: queue.Ref{1}, Lock: "a", Rev: s.mirror.rev, Token: s.mirror.rev}
	s.table.Apply([]queue.Op{{Put: ghost}})
	s.mu.Unlock()
	meanwhile(s)

	if err := s.audit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st, err := s.Status(t.Context()); err != nil || st.Differences != 1 {
		t.Errorf("the status tells of %d differences, want 1 (%v)", st.Differences, err)
	}
	for gone := false; !gone; {
		s.mu.Lock()
		gone = s.table.Get(ghost.Ref) == nil
		moved := s.movedLocked()
		s.mu.Unlock()
		if !gone {
			<-moved
		}
	}
	if _, err := s.Acquire(t.Context(), AcquireRequest{Lock: "a", Owner: "worker"}); err != nil {
		t.Fatalf("the lock is blocked: %v", err)
	}
}

func TestReady_ForgetsARefusalOnceTheStoreWritesAgain(t *testing.T) {
	t.Parallel()
	s := internalServer(t)
	s.mu.Lock()
	s.noteRefusalLocked(rpctypes.ErrNoSpace)
	s.mu.Unlock()
	if err := s.Ready(); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("ready after a refused write: %v", err)
	}
	late := time.After(2*quorumProbe + time.Second)
	for s.Ready() != nil {
		select {
		case <-late:
			t.Fatalf("the store writes, and ready says %v", s.Ready())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestAudit_HealsAHoldThatWasPutAnew is the fault of a watch that loses the end of a hold
// and its put anew, as a repeat by a server without its memory makes it: the mirror has
// an older place and token than the store.
func TestAudit_HealsAHoldThatWasPutAnew(t *testing.T) {
	t.Parallel()
	s := internalServer(t)
	h, err := s.Acquire(t.Context(), AcquireRequest{Lock: "a", Owner: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	ref := refOf(h.ID)
	s.mu.Lock()
	live := s.table.Get(ref)
	missed := &queue.Hold{Ref: ref, Lock: "a", Owner: "worker", TTL: live.TTL, Lease: live.Lease, Rev: live.Rev - 1, Token: live.Token - 1}
	s.table.Apply([]queue.Op{{Ref: ref}})
	s.table.Apply([]queue.Op{{Put: missed}})
	s.mu.Unlock()

	if err := s.audit(t.Context()); err != nil {
		t.Fatal(err)
	}
	// What was put anew after its end must not come back; it is never told with the old token.
	gone := func() bool { return s.table.Get(ref) == nil }
	if err := s.mirrorShows(t.Context(), 10*time.Second, gone); err != nil {
		t.Fatalf("the mirror keeps the hold with its old token: %v", err)
	}
	if next, err := s.Acquire(t.Context(), AcquireRequest{Lock: "a", Owner: "worker"}); err != nil || next.Token <= h.Token {
		t.Fatalf("%+v, %v", next, err)
	}
}
