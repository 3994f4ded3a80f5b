package contract

import (
	"net/http"
	"time"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/tokens"
)

func acquireAnswers(b *bundle) {
	a := b.acquire("", nil).is(http.StatusCreated)
	h := a.hold()
	if h.Hold == "" || len(h.Ref) != 26 || h.Lock != b.lock || h.State != wire.StateHeld || !h.Token.Valid() {
		b.Errorf("hold %+v", h)
	}
	if h.TTLMS != 30_000 || h.ExpiresInMS == nil || *h.ExpiresInMS < 20_000 || *h.ExpiresInMS > 30_000 {
		b.Errorf("ttl %d, expires in %v; want at least two thirds of 30 s", h.TTLMS, h.ExpiresInMS)
	}
	if t, err := tokens.FromHeader(a.header); err != nil || t != h.Token {
		b.Errorf("header token %d, %v; want %d", t, err, h.Token)
	}
	if loc := a.header.Get("Location"); loc != "/v1/holds/"+h.Hold {
		b.Errorf("location %q", loc)
	}
	if h.Revision <= 0 {
		b.Errorf("revision %d", h.Revision)
	}
}

func repeatFindsOneHold(b *bundle) {
	key := newKey()
	first := b.acquire(key, nil).is(http.StatusCreated).hold()
	again := b.acquire(key, nil).is(http.StatusCreated)
	if h := again.hold(); h.Hold != first.Hold || h.Token != first.Token {
		b.Errorf("repeat gives hold %s with token %d, not %s with %d", h.Ref, h.Token, first.Ref, first.Token)
	}
	if again.header.Get(wire.IdempotentReplay) != "true" {
		b.Error("a repeat does not say so")
	}
	waiter := newKey()
	q := b.acquire(waiter, queue).is(http.StatusAccepted).hold()
	if again := b.acquire(waiter, queue).is(http.StatusAccepted).hold(); again.Hold != q.Hold || again.Position != 1 {
		b.Errorf("repeat of a queued hold gives %+v", again)
	}
}

func repeatAfterTheEnd(b *bundle) {
	key := newKey()
	h := b.acquire(key, nil).is(http.StatusCreated).hold()
	b.release(h).is(http.StatusNoContent)
	if p := b.acquire(key, nil).refuses(apierr.HoldGone); p.Ended != "released" {
		b.Errorf("ended %q, want released", p.Ended)
	}
}

func keyWithAnotherBody(b *bundle) {
	key := newKey()
	b.acquire(key, nil).is(http.StatusCreated)
	b.acquire(key, func(r *wire.AcquireRequest) { r.Owner = "another" }).refuses(apierr.IdempotencyKeyReused)
	b.acquire("not-a-key", nil).refuses(apierr.BadIdempotencyKey)
}

// The wait is no part of what the key stands for: the last try of an attempt, and
// its recall, ask with another.
func lastTryGivesUp(b *bundle) {
	holder := b.acquire("", nil).is(http.StatusCreated).hold()
	key := newKey()
	q := b.acquire(key, queue).is(http.StatusAccepted).hold()
	p := b.acquire(key, nil).refuses(apierr.LockHeld)
	if p.Holder == nil || p.Holder.Token != holder.Token {
		b.Errorf("holder %+v, want token %d", p.Holder, holder.Token)
	}
	b.do(http.MethodGet, "/v1/holds/"+q.Hold, "", nil).refuses(apierr.HoldGone)
}

func tryLeavesNothing(b *bundle) {
	b.acquire("", nil).is(http.StatusCreated)
	b.acquire("", nil).refuses(apierr.LockHeld)
	b.acquire(newKey(), nil).refuses(apierr.LockHeld)
	b.acquire(newKey(), queue).is(http.StatusAccepted)
	for _, key := range []string{"", newKey()} {
		if p := b.acquire(key, nil).refuses(apierr.LockHeld); p.Waiters != 1 || p.WaitedMS == nil {
			b.Errorf("a try behind one waiter is told of %d, waited %v", p.Waiters, p.WaitedMS)
		}
	}
	if info := b.info(); info.Waiters != 1 {
		b.Errorf("%d waiters after four tries behind one", info.Waiters)
	}
}

func (b *bundle) info() wire.Lock {
	b.Helper()
	info, err := b.client.Lock(b.Context(), b.lock)
	if err != nil {
		b.Fatal(err)
	}
	return *info
}

func placesInOrder(b *bundle) {
	first := b.acquire("", nil).is(http.StatusCreated).hold()
	var places []wire.Hold
	for i := range 3 {
		h := b.acquire(newKey(), queue).is(http.StatusAccepted).hold()
		if h.Position != i+1 || h.State != wire.StateQueued || h.Token != 0 {
			b.Errorf("place %d: %+v", i+1, h)
		}
		places = append(places, h)
	}
	last := first
	for _, place := range places {
		b.release(last).is(http.StatusNoContent)
		h := b.do(http.MethodGet, "/v1/holds/"+place.Hold+"?wait=10s", "", nil).is(http.StatusOK).hold()
		if h.State != wire.StateHeld || h.Token <= last.Token {
			b.Fatalf("%s with token %d after %d", h.State, h.Token, last.Token)
		}
		if h.Previous == nil || h.Previous.Token != last.Token || h.Previous.Ended != "released" {
			b.Errorf("previous %+v, want token %d released", h.Previous, last.Token)
		}
		h.Hold = place.Hold
		last = h
	}
}

func waitedGrant(b *bundle) {
	first := b.acquire("", nil).is(http.StatusCreated).hold()
	place := b.acquire(newKey(), func(r *wire.AcquireRequest) { queue(r); r.TTL = ttl.String() }).is(http.StatusAccepted).hold()
	granted := make(chan answer)
	go func() {
		granted <- b.do(http.MethodGet, "/v1/holds/"+place.Hold+"?wait=30s", "", nil)
	}()
	time.Sleep(2 * ttl) // the wait must be longer than the TTL
	b.release(first).is(http.StatusNoContent)
	h := (<-granted).is(http.StatusOK).hold()
	if h.State != wire.StateHeld || h.ExpiresInMS == nil || *h.ExpiresInMS < ttl.Milliseconds()*2/3 {
		b.Errorf("granted as %s with %v ms left of %s", h.State, h.ExpiresInMS, ttl)
	}
}

func expires(b *bundle) {
	h := b.acquire("", func(r *wire.AcquireRequest) { r.TTL = ttl.String() }).is(http.StatusCreated).hold()
	begun := time.Now()
	next := b.acquire(newKey(), func(r *wire.AcquireRequest) { r.Wait = "20s" }).is(http.StatusCreated).hold()
	if took := time.Since(begun); took < ttl/2 || took > ttl+2*time.Second {
		b.Errorf("the next was granted after %s, want about %s", took, ttl)
	}
	if next.Token <= h.Token || next.Previous == nil || next.Previous.Ended != "expired" {
		b.Errorf("token %d after %d, previous %+v", next.Token, h.Token, next.Previous)
	}
	path := "/v1/holds/" + h.Hold
	for _, a := range []answer{
		b.do(http.MethodPost, path+"/renew", "", nil),
		b.do(http.MethodGet, path, "", nil),
		b.do(http.MethodDelete, path, "", nil),
	} {
		if p := a.refuses(apierr.HoldGone); p.Ended != "expired" {
			b.Errorf("ended %q, want expired", p.Ended)
		}
	}
}

func releaseTwice(b *bundle) {
	h := b.acquire("", nil).is(http.StatusCreated).hold()
	b.release(h).is(http.StatusNoContent)
	b.release(h).is(http.StatusNoContent)
	b.do(http.MethodPost, "/v1/holds/"+h.Hold+"/renew", "", nil).refuses(apierr.HoldGone)
}

func renewQueued(b *bundle) {
	held := b.acquire("", nil).is(http.StatusCreated).hold()
	q := b.acquire(newKey(), queue).is(http.StatusAccepted).hold()
	b.do(http.MethodPost, "/v1/holds/"+q.Hold+"/renew", "", nil).refuses(apierr.NotHeld)
	h := b.do(http.MethodPost, "/v1/holds/"+held.Hold+"/renew", "", nil).is(http.StatusOK).hold()
	if h.Ref != held.Ref || h.State != wire.StateHeld || h.Token != held.Token || h.ExpiresInMS == nil || *h.ExpiresInMS <= 0 {
		b.Errorf("renewal answers %+v", h)
	}
}
