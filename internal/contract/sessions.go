package contract

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
)

func (b *bundle) openSession() wire.Session {
	b.Helper()
	s := b.do(http.MethodPost, "/v1/sessions", "", wire.SessionRequest{Owner: "contract", TTL: "30s"}).
		is(http.StatusCreated).session()
	if s.Session == "" || len(s.Ref) != 26 || s.TTLMS != 30_000 || s.ExpiresInMS == nil {
		b.Fatalf("session %+v", s)
	}
	return s
}

func (b *bundle) renewSession(s wire.Session) answer {
	b.Helper()
	return b.do(http.MethodPost, "/v1/sessions/"+s.Session+"/renew", "", nil)
}

func under(s wire.Session) func(*wire.AcquireRequest) {
	return func(r *wire.AcquireRequest) { r.TTL, r.Session = "", s.Session }
}

func sessionLists(b *bundle) {
	s := b.openSession()
	h := b.acquire(newKey(), under(s)).is(http.StatusCreated).hold()
	if h.Session != s.Ref || h.TTLMS != s.TTLMS {
		b.Errorf("hold %+v, want session %s", h, s.Ref)
	}
	got := b.renewSession(s).is(http.StatusOK).session()
	if !slices.Equal(got.Live, []string{h.Ref}) || got.Revision < h.Revision || got.Ref != s.Ref ||
		got.ExpiresInMS == nil || *got.ExpiresInMS < 20_000 {
		b.Errorf("renewal answers %+v, want %s live at %d or later", got, h.Ref, h.Revision)
	}
	var lock wire.Lock
	b.do(http.MethodGet, "/v1/lock?name="+url.QueryEscape(b.lock), "", nil).is(http.StatusOK).into(&lock)
	if lock.Holder == nil || lock.Holder.Session != s.Ref || lock.Holder.ExpiresInMS == nil || *lock.Holder.ExpiresInMS < 20_000 {
		b.Errorf("the lock shows holder %+v, want one of session %s", lock.Holder, s.Ref)
	}
	b.release(h).is(http.StatusNoContent)
	if got := b.renewSession(s).is(http.StatusOK).session(); len(got.Live) != 0 {
		b.Errorf("live %v after the release", got.Live)
	}
}

func sessionEnds(b *bundle) {
	s := b.openSession()
	h := b.acquire(newKey(), under(s)).is(http.StatusCreated).hold()
	b.do(http.MethodDelete, "/v1/sessions/"+s.Session, "", nil).is(http.StatusNoContent)
	b.do(http.MethodDelete, "/v1/sessions/"+s.Session, "", nil).is(http.StatusNoContent) // the first answer may be lost
	b.do(http.MethodGet, "/v1/holds/"+h.Hold, "", nil).refuses(apierr.HoldGone)
	b.renewSession(s).refuses(apierr.SessionGone)
	b.acquire(newKey(), under(s)).refuses(apierr.SessionGone)
	b.acquire("", nil).is(http.StatusCreated)
}

// sessionWait: a waiter hears of each change of the session's holds, and of its end.
func sessionWait(b *bundle) {
	s := b.openSession()
	path := "/v1/sessions/" + s.Session
	if got := b.do(http.MethodGet, path, "", nil).is(http.StatusOK).session(); got.Ref != s.Ref || len(got.Live) != 0 {
		b.Errorf("session %+v", got)
	}
	if got := b.do(http.MethodGet, path+"?wait=1ms", "", nil).is(http.StatusOK).session(); len(got.Live) != 0 {
		b.Errorf("without a change: %+v", got)
	}
	told := make(chan answer, 1)
	go func() { told <- b.do(http.MethodGet, path+"?wait=30s", "", nil) }()
	h, begun := wire.Hold{}, time.Now()
	for heard := false; !heard; { // a change before the question is there is not told
		h = b.acquire(newKey(), under(s)).is(http.StatusCreated).hold()
		select {
		case a := <-told:
			a.is(http.StatusOK)
			heard = true
		case <-time.After(100 * time.Millisecond): // for the question to come
			b.release(h).is(http.StatusNoContent)
		}
	}
	if took := time.Since(begun); took > 20*time.Second {
		b.Errorf("the first change was told after %s", took)
	}
	if got := b.do(http.MethodGet, path, "", nil).is(http.StatusOK).session(); !slices.Equal(got.Live, []string{h.Ref}) {
		b.Errorf("live %v, want %s", got.Live, h.Ref)
	}
	b.do(http.MethodDelete, path, "", nil).is(http.StatusNoContent)
	b.do(http.MethodGet, path+"?wait=30s", "", nil).refuses(apierr.SessionGone)
}

// pages: every lock once, in the order of the names, however small the pages are.
func pages(b *bundle) {
	var want []string
	for i := range 5 {
		name := b.lock + "/" + strconv.Itoa(i)
		b.acquire("", func(r *wire.AcquireRequest) { r.Lock = name }).is(http.StatusCreated)
		want = append(want, name)
	}
	var got []string
	for cursor := ""; ; {
		page, err := b.client.Locks(b.Context(), &clientsdk.LocksQuery{Prefix: b.lock, Limit: 2, Cursor: cursor})
		if err != nil || len(page.Locks) > 2 {
			b.Fatalf("%d locks on a page, %v", len(page.Locks), err)
		}
		for _, l := range page.Locks {
			got = append(got, l.Lock)
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		b.Errorf("pages %v, want %v", got, want)
	}
	for _, query := range []string{"limit=0", "limit=1001", "limit=x"} {
		b.do(http.MethodGet, "/v1/locks?"+query, "", nil).refuses(apierr.OutOfBounds)
	}
	b.do(http.MethodGet, "/v1/locks?cursor=*", "", nil).refuses(apierr.Malformed)
}

func sessionUnknown(b *bundle) {
	s := wire.Session{Session: "aaaaaaaaaaaaaaaaaaaaaaaaaa"}
	b.renewSession(s).refuses(apierr.SessionGone)
	b.acquire(newKey(), under(s)).refuses(apierr.SessionGone)
}

func breaks(b *bundle) {
	h := b.acquire("", nil).is(http.StatusCreated).hold()
	err := b.client.Break(b.Context(), b.lock, h.Token+1, "not this one")
	var api *clientsdk.APIError
	if !errors.As(err, &api) || api.ErrCode != string(apierr.HolderChanged) {
		b.Errorf("break with another token = %v", err)
	}
	if err := b.client.Break(b.Context(), b.lock, h.Token, "contract"); err != nil {
		b.Errorf("break = %v", err)
	}
	if p := b.do(http.MethodGet, "/v1/holds/"+h.Hold, "", nil).refuses(apierr.HoldGone); p.Ended != "broken" {
		b.Errorf("ended %q, want broken", p.Ended)
	}
	past := b.info().History
	if len(past) != 1 || past[0].Ended != "broken" || past[0].Token != h.Token || past[0].Reason != "contract" {
		b.Errorf("history %+v", past)
	}
}

func checks(b *bundle) {
	old := b.acquire("", nil).is(http.StatusCreated).hold()
	verdicts := func(want ...string) {
		b.Helper()
		items := []clientsdk.CheckItem{{Lock: b.lock, Token: old.Token}, {Lock: b.lock + "/other", Token: old.Token}}
		got, err := b.client.Check(b.Context(), items)
		if err != nil {
			b.Fatal(err)
		}
		for i, r := range got {
			if r.Result != want[i] || r.Lock != items[i].Lock || r.Token != items[i].Token {
				b.Errorf("item %d: %+v, want %s", i, r, want[i])
			}
		}
	}
	verdicts("valid", "unknown")
	b.release(old).is(http.StatusNoContent)
	verdicts("ended", "unknown")
	b.acquire("", nil).is(http.StatusCreated)
	verdicts("stale", "unknown")
}

func freeLock(b *bundle) {
	info := b.info()
	if info.State != wire.StateFree || info.Holder != nil || info.Waiters != 0 || len(info.Queue)+len(info.History) != 0 {
		b.Errorf("lock %+v", info)
	}
	h := b.acquire("", nil).is(http.StatusCreated).hold()
	page, err := b.client.Locks(b.Context(), &clientsdk.LocksQuery{Prefix: b.lock})
	if err != nil || len(page.Locks) != 1 || page.Locks[0].Holder == nil || page.Locks[0].Holder.Token != h.Token {
		b.Errorf("page %+v, %v", page, err)
	}
}

func badValues(b *bundle) {
	for field, edit := range map[string]func(*wire.AcquireRequest){
		"lock":  func(r *wire.AcquireRequest) { r.Lock = "" },
		"owner": func(r *wire.AcquireRequest) { r.Owner = "" },
		"ttl":   func(r *wire.AcquireRequest) { r.TTL = "10ms" },
		"wait":  func(r *wire.AcquireRequest) { r.Wait = "31s" },
	} {
		if p := b.acquire("", edit).refuses(apierr.OutOfBounds); p.Field != field || p.Limit == "" {
			b.Errorf("field %q, limit %q; want %s", p.Field, p.Limit, field)
		}
	}
	b.acquire("", func(r *wire.AcquireRequest) { r.Wait = "1500us" }).refuses(apierr.OutOfBounds)
}

// lifeOfALock is what a worker does, in both kinds of lease.
func lifeOfALock(b *bundle) {
	for _, opts := range []*clientsdk.AcquireOptions{{TTL: ttl}, {TTL: ttl, PerHold: true}} {
		first, err := b.client.Acquire(b.Context(), b.lock, opts)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := b.client.TryAcquire(b.Context(), b.lock, opts); !errors.Is(err, clientsdk.ErrHeld) {
			b.Errorf("try = %v, want ErrHeld", err)
		}
		second := make(chan *clientsdk.Hold, 1)
		go func() {
			h, err := b.client.Acquire(b.Context(), b.lock, opts)
			if err != nil {
				b.Error(err)
			}
			second <- h
		}()
		select {
		case <-first.Done():
			b.Fatalf("first hold: %v", first.Err())
		case <-second:
			b.Fatal("two holders")
		case <-time.After(3 * ttl): // renewals must have kept it
		}
		if err := first.Release(b.Context()); err != nil {
			b.Error(err)
		}
		h := <-second
		if h == nil || h.Token() <= first.Token() {
			b.Fatalf("second hold %v after %v", h, first)
		}
		if err := b.client.Break(b.Context(), b.lock, h.Token(), "contract"); err != nil {
			b.Error(err)
		}
		<-h.Context().Done()
		var lost *clientsdk.LostError
		if !errors.As(context.Cause(h.Context()), &lost) || lost.Reason != clientsdk.LostBroken {
			b.Errorf("cause %v, want lost: broken", context.Cause(h.Context()))
		}
	}
}
