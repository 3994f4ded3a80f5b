package clientsdk_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/clientsdk/sdktest"
)

func TestSession_IsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		for i := range 20 {
			b.acquire(fmt.Sprint(i), nil)
		}
		b.acquire("other ttl", &clientsdk.AcquireOptions{TTL: time.Minute})
		if n := b.srv.Calls(sdktest.OpenSession); n != 2 {
			t.Errorf("%d sessions, want one for each of two TTLs", n)
		}
		time.Sleep(ttl) // virtual
		if n := b.srv.Calls(sdktest.RenewSession); n > 4 {
			t.Errorf("%d renewals in one TTL for 21 holds", n)
		}
		if n := b.srv.Calls(sdktest.Renew); n != 0 {
			t.Errorf("%d renewals of single holds", n)
		}
	})
}

func TestSession_EndsWhenNobodyNeedsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.release(b.acquire("l", nil))
		time.Sleep(3 * ttl) // virtual
		if n := b.srv.Calls(sdktest.EndSession); n != 1 {
			t.Errorf("%d sessions ended, want 1", n)
		}
		before := b.srv.Calls(sdktest.RenewSession)
		time.Sleep(time.Hour) // virtual
		if n := b.srv.Calls(sdktest.RenewSession); n != before {
			t.Errorf("%d renewals of an idle session", n-before)
		}
		b.release(b.acquire("l", nil))
		if n := b.srv.Calls(sdktest.OpenSession); n != 2 {
			t.Errorf("%d sessions opened, want 2", n)
		}
	})
}

func TestSession_FillsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		for i := range 1001 {
			b.acquire(fmt.Sprint(i), nil)
		}
		if n := b.srv.Calls(sdktest.OpenSession); n != 2 {
			t.Errorf("%d sessions for 1,001 holds, want 2", n)
		}
		// The server's word counts as well: it may know of holds that we do not.
		b.srv.On(sdktest.Acquire, sdktest.Fault{Code: "session_full"})
		b.acquire("one more", nil)
		if n := b.srv.Calls(sdktest.OpenSession); n != 3 {
			t.Errorf("%d sessions, want a third", n)
		}
	})
}

// A list that stands for a revision before the hold's own says nothing about it.
func TestSession_OldListLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		sessions := func() clientsdk.SessionInfo {
			list, err := b.client.Sessions(context.Background())
			if err != nil || len(list) != 1 {
				t.Fatalf("sessions: %v, %v", list, err)
			}
			return list[0]
		}
		h := b.acquire("l", nil)
		old := fmt.Sprintf(`{"ref":%q,"owner":"o","ttl_ms":15000,"expires_in_ms":15000,"live":[],"revision":1}`, sessions().Ref)
		b.srv.On(sdktest.RenewSession, sdktest.Fault{Status: 200, Body: old}, sdktest.Fault{Status: 200, Body: old})
		time.Sleep(ttl - 2*time.Second) // virtual
		if err := h.Err(); err != nil {
			t.Errorf("lost by an old list: %v", err)
		}
		now := fmt.Sprintf(`{"ref":%q,"owner":"o","ttl_ms":15000,"expires_in_ms":15000,"live":[],"revision":1000}`, sessions().Ref)
		b.srv.On(sdktest.RenewSession, sdktest.Fault{Status: 200, Body: now})
		time.Sleep(ttl) // virtual
		if err := h.Err(); !errors.Is(err, clientsdk.ErrLost) {
			t.Errorf("a list that lacks the hold was not believed: %v", err)
		}
	})
}

// The session would keep alive what could not be released, so it is tried again.
func TestSession_ReleasesStrays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.acquire("keeps the session", nil)
		h := b.acquire("l", nil)
		for range 15 { // more than one Release tries, fewer than two
			b.srv.On(sdktest.Release, sdktest.Fault{DropRequest: true})
		}
		if err := h.Release(context.Background()); !errors.Is(err, clientsdk.ErrUnavailable) {
			t.Errorf("Release = %v, want ErrUnavailable", err)
		}
		if n := b.srv.Live("l"); n != 1 {
			t.Fatalf("%d holds, want the stray", n)
		}
		time.Sleep(2 * ttl) // virtual
		b.free("l")
	})
}

// A loss that the server has told of is told on, also where nobody answers why: with a
// long TTL a try of a renewal lasts minutes.
func TestSession_TellsALossWithoutItsReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		h := b.acquire("l", &clientsdk.AcquireOptions{TTL: time.Hour})
		b.srv.Break("l", "stuck")
		b.srv.On(sdktest.Await, sdktest.Fault{Delay: time.Hour})
		time.Sleep(20*time.Minute + 2*time.Second) // virtual: the renewal has told of the break
		wantLost(t, h, clientsdk.LostUnknown)
	})
}

// foreign is a context of somebody else's making: whoever descends from it without end
// keeps a goroutine.
type foreign struct {
	context.Context
	done chan struct{}
}

func (f foreign) Done() <-chan struct{} { return f.done }

// A grant that comes when its session is over leaves nothing at the caller's context.
func TestSession_LateGrantLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.acquire("keeps the session", nil)
		b.srv.On(sdktest.Acquire, sdktest.Fault{DelayAnswer: ttl - 500*time.Millisecond}) // past the deadline
		for range 100 {
			b.srv.On(sdktest.RenewSession, sdktest.Fault{DropRequest: true})
		}
		ctx := foreign{context.Background(), make(chan struct{})}
		if err := b.client.Do(ctx, "l", func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}
