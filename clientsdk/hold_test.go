package clientsdk_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/clientsdk/internal/clock"
	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/tokens"
)

func TestHold_CarriesItsToken(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		h := b.acquire("orders/42", opts)
		defer b.release(h)
		got, ok := tokens.FromContext(h.Context(), "orders/42")
		if !ok || got != h.Token() || !got.Valid() {
			b.Errorf("token in context: %d, %t; want %d", got, ok, h.Token())
		}
		if _, ok := tokens.FromContext(h.Context(), "orders/43"); ok {
			b.Error("the context has a token for another lock")
		}
	})
}

func TestHold_OutlivesManyTTLs(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		h := b.acquire("l", opts)
		time.Sleep(time.Hour) // virtual
		if err := h.Err(); err != nil {
			b.Errorf("after an hour of renewals: %v", err)
		}
		if left := time.Until(h.Deadline()); left < ttl/2 || left > ttl {
			b.Errorf("deadline in %s, want between %s and %s", left, ttl/2, ttl)
		}
		b.release(h)
		b.free("l")
	})
}

// The hold must end by its own clock while the server still has the lease: the
// margin is what keeps the next holder from starting beside this one.
func TestHold_IsLostBeforeTheLeaseCanHaveEnded(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		h := b.acquire("l", opts)
		for range 100 {
			b.srv.On(sdktest.Renew, sdktest.Fault{DropRequest: true})
			b.srv.On(sdktest.RenewSession, sdktest.Fault{DropRequest: true})
		}
		begun := time.Now()
		<-h.Context().Done()
		if _, held := b.srv.Holder("l"); !held {
			b.Error("the lease had ended before the hold's context did")
		}
		if took := time.Since(begun); took < ttl*8/10 || took >= ttl {
			b.Errorf("lost after %s, want a little less than %s", took, ttl)
		}
		wantLost(b.T, h, clientsdk.LostExpired)
	})
}

func wantLost(t *testing.T, h *clientsdk.Hold, reason clientsdk.Reason) {
	t.Helper()
	for name, err := range map[string]error{"Err": h.Err(), "Cause": context.Cause(h.Context())} {
		var lost *clientsdk.LostError
		if !errors.Is(err, clientsdk.ErrLost) || !errors.As(err, &lost) || lost.Reason != reason || lost.Token != h.Token() {
			t.Errorf("%s = %v, want lost: %s", name, err, reason)
		}
	}
	if !errors.Is(h.Context().Err(), context.Canceled) {
		t.Errorf("context is not over: %v", h.Context().Err())
	}
	select {
	case <-h.Done():
	default:
		t.Error("Done is open")
	}
}

func TestHold_IsLostWithTheNextRenewalAfterItsEnd(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		broken, expired := b.acquire("broken", opts), b.acquire("expired", opts)
		b.srv.Break("broken", "stuck")
		b.srv.Expire("expired")
		time.Sleep(ttl/3 + time.Second) // virtual
		wantLost(b.T, broken, clientsdk.LostBroken)
		wantLost(b.T, expired, clientsdk.LostExpired)
		if err := broken.Release(context.Background()); !errors.Is(err, clientsdk.ErrLost) {
			b.Errorf("Release of a lost hold = %v, want ErrLost", err)
		}
	})
}

func TestHold_IsLostWithItsSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		one, two := b.acquire("one", nil), b.acquire("two", nil)
		b.srv.EndSessions()
		time.Sleep(ttl/3 + time.Second) // virtual
		wantLost(t, one, clientsdk.LostSession)
		wantLost(t, two, clientsdk.LostSession)
		again := b.acquire("one", nil) // in a new session
		if again.Token() <= one.Token() {
			t.Errorf("token %d after %d", again.Token(), one.Token())
		}
	})
}

// An answer that comes after the deadline revives nothing: the process may have
// acted on the loss already.
func TestHold_LateRenewalDoesNotRevive(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		h := b.acquire("l", opts)
		for range 20 {
			b.srv.On(sdktest.Renew, sdktest.Fault{DelayAnswer: ttl})
			b.srv.On(sdktest.RenewSession, sdktest.Fault{DelayAnswer: ttl})
		}
		<-h.Done()
		wantLost(b.T, h, clientsdk.LostExpired)
		time.Sleep(3 * ttl) // virtual
		wantLost(b.T, h, clientsdk.LostExpired)
	})
}

// Everything that is not an answer to this renewal is a passing failure.
func TestHold_SurvivesBadAnswers(t *testing.T) {
	for name, f := range map[string]sdktest.Fault{
		"empty 200":       {Status: http.StatusOK},
		"empty object":    {Status: http.StatusOK, Body: "{}"},
		"another hold":    {Status: http.StatusOK, Body: `{"ref":"other","lock":"l","state":"held","token":7,"ttl_ms":15000,"expires_in_ms":15000}`},
		"another session": {Status: http.StatusOK, Body: `{"ref":"other","ttl_ms":15000,"expires_in_ms":15000,"live":[]}`},
		"garbage":         {Status: http.StatusOK, Body: "<html>"},
		"204":             {Status: http.StatusNoContent},
		"bare 500":        {Status: http.StatusInternalServerError, Body: "oops"},
		"bad gateway":     {Status: http.StatusBadGateway, Body: "<html>"},
		"404 of a proxy":  {Status: http.StatusNotFound},
		"bare 410":        {Status: http.StatusGone, Body: "gone"},
		"redirect":        {Status: http.StatusFound},
		"internal":        {Code: "internal"},
		"no quorum":       {Code: "no_quorum"},
		"behind":          {Code: "behind"},
		"unauthorized":    {Code: "unauthorized"},
		"lost answer":     {DropAnswer: true},
		"lost request":    {DropRequest: true},
		"answer in 4s":    {DelayAnswer: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
				h := b.acquire("l", opts)
				for range 20 {
					b.srv.On(sdktest.Renew, f, sdktest.Fault{})
					b.srv.On(sdktest.RenewSession, f, sdktest.Fault{})
				}
				time.Sleep(4 * ttl) // virtual
				if err := h.Err(); err != nil {
					b.Errorf("lost by a passing failure: %v", err)
				}
				b.release(h)
				b.free("l")
			})
		})
	}
}

// A cache that answers every renewal with another's must not keep a hold alive that
// nobody renews.
func TestHold_IsNotKeptByForeignAnswers(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		h := b.acquire("l", opts)
		for range 100 {
			b.srv.On(sdktest.Renew, sdktest.Fault{Status: http.StatusOK, Body: fmt.Sprintf(
				`{"ref":"other","lock":"l","state":"held","token":%d,"ttl_ms":15000,"expires_in_ms":15000}`, h.Token())})
			b.srv.On(sdktest.RenewSession, sdktest.Fault{Status: http.StatusOK,
				Body: `{"ref":"other","ttl_ms":15000,"expires_in_ms":15000,"live":[],"revision":1}`})
		}
		time.Sleep(ttl) // virtual
		wantLost(b.T, h, clientsdk.LostExpired)
	})
}

func TestHold_Release(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		h := b.acquire("l", opts)
		done, cancel := context.WithCancel(context.Background())
		cancel()
		if err := h.Release(done); err != nil {
			b.Errorf("Release with a context that is done: %v", err)
		}
		b.free("l")
		if err := h.Release(done); err != nil {
			b.Errorf("second Release: %v", err)
		}
		if !errors.Is(h.Err(), clientsdk.ErrReleased) || !errors.Is(context.Cause(h.Context()), clientsdk.ErrReleased) {
			b.Errorf("after Release: Err %v, cause %v", h.Err(), context.Cause(h.Context()))
		}
		before := b.srv.Calls(sdktest.Renew)
		time.Sleep(4 * ttl) // virtual
		if after := b.srv.Calls(sdktest.Renew); after != before {
			b.Errorf("%d renewals after the release", after-before)
		}
	})
}

func TestHold_ReleaseDuringARenewal(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		h := b.acquire("l", opts)
		b.srv.On(sdktest.Renew, sdktest.Fault{Delay: time.Second, DelayAnswer: time.Second})
		b.srv.On(sdktest.RenewSession, sdktest.Fault{Delay: time.Second, DelayAnswer: time.Second})
		time.Sleep(ttl/3 + 500*time.Millisecond) // virtual; the renewal is under way
		b.release(h)
		b.free("l")
		time.Sleep(ttl) // virtual
		b.free("l")
		if !errors.Is(h.Err(), clientsdk.ErrReleased) {
			b.Errorf("Err = %v, want ErrReleased", h.Err())
		}
	})
}

// A hold that ended unseen was not held to the end of the work, and Release says so.
func TestHold_ReleaseTellsOfAnUnseenEnd(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		h := b.acquire("l", opts)
		b.srv.Break("l", "stuck")
		var lost *clientsdk.LostError
		if err := h.Release(context.Background()); !errors.As(err, &lost) || lost.Reason != clientsdk.LostBroken {
			b.Errorf("Release = %v, want lost: broken", err)
		}
	})
}

func TestHold_ReleaseGivesUp(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		h := b.acquire("l", opts)
		for range 1000 {
			b.srv.On(sdktest.Release, sdktest.Fault{Code: "no_quorum"})
		}
		begun := time.Now()
		err := h.Release(context.Background())
		if !errors.Is(err, clientsdk.ErrUnavailable) || !clientsdk.SafeToRetry(err) {
			b.Errorf("Release = %v, want ErrUnavailable", err)
		}
		if took := time.Since(begun); took > 6*time.Second {
			b.Errorf("Release took %s", took)
		}
		time.Sleep(time.Hour) // virtual: the lease, or a later renewal of the session, ends it
		b.free("l")
	})
}

func TestHold_NeverShowsItsID(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		h := b.acquire("l", opts)
		defer b.release(h)
		var log strings.Builder
		slog.New(slog.NewJSONHandler(&log, nil)).Info("held", "hold", h)
		for _, text := range []string{log.String(), fmt.Sprint(h), fmt.Sprintf("%+v %#v", h, h)} {
			if strings.Contains(text, h.ID()) || !strings.Contains(text, h.Ref()) {
				b.Errorf("%q has the secret id or lacks the ref", text)
			}
		}
	})
}

// A machine that slept has a clock that jumped while no timer ran. Whoever asks the
// hold sees the loss at once.
func TestHold_IsLostAfterASuspend(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		sleepy := &suspendable{RoundTripper: b.srv.Transport()}
		h := acquireThrough(b, sleepy, opts)
		sleepy.suspend(ttl)
		if err := h.Context().Err(); err == nil {
			b.Error("the context is alive after a suspend of one TTL")
		}
		wantLost(b.T, h, clientsdk.LostExpired)

		h = acquireThrough(b, sleepy, opts)
		sleepy.suspend(ttl)
		begun := time.Now()
		<-h.Context().Done() // asks the clock, too
		if took := time.Since(begun); took != 0 {
			b.Errorf("a waiter was told after %s", took)
		}

		h = acquireThrough(b, sleepy, opts)
		done := h.Context().Done()
		sleepy.suspend(ttl)
		begun = time.Now()
		<-done
		if took := time.Since(begun); took > 500*time.Millisecond {
			b.Errorf("who waited before the suspend was told after %s", took)
		}
	})
}

// After a suspend that leaves some time to the deadline, the renewal that came due in it is
// made at once and not when its timer would have rung.
func TestHold_OutlivesAShortSuspend(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		sleepy := &suspendable{RoundTripper: b.srv.Transport()}
		h := acquireThrough(b, sleepy, opts)
		for range 5 {
			time.Sleep(time.Second) // virtual
			sleepy.suspend(ttl * 3 / 5)
			time.Sleep(time.Second)
			if err := h.Err(); err != nil {
				b.Fatal(err)
			}
		}
		b.release(h)
	})
}

// An answer that a suspended process reads after its deadline revives nothing.
func TestHold_SuspendDuringARenewal(t *testing.T) {
	bubble(t, func(b *bundle, opts *clientsdk.AcquireOptions) {
		sleepy := &suspendable{RoundTripper: b.srv.Transport()}
		h := acquireThrough(b, sleepy, opts)
		sleepy.inRenewal.Store(true)
		time.Sleep(ttl/3 + time.Millisecond) // virtual
		wantLost(b.T, h, clientsdk.LostExpired)
	})
}

func acquireThrough(b *bundle, rt http.RoundTripper, opts *clientsdk.AcquireOptions) *clientsdk.Hold {
	b.Helper()
	cfg := b.srv.Config()
	cfg.HTTPClient = &http.Client{Transport: rt}
	client, err := clientsdk.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	h, err := client.Acquire(context.Background(), rand.Text(), opts)
	if err != nil {
		b.Fatal(err)
	}
	return h
}

// suspendable is a transport of a machine that can sleep.
type suspendable struct {
	http.RoundTripper
	slept     atomic.Int64
	inRenewal atomic.Bool // sleep for a TTL between the next renewal and its answer
}

func (s *suspendable) suspend(d time.Duration) { s.slept.Add(int64(d)) }

func (s *suspendable) LeaseClock() clock.Instant {
	return clock.Go().Add(time.Duration(s.slept.Load()))
}

func (s *suspendable) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(r)
	if strings.HasSuffix(r.URL.Path, "/renew") && s.inRenewal.CompareAndSwap(true, false) {
		s.suspend(ttl)
	}
	return resp, err
}
