package lockserver

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/apierr"
)

// attempt registers a hold of a session whose put is on its way.
func attempt(t *testing.T, s *Server) *local {
	t.Helper()
	session, err := s.CreateSession(t.Context(), "worker", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	req := AcquireRequest{Lock: "a", Owner: "worker", Session: session.ID, IdempotencyKey: strings.Repeat("4a", 16)}
	if err := req.normalize(MaxTTL); err != nil {
		t.Fatal(err)
	}
	_, ref := req.identity()
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := s.newLocalLocked(ref, &req)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestR8_AnAttemptOfUnknownOutcomeIsForgotten: it counts against its session and lies in
// memory, but only for as long as its put may still show.
func TestR8_AnAttemptOfUnknownOutcomeIsForgotten(t *testing.T) {
	t.Parallel()
	s := internalServer(t)
	l := attempt(t, s)
	s.mu.Lock()
	l.lease.TTL = -writeTimeout // what a put may take and its lease may live is over
	s.mu.Unlock()
	s.putFailed([]put{{local: l}}, rpctypes.ErrTimeout)
	s.close(l)
	late := time.After(10 * time.Second)
	for known := true; known; {
		s.mu.Lock()
		known = s.locals[l.hold.Ref] != nil || len(l.session.coming) > 0
		s.mu.Unlock()
		select {
		case <-late:
			t.Fatal("the attempt is never forgotten")
		case <-time.After(time.Millisecond): // the timer tells nobody
		}
	}
}

// TestServer_ARefusedPutIsNoEndOfItsSession: a store that has too much to do refuses a
// put, and the session lives.
func TestServer_ARefusedPutIsNoEndOfItsSession(t *testing.T) {
	t.Parallel()
	for refusal, code := range map[error]apierr.Code{
		rpctypes.ErrTooManyRequests:  apierr.NoQuorum,
		rpctypes.ErrPermissionDenied: apierr.NoQuorum,
		rpctypes.ErrLeaseNotFound:    apierr.SessionGone,
	} {
		s := internalServer(t)
		l := attempt(t, s)
		s.putFailed([]put{{local: l}}, refusal)
		_, _, err := s.look(l)
		if apierr.CodeOf(err) != code {
			t.Errorf("%v: %v, want %s", refusal, err, code)
		}
		if code == apierr.NoQuorum && !errors.Is(err, refusal) {
			t.Errorf("%v is not told: %v", refusal, err)
		}
		s.close(l)
	}
}

// TestServer_AWatchOfASessionThatHasEnded begins in the moment in which it ends: nothing
// would ever wake it.
func TestServer_AWatchOfASessionThatHasEnded(t *testing.T) {
	t.Parallel()
	s := internalServer(t)
	session, err := s.CreateSession(t.Context(), "worker", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.findSession(t.Context(), session.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.EndSession(t.Context(), session.ID); err != nil {
		t.Fatal(err)
	}
	_, err = s.watchSession(o)
	if apierr.CodeOf(err) != apierr.SessionGone {
		t.Fatalf("got %v", err)
	}
}

// TestServer_ARepeatThatComesToAHoldOfASessionIsOne has the put of an earlier try show while
// the repeat is about to send its own: its lease, the session's, is the same.
func TestServer_ARepeatThatComesToAHoldOfASessionIsOne(t *testing.T) {
	t.Parallel()
	s := internalServer(t)
	l := attempt(t, s)
	h := l.hold
	put := clientv3.OpPut(s.keys.hold(h.Ref), string(encodeHold(h)), clientv3.WithLease(l.lease.ID))
	if _, err := s.store.client.Do(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	if err := s.landed(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	s.send(t.Context(), l, h)
	if !s.existed(l) {
		t.Error("the hold of an earlier try passes for this one's")
	}
	s.close(l)
}
