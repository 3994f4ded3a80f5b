package lockserver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
)

// slack is what a promised bound may be late in a test.
const slack = time.Second

// feed hands out the events of a subscription one by one.
type feed struct {
	sub     *lockserver.Subscription
	pending []lockserver.Event
}

func subscribe(t testing.TB, s *lockserver.Server) *feed {
	t.Helper()
	sub, err := s.Subscribe(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return &feed{sub: sub}
}

// nextEvent waits for the next event of the given kind and returns it.
func nextEvent(t testing.TB, f *feed, kind lockserver.EventKind) lockserver.Event {
	t.Helper()
	for {
		for len(f.pending) > 0 {
			e := f.pending[0]
			f.pending = f.pending[1:]
			if e.Kind == kind {
				return e
			}
		}
		events, err := f.sub.Next(t.Context())
		if err != nil {
			t.Fatalf("wait for %v: %v", kind, err)
		}
		f.pending = events
	}
}

func TestServer_HoldsExpireAtTheirTTL(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	sub := subscribe(t, s)
	req := try("a")
	req.TTL = time.Second
	start := time.Now()
	h := mustAcquire(t, s, req)
	e := nextEvent(t, sub, lockserver.EventExpired)
	if took := time.Since(start); took < req.TTL || took > req.TTL+500*time.Millisecond+slack {
		t.Errorf("expired after %v, want %v", took, req.TTL)
	}
	if e.Token != h.Token || e.Ref != h.Ref {
		t.Errorf("event %+v of hold %+v", e, h)
	}
	_, err := s.Renew(t.Context(), h.ID)
	wantGone(t, err, lockserver.Expired)
	wantGone(t, s.Release(t.Context(), h.ID), lockserver.Expired)
	next := mustAcquire(t, s, req)
	if next.Previous == nil || next.Previous.End != lockserver.Expired {
		t.Errorf("previous: %+v", next.Previous)
	}
}

func TestServer_RenewKeepsTheHold(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	sub := subscribe(t, s)
	req := try("a")
	req.TTL = time.Second
	h := mustAcquire(t, s, req)
	deadline := time.Now().Add(h.ExpiresIn)
	renew := time.NewTicker(200 * time.Millisecond)
	defer renew.Stop()
	for time.Now().Before(deadline.Add(req.TTL)) {
		<-renew.C
		r, err := s.Renew(t.Context(), h.ID)
		if err != nil || r.Token != h.Token || r.ExpiresIn <= req.TTL/2 {
			t.Fatalf("renew: %+v, %v", r, err)
		}
	}
	last := time.Now()
	nextEvent(t, sub, lockserver.EventExpired)
	if took := time.Since(last); took > req.TTL+500*time.Millisecond+slack {
		t.Errorf("expired %v after the last renewal", took)
	}
}

func TestServer_UnknownHold(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	const never = "aaaaaaaaaaaaaaaaaaaaaaaaaa"
	_, err := s.Hold(t.Context(), never)
	wantGone(t, err, lockserver.EndUnknown)
	wantGone(t, s.Release(t.Context(), never), lockserver.EndUnknown)
	for _, bad := range []string{"", "x", "AAAAAAAAAAAAAAAAAAAAAAAAAA", "aaaaaaaaaaaaaaaaaaaaaaaaab"} {
		_, err := s.Renew(t.Context(), bad)
		wantCode(t, err, apierr.Malformed)
	}
	h := mustAcquire(t, s, try("a"))
	// The public ref is not the capability.
	wantGone(t, s.Release(t.Context(), h.Ref), lockserver.EndUnknown)
}

func TestServer_HoldChangesNothing(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	sub := subscribe(t, s)
	req := try("a")
	req.TTL = time.Second
	h := mustAcquire(t, s, req)
	done := make(chan struct{})
	go func() {
		defer close(done)
		nextEvent(t, sub, lockserver.EventExpired)
	}()
	looked := time.NewTicker(50 * time.Millisecond)
	defer looked.Stop()
	for {
		select {
		case <-done:
			return
		case <-looked.C:
			if _, err := s.Hold(t.Context(), h.ID); err != nil {
				wantGone(t, err, lockserver.Expired)
			}
		}
	}
}

func TestServer_Break(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	h := mustAcquire(t, s, try("a"))
	req := lockserver.BreakRequest{Lock: "a", Token: h.Token + 1, Reason: "stuck", By: "ops"}
	_, err := s.Break(t.Context(), req)
	wantCode(t, err, apierr.HolderChanged)
	req.Token = h.Token
	ended, err := s.Break(t.Context(), req)
	if err != nil || ended.End != lockserver.Broken || ended.Reason != "stuck" || ended.By != "ops" {
		t.Fatalf("break: %+v, %v", ended, err)
	}
	_, err = s.Renew(t.Context(), h.ID)
	wantGone(t, err, lockserver.Broken)
	_, err = s.Break(t.Context(), req)
	wantCode(t, err, apierr.HolderChanged)
}

func TestServer_Check(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	old := mustAcquire(t, s, try("a"))
	mustRelease(t, s, old)
	h := mustAcquire(t, s, try("a"))
	gone := mustAcquire(t, s, try("b"))
	mustRelease(t, s, gone)
	pairs := []lockserver.Pair{{"a", h.Token}, {"a", old.Token}, {"b", gone.Token}, {"c", 7}, {"a", h.Token + 100}}
	want := []lockserver.Verdict{lockserver.Valid, lockserver.Stale, lockserver.EndedVerdict, lockserver.UnknownVerdict, lockserver.UnknownVerdict}
	got, err := s.Check(t.Context(), pairs)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if got[i].Verdict != want[i] {
			t.Errorf("%v: got %v, want %v", pairs[i], got[i].Verdict, want[i])
		}
	}
	if got[1].Current != h.Token {
		t.Errorf("current %d, want %d", got[1].Current, h.Token)
	}
	_, err = s.Check(t.Context(), []lockserver.Pair{{"a", 0}})
	wantCode(t, err, apierr.OutOfBounds)
}

func TestServer_LocksPage(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	names := []string{"a", "b/1", "b/2", "b/3", "c"}
	for _, name := range names {
		mustAcquire(t, s, try(name))
	}
	var got []string
	q := lockserver.LocksQuery{Prefix: "b/", Limit: 2}
	for {
		page, err := s.Locks(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range page.Locks {
			got = append(got, l.Name)
		}
		if !page.More {
			break
		}
		q.After = page.Locks[len(page.Locks)-1].Name
	}
	if len(got) != 3 || got[0] != "b/1" || got[2] != "b/3" {
		t.Fatalf("got %q", got)
	}
	_, err := s.Locks(t.Context(), lockserver.LocksQuery{Limit: 1001})
	wantCode(t, err, apierr.OutOfBounds)
}

// TestServer_RestartKeepsHoldsAndPlaces stops a server under a holder and a waiter
// with an idempotency key, and starts another on the same store.
func TestServer_RestartKeepsHoldsAndPlaces(t *testing.T) {
	t.Parallel()
	node := etcdtest.Node(t)
	first, stop := etcdtest.Run(t, lockserver.Config{Client: node.Client(), Alone: true})
	h := mustAcquire(t, first, try("a"))
	req := queueFor("a", 20*time.Second)
	req.IdempotencyKey = "0190b2a3111172228333444455556666"
	waiting := make(chan error, 1)
	go func() {
		_, err := first.Acquire(t.Context(), req)
		waiting <- err
	}()
	waitQueue(t, first, "a", 1)
	stop()
	wantCode(t, <-waiting, apierr.ShuttingDown)

	second, _ := etcdtest.Run(t, lockserver.Config{Client: node.Client(), Alone: true})
	renewed, err := second.Renew(t.Context(), h.ID)
	if err != nil || renewed.Token != h.Token {
		t.Fatalf("renew after restart: %+v, %v", renewed, err)
	}
	waitQueue(t, second, "a", 1)
	granted := make(chan *lockserver.Hold, 1)
	go func() {
		w, err := second.Acquire(t.Context(), req)
		if err != nil {
			t.Error(err)
		}
		granted <- w
	}()
	mustRelease(t, second, h)
	w := <-granted
	if w == nil || w.Token <= h.Token || !w.Replayed {
		t.Fatalf("the place was lost: %+v", w)
	}
}

func TestServer_Sessions(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	o, err := s.CreateSession(t.Context(), "worker", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	req := try("a")
	req.Session = o.ID
	h := mustAcquire(t, s, req)
	if h.TTL != 5*time.Second || h.Session != o.Ref {
		t.Fatalf("hold of a session: %+v", h)
	}
	renewed, err := s.RenewSession(t.Context(), o.ID)
	if err != nil || len(renewed.Live) != 1 || renewed.Live[0] != h.Ref || renewed.Revision < h.Revision {
		t.Fatalf("renew: %+v, %v", renewed, err)
	}
	bad := try("b")
	bad.Session, bad.TTL = o.ID, 6*time.Second
	_, err = s.Acquire(t.Context(), bad)
	wantCode(t, err, apierr.OutOfBounds)

	if err := s.EndSession(t.Context(), o.ID); err != nil {
		t.Fatal(err)
	}
	_, err = s.Renew(t.Context(), h.ID)
	wantGone(t, err, lockserver.Released)
	_, err = s.RenewSession(t.Context(), o.ID)
	wantCode(t, err, apierr.SessionGone)
	wantEmpty(t, s)
}

func TestServer_SessionExpiryEndsItsHolds(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	sub := subscribe(t, s)
	o, err := s.CreateSession(t.Context(), "worker", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, lock := range []string{"a", "b"} {
		req := try(lock)
		req.Session = o.ID
		mustAcquire(t, s, req)
	}
	changed := make(chan error, 1)
	go func() {
		_, err := s.AwaitSession(t.Context(), o.ID, 20*time.Second)
		changed <- err
	}()
	nextEvent(t, sub, lockserver.EventExpired)
	<-changed
	_, err = s.RenewSession(t.Context(), o.ID)
	wantCode(t, err, apierr.SessionGone)
	req := try("c")
	req.Session = o.ID
	_, err = s.Acquire(t.Context(), req)
	wantCode(t, err, apierr.SessionGone)
}

func TestServer_SessionFull(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	o, err := s.CreateSession(t.Context(), "worker", 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, lockserver.MaxHoldsPerSession)
	for i := range lockserver.MaxHoldsPerSession {
		go func() {
			req := try("lock/" + time.Duration(i).String())
			req.Session = o.ID
			_, err := s.Acquire(t.Context(), req)
			errs <- err
		}()
	}
	for range lockserver.MaxHoldsPerSession {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	req := try("one more")
	req.Session = o.ID
	_, err = s.Acquire(t.Context(), req)
	wantCode(t, err, apierr.SessionFull)
}

func TestServer_EventsResume(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	sub := subscribe(t, s)
	h := mustAcquire(t, s, try("a"))
	granted := nextEvent(t, sub, lockserver.EventGranted)
	mustRelease(t, s, h)
	mustAcquire(t, s, try("b"))

	again, err := s.Subscribe(t.Context(), "", &granted.ID)
	if err != nil {
		t.Fatal(err)
	}
	events, err := again.Next(t.Context())
	if err != nil || len(events) == 0 || events[0].Kind != lockserver.EventReleased {
		t.Fatalf("resumed: %+v, %v", events, err)
	}
	_, err = s.Subscribe(t.Context(), "", &lockserver.EventID{Revision: 1})
	if !errors.Is(err, lockserver.ErrResync) {
		t.Fatalf("got %v, want ErrResync", err)
	}
}

// An id that another server told a moment ago is no lost one; one that nobody told is.
func TestServer_EventsResumeWhereTheMirrorIsBehind(t *testing.T) {
	t.Parallel()
	s := etcdtest.Server(t)
	h := mustAcquire(t, s, try("a"))
	told := lockserver.EventID{Revision: h.Revision + 1}
	resumed := make(chan *lockserver.Subscription)
	go func() {
		sub, err := s.Subscribe(t.Context(), "", &told)
		if err != nil {
			t.Error(err)
		}
		resumed <- sub
	}()
	select {
	case <-resumed:
		t.Fatal("subscribed behind an event that has not come")
	case <-time.After(100 * time.Millisecond):
	}
	mustRelease(t, s, h) // revision told
	next := mustAcquire(t, s, try("a"))
	if sub := <-resumed; sub != nil {
		if e := nextEvent(t, &feed{sub: sub}, lockserver.EventGranted); e.Token != next.Token {
			t.Errorf("behind the release comes %+v, want the grant of token %d", e, next.Token)
		}
	}
	if _, err := s.Subscribe(t.Context(), "", &lockserver.EventID{Revision: next.Revision + 1000}); !errors.Is(err, lockserver.ErrResync) {
		t.Errorf("got %v, want ErrResync", err)
	}
}

// TestServer_RestartEndsWhatNobodyAsksFor is the fault of places that outlive a
// server that was killed: their owners are gone, and they would be granted in turn
// and block the lock for their whole TTL.
func TestServer_RestartEndsWhatNobodyAsksFor(t *testing.T) {
	t.Parallel()
	node := etcdtest.Node(t)
	first, stop := etcdtest.Run(t, lockserver.Config{Client: node.Client(), Alone: true})
	short := try("a")
	short.TTL = 2 * time.Second
	holder := mustAcquire(t, first, short)
	dead := queueFor("a", 20*time.Second)
	dead.TTL, dead.IdempotencyKey = time.Hour, "0190b2a3111172228333444455556666"
	gone := make(chan error, 1)
	go func() {
		_, err := first.Acquire(t.Context(), dead)
		gone <- err
	}()
	waitQueue(t, first, "a", 1)
	stop()
	<-gone

	start := time.Now()
	second, _ := etcdtest.Run(t, lockserver.Config{Client: node.Client(), Alone: true})
	f := subscribe(t, second)
	if e := nextEvent(t, f, lockserver.EventExpired); e.Ref != holder.Ref {
		t.Fatalf("expired %+v, want %s", e, holder.Ref)
	}
	if took := time.Since(start); took > short.TTL+500*time.Millisecond+slack {
		t.Errorf("the holder expired %v after the restart, its TTL is %v", took, short.TTL)
	}
	nextEvent(t, f, lockserver.EventCancelled)
	if took := time.Since(start); took > lockserver.PlaceTimeout+slack {
		t.Errorf("the dead waiter's place lapsed after %v", took)
	}
	mustAcquire(t, second, try("a"))
}
