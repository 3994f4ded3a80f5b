package lockserver_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
)

// TestServer_EndSessionWaitsForAllItsHolds ends a session of more holds than one
// transaction takes, of which the first has no answer: what became of them is not known.
func TestServer_EndSessionWaitsForAllItsHolds(t *testing.T) {
	t.Parallel()
	s, faults := faultyServer(t)
	session, err := s.CreateSession(t.Context(), "worker", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 150 {
		req := try(fmt.Sprint("lock", i))
		req.Session = session.ID
		mustAcquire(t, s, req)
	}
	faults.onSend(func(ops int) error {
		if ops > 100 { // a full batch and its reasons; the session is in the one behind it
			return errLost
		}
		return nil
	})
	wantCode(t, s.EndSession(t.Context(), session.ID), apierr.OutcomeUnknown)
	faults.onSend(nil)
	waitEmpty(t, s)
}

// TestServer_NothingIsHeldAfterTheEndOfItsSession has the put of a hold arrive after its
// session has ended, on a lease that lives on for a while.
func TestServer_NothingIsHeldAfterTheEndOfItsSession(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", strings.Repeat("5e", 16)} {
		node := etcdtest.Node(t)
		faults := spoil(node.Client())
		s, _ := etcdtest.Run(t, lockserver.Config{Client: node.Client(), Alone: true})
		session, err := s.CreateSession(t.Context(), "worker", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		sent, goOn := make(chan struct{}), make(chan struct{})
		faults.onSend(func(int) error {
			sent <- struct{}{}
			<-goOn
			return nil
		})
		req := try("a")
		req.Session, req.IdempotencyKey = session.ID, key
		refused := make(chan error, 1)
		go func() { _, err := s.Acquire(t.Context(), req); refused <- err }()
		<-sent
		faults.onSend(nil)
		if err := s.EndSession(t.Context(), session.ID); err != nil {
			t.Fatal(err)
		}
		close(goOn)
		wantCode(t, <-refused, apierr.HoldGone)
		waitEmpty(t, s)
	}
}

// TestServer_AHoldOfAnEndingSessionIsNotGranted has the turn of a hold come while its
// session's delete has no answer yet.
func TestServer_AHoldOfAnEndingSessionIsNotGranted(t *testing.T) {
	t.Parallel()
	s, faults := faultyServer(t)
	holder := mustAcquire(t, s, try("a"))
	session, err := s.CreateSession(t.Context(), "worker", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	req := queueFor("a", lockserver.MaxWait)
	req.Session = session.ID
	refused := make(chan error, 1)
	go func() { _, err := s.Acquire(t.Context(), req); refused <- err }()
	waitQueue(t, s, "a", 1)
	sent, held := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(held) })
	defer goOn()
	faults.onSend(func(ops int) error {
		if ops == 3 { // the hold, its session and the reasons
			close(sent)
			<-held
		}
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- s.EndSession(context.WithoutCancel(t.Context()), session.ID) }()
	<-sent
	mustRelease(t, s, holder) // now it is the turn of the session's hold
	wantCode(t, <-refused, apierr.HoldGone)
	goOn()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
